//! Extended attributes: those that several inodes share are stored once, in an area of their own, the others behind
//! their inode.

use std::collections::HashMap;

use super::ErofsError;
use super::disk::{XATTR_ENTRY_SIZE, XATTR_HEADER_SIZE};
use crate::image::{ImageTree, InodeId};
use crate::layer::Xattr;

/// Most references to shared attributes of one inode: the format counts them with a byte.
const MAX_SHARED: usize = u8::MAX as usize;
/// Longest attributes of one inode: the format counts units of four bytes with 16 bits.
const MAX_INLINE: usize = XATTR_HEADER_SIZE + (u16::MAX as usize - 1) * 4;
/// Length of a reference to a shared attribute, in bytes.
const REFERENCE_SIZE: usize = 4;

/// Prefixes of names, replaced by numbers.
const PREFIXES: [(&[u8], u8); 5] = [
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

type Key<'a> = (&'a [u8], &'a [u8]);

/// The attributes that are stored once.
#[derive(Default)]
pub(super) struct Shared<'a> {
    /// The area's bytes.
    pub(super) area: Vec<u8>,
    /// Where in the area an attribute is, in units of four bytes.
    places: HashMap<Key<'a>, u32>,
}

impl<'a> Shared<'a> {
    /// Chooses the attributes to share: those that take less space so. Places follow the order of inodes.
    pub(super) fn of(tree: &'a ImageTree) -> Result<Self, ErofsError> {
        let mut uses: HashMap<Key<'a>, usize> = HashMap::new();
        let mut order = Vec::new();
        for (number, inode) in tree.inodes.iter().enumerate() {
            for xattr in &inode.metadata.xattrs {
                check(InodeId(number as u32), xattr)?;
                let count = uses.entry(key(xattr)).or_insert(0);
                if *count == 0 {
                    order.push(xattr);
                }
                *count += 1;
            }
        }
        let mut shared = Self::default();
        for xattr in order {
            let count = uses.get(&key(xattr)).copied().unwrap_or(0);
            let size = entry_size(xattr);
            if count * size > size + count * REFERENCE_SIZE {
                shared
                    .places
                    .insert(key(xattr), (shared.area.len() / REFERENCE_SIZE) as u32);
                put_entry(xattr, &mut shared.area);
            }
        }
        Ok(shared)
    }

    /// Length of an inode's attributes behind it, in bytes; 0 for none.
    pub(super) fn inline_size(&self, inode: InodeId, xattrs: &[Xattr]) -> Result<u32, ErofsError> {
        if xattrs.is_empty() {
            return Ok(0);
        }
        let size = self.inline(xattrs).len();
        match size <= MAX_INLINE {
            true => Ok(size as u32),
            false => Err(problem(
                inode,
                &xattrs[0],
                "together with the others it takes over 256 KiB",
            )),
        }
    }

    /// The bytes behind an inode: a header, references to shared attributes, then the others.
    pub(super) fn inline(&self, xattrs: &[Xattr]) -> Vec<u8> {
        let mut out = vec![0; XATTR_HEADER_SIZE];
        let mut references = 0u8;
        let mut own = Vec::new();
        for xattr in xattrs {
            match self.places.get(&key(xattr)) {
                Some(place) if usize::from(references) < MAX_SHARED => {
                    out.extend_from_slice(&place.to_le_bytes());
                    references += 1;
                }
                _ => own.push(xattr),
            }
        }
        out[4] = references;
        for xattr in own {
            put_entry(xattr, &mut out);
        }
        out
    }
}

fn key(xattr: &Xattr) -> Key<'_> {
    (&xattr.name, &xattr.value)
}

fn prefix(name: &[u8]) -> Option<(&[u8], u8)> {
    PREFIXES.iter().find_map(|(prefix, number)| {
        let rest = name.strip_prefix(*prefix)?;
        // A prefix that ends with a dot needs something after it, the others are whole names.
        (rest.is_empty() != prefix.ends_with(b".")).then_some((rest, *number))
    })
}

fn check(inode: InodeId, xattr: &Xattr) -> Result<(), ErofsError> {
    let Some((rest, _)) = prefix(&xattr.name) else {
        return Err(problem(inode, xattr, "its namespace has no number in the format"));
    };
    if rest.len() > usize::from(u8::MAX) {
        return Err(problem(inode, xattr, "its name is over 255 bytes"));
    }
    if xattr.value.len() > usize::from(u16::MAX) {
        return Err(problem(inode, xattr, "its value is over 65535 bytes"));
    }
    Ok(())
}

fn problem(inode: InodeId, xattr: &Xattr, problem: &'static str) -> ErofsError {
    ErofsError::Xattr {
        inode,
        name: String::from_utf8_lossy(&xattr.name).into_owned(),
        problem,
    }
}

fn entry_size(xattr: &Xattr) -> usize {
    let rest = prefix(&xattr.name).map_or(0, |(rest, _)| rest.len());
    (XATTR_ENTRY_SIZE + rest + xattr.value.len()).next_multiple_of(4)
}

fn put_entry(xattr: &Xattr, out: &mut Vec<u8>) {
    let Some((rest, number)) = prefix(&xattr.name) else {
        return;
    };
    out.push(rest.len() as u8);
    out.push(number);
    out.extend_from_slice(&(xattr.value.len() as u16).to_le_bytes());
    out.extend_from_slice(rest);
    out.extend_from_slice(&xattr.value);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Inode, InodeKind};
    use crate::layer::Metadata;

    /// The bytes of the shared area, if so many inodes have the same attribute of eight bytes.
    fn shared_bytes(inodes: usize) -> usize {
        let xattr = Xattr {
            name: b"user.a".to_vec(),
            value: b"abc".to_vec(),
        };
        assert_eq!(entry_size(&xattr), 8);
        let inode = Inode {
            metadata: Metadata {
                xattrs: vec![xattr],
                ..Metadata::default()
            },
            links: 1,
            kind: InodeKind::Directory { children: Vec::new() },
        };
        let tree = ImageTree {
            inodes: vec![inode; inodes],
            root: InodeId(0),
        };
        Shared::of(&tree).unwrap().area.len()
    }

    #[test]
    fn an_attribute_is_shared_when_that_takes_less_space() {
        // Twice eight bytes are as many as eight and two references.
        assert_eq!([1, 2, 3, 4].map(shared_bytes), [0, 0, 8, 8]);
    }
}
