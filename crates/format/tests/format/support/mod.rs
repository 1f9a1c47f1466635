//! Helpers that the tests of this crate share: random trees, a description of what a tree shows, and two ways to see
//! an EROFS image, a small reader and the kernel.

#![allow(dead_code, reason = "every test binary uses its part")]

pub(crate) mod indexes;
pub(crate) mod kernel;
pub(crate) mod reader;
pub(crate) mod recordings;
pub(crate) mod trees;
pub(crate) mod unpack;

use std::collections::BTreeMap;

use xebec_format::image::{FileExtent, ImageTree, InodeId, InodeKind};

/// The inode that one path shows.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    /// Type and permissions, as in `st_mode`.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: i64,
    pub(crate) nanoseconds: u32,
    pub(crate) links: u64,
    /// Major and minor number of a device.
    pub(crate) device: Option<(u32, u32)>,
    /// Length of a file.
    pub(crate) size: Option<u64>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) target: Option<Vec<u8>>,
    /// The first path, in order, that is the same inode.
    pub(crate) same_as: Vec<u8>,
    /// Bytes at some offsets of a file.
    pub(crate) samples: Vec<(u64, Vec<u8>)>,
}

pub(crate) type View = BTreeMap<Vec<u8>, Seen>;

/// The value of a device's byte in tests.
pub(crate) fn device_byte(device: u16, offset: u64) -> u8 {
    let page = offset / 4096;
    (page.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ (offset as u8).wrapping_mul(7) ^ (device as u8) << 3 ^ 1
}

/// Bytes of a file, as its extents say.
fn file_bytes(extents: &[FileExtent], offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length)
        .map(|at| {
            extents
                .iter()
                .find(|e| e.file_offset <= at && at < e.file_offset + e.length)
                .map_or(0, |e| device_byte(e.device, e.data_offset + (at - e.file_offset)))
        })
        .collect()
}

/// Where a file is looked at: all of a small one, else around the ends of extents and of the file.
pub(crate) fn sample_offsets(size: u64, extents: &[FileExtent]) -> Vec<(u64, u64)> {
    if size <= 8192 {
        return vec![(0, size)];
    }
    let mut offsets = vec![0, size.saturating_sub(4096)];
    for extent in extents {
        for edge in [extent.file_offset, extent.file_offset + extent.length] {
            offsets.push(edge.saturating_sub(50));
            offsets.push(edge);
        }
    }
    offsets.sort_unstable();
    offsets.dedup();
    let sample = |at: u64| (at, 100.min(size.saturating_sub(at)));
    offsets
        .into_iter()
        .map(sample)
        .filter(|(_, length)| *length > 0)
        .collect()
}

/// The view that a tree must show.
pub(crate) fn view_of_tree(tree: &ImageTree) -> View {
    let mut view = View::new();
    let mut first: BTreeMap<InodeId, Vec<u8>> = BTreeMap::new();
    let mut todo = vec![(Vec::new(), tree.root)];
    while let Some((path, id)) = todo.pop() {
        let inode = tree.inode(id).unwrap();
        let metadata = &inode.metadata;
        let mut seen = Seen {
            mode: u32::from(metadata.mode),
            uid: metadata.uid,
            gid: metadata.gid,
            mtime: metadata.mtime,
            nanoseconds: metadata.mtime_nanoseconds,
            links: u64::from(inode.links),
            xattrs: metadata
                .xattrs
                .iter()
                .map(|x| (x.name.clone(), x.value.clone()))
                .collect(),
            ..Seen::default()
        };
        match &inode.kind {
            InodeKind::Directory { children } => {
                seen.mode |= 0o040_000;
                for child in children {
                    todo.push((join(&path, &child.name), child.inode));
                }
            }
            InodeKind::File { size, extents } => {
                seen.mode |= 0o100_000;
                seen.size = Some(*size);
                seen.samples = sample_offsets(*size, extents)
                    .into_iter()
                    .map(|(at, length)| (at, file_bytes(extents, at, length)))
                    .collect();
            }
            InodeKind::Symlink { target } => {
                seen.mode |= 0o120_000;
                seen.target = Some(target.clone());
            }
            InodeKind::CharDevice { major, minor } => {
                seen.mode |= 0o020_000;
                seen.device = Some((*major, *minor));
            }
            InodeKind::BlockDevice { major, minor } => {
                seen.mode |= 0o060_000;
                seen.device = Some((*major, *minor));
            }
            InodeKind::Fifo => seen.mode |= 0o010_000,
        }
        let least = first.entry(id).or_insert_with(|| path.clone());
        if path < *least {
            least.clone_from(&path);
        }
        view.insert(path, seen);
    }
    let names = paths_of(tree);
    for (path, id) in names {
        view.get_mut(&path).unwrap().same_as = first[&id].clone();
    }
    view
}

fn paths_of(tree: &ImageTree) -> Vec<(Vec<u8>, InodeId)> {
    let mut found = Vec::new();
    let mut todo = vec![(Vec::new(), tree.root)];
    while let Some((path, id)) = todo.pop() {
        if let InodeKind::Directory { children } = &tree.inode(id).unwrap().kind {
            for child in children {
                todo.push((join(&path, &child.name), child.inode));
            }
        }
        found.push((path, id));
    }
    found
}

pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path.is_empty() {
        true => name.to_vec(),
        false => [path, b"/", name].concat(),
    }
}

/// Fails at the first path at which two views differ, and says how.
pub(crate) fn assert_same(expected: &View, found: &View) {
    for (path, seen) in expected {
        let shown = path.escape_ascii().to_string();
        let Some(other) = found.get(path) else {
            panic!("{shown} is missing")
        };
        assert_eq!(seen, other, "{shown}");
    }
    for path in found.keys() {
        assert!(expected.contains_key(path), "{} is too many", path.escape_ascii());
    }
}
