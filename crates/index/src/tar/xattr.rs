//! Which extended attributes of an archive become attributes of an entry.

use std::collections::BTreeMap;

use xebec_format::layer::Xattr;
use xebec_format::layer::limits::{MAX_XATTR_NAME, MAX_XATTR_VALUE};

use super::error::EntryProblem;

/// The kinds of inode that Linux distinguishes when it takes attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inode {
    /// A file, a directory, or a hard link (to whatever it links).
    Ordinary,
    /// A symbolic link: no `user.*`, no access control list.
    Symlink,
    /// A device or pipe: no `user.*`.
    Special,
}

/// Takes the attributes that containerd would set, ascending by name; of a name that repeats, the last.
///
/// Left out, as containerd leaves them out with a warning: `trusted.*` (it steers overlayfs and is not an archive's
/// to give), namespaces that Linux does not have, and `user.*` where Linux has none.
///
/// # Errors
/// Names and values that Linux cannot hold, and more than `max_total` bytes in all.
pub(super) fn collect_xattrs<'a>(
    records: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    inode: Inode,
    max_total: u64,
) -> Result<Vec<Xattr>, EntryProblem> {
    let mut xattrs = BTreeMap::new();
    for (name, value) in records {
        let shown = || String::from_utf8_lossy(name.get(..64).unwrap_or(name)).into_owned();
        let namespaces = [&b"user."[..], b"security.", b"trusted."];
        if name.is_empty() || name.len() > MAX_XATTR_NAME || namespaces.contains(&name) || name.contains(&0) {
            return Err(EntryProblem::XattrName(shown()));
        }
        if !is_settable(name, inode) {
            continue;
        }
        if value.len() > MAX_XATTR_VALUE {
            return Err(EntryProblem::XattrValue(shown()));
        }
        xattrs.insert(name, value);
    }
    let total: usize = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if total as u64 > max_total {
        return Err(EntryProblem::Xattrs(max_total));
    }
    let owned = |(name, value): (&[u8], &[u8])| Xattr {
        name: name.to_vec(),
        value: value.to_vec(),
    };
    Ok(xattrs.into_iter().map(owned).collect())
}

fn is_settable(name: &[u8], inode: Inode) -> bool {
    if matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default") {
        return inode != Inode::Symlink;
    }
    name.starts_with(b"security.") || name.starts_with(b"user.") && inode == Inode::Ordinary
}
