//! The merged tree of an image: what a container sees, with file contents as ranges of the layers' data spaces.
//!
//! [`crate::merge::merge`] makes it, [`crate::erofs::write`] turns it into a file system. Inodes are in an order in
//! which a directory's children stand together, so that listing a directory reads neighbouring inodes.

use crate::layer::Metadata;

/// The number of an inode: its place in [`ImageTree::inodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeId(pub u32);

impl InodeId {
    /// The place in [`ImageTree::inodes`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A whole image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageTree {
    /// All inodes, each reachable from the root, which comes first.
    pub inodes: Vec<Inode>,
    /// The root directory.
    pub root: InodeId,
}

/// A file of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Owner, mode, times and extended attributes (as the kernel is to see them).
    pub metadata: Metadata,
    /// Link count as `stat` shows it: names of a file; two and the number of subdirectories for a directory.
    pub links: u32,
    /// The kind of the inode, with what only that kind has.
    pub kind: InodeKind,
}

/// The kind of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A directory.
    Directory {
        /// Its entries, ascending by name (bytewise), without `.` and `..`.
        children: Vec<Child>,
    },
    /// A regular file.
    File {
        /// Length in bytes, holes included.
        size: u64,
        /// Where the contents are, ascending, not overlapping; bytes in no extent are a hole.
        extents: Vec<FileExtent>,
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
    },
    /// A character device.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The name, 1 to 255 bytes, no `/`, no NUL.
    pub name: Box<[u8]>,
    /// The inode that the name leads to.
    pub inode: InodeId,
}

/// A run of a file's contents in the data space of a layer, which the mounted image reaches as a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file; a multiple of the page size.
    pub file_offset: u64,
    /// Which device: the number of the layer, from the bottom, counted from 0.
    pub device: u16,
    /// Offset in the device; a multiple of the page size.
    pub data_offset: u64,
    /// Length in bytes, over 0; a multiple of the page size unless it ends the file.
    pub length: u64,
}

impl ImageTree {
    /// The inode with this number.
    pub fn inode(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(id.index())
    }

    /// Calls `redirect` for each run of contents of each regular file; what it returns takes the run's place.
    ///
    /// For files whose contents are (also) elsewhere, as in another layer that is already cached. The writer
    /// checks that the new places are inside their devices.
    pub fn redirect_extents(&mut self, mut redirect: impl FnMut(FileExtent) -> FileExtent) {
        for inode in &mut self.inodes {
            if let InodeKind::File { extents, .. } = &mut inode.kind {
                for extent in extents {
                    *extent = redirect(*extent);
                }
            }
        }
    }

    /// Calls `split` for each run of contents of each regular file; the runs that it adds to the list take the run's
    /// place. Together they must cover the same range of the file, ascending.
    ///
    /// For files of which some pages are reached by another device than the rest.
    pub fn split_extents(&mut self, mut split: impl FnMut(FileExtent, &mut Vec<FileExtent>)) {
        for inode in &mut self.inodes {
            if let InodeKind::File { extents, .. } = &mut inode.kind {
                let mut parts = Vec::with_capacity(extents.len());
                for extent in extents.iter() {
                    split(*extent, &mut parts);
                }
                *extents = parts;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(file_offset: u64, device: u16, data_offset: u64, length: u64) -> FileExtent {
        FileExtent {
            file_offset,
            device,
            data_offset,
            length,
        }
    }

    fn inode(kind: InodeKind) -> Inode {
        Inode {
            metadata: Metadata::default(),
            links: 1,
            kind,
        }
    }

    /// Two files, the first of two extents, with other inodes around them.
    fn tree() -> ImageTree {
        let file = |extents| {
            inode(InodeKind::File {
                size: 1 << 20,
                extents,
            })
        };
        ImageTree {
            root: InodeId(0),
            inodes: vec![
                inode(InodeKind::Directory { children: Vec::new() }),
                file(vec![extent(0, 0, 4096, 8192), extent(16384, 1, 0, 100)]),
                inode(InodeKind::Fifo),
                file(vec![extent(0, 1, 8192, 4096)]),
            ],
        }
    }

    fn extents(tree: &ImageTree) -> Vec<&[FileExtent]> {
        tree.inodes
            .iter()
            .filter_map(|inode| match &inode.kind {
                InodeKind::File { extents, .. } => Some(&extents[..]),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn every_extent_goes_where_it_is_redirected() {
        let mut redirected = tree();
        let mut asked = Vec::new();
        redirected.redirect_extents(|from| {
            asked.push(from);
            match from.device {
                1 => extent(from.file_offset, 7, from.data_offset + 4096, from.length),
                _ => from,
            }
        });
        let first = [extent(0, 0, 4096, 8192), extent(16384, 7, 4096, 100)];
        assert_eq!(extents(&redirected), [&first[..], &[extent(0, 7, 12288, 4096)]]);
        assert_eq!(asked, extents(&tree()).concat());
    }

    #[test]
    fn every_extent_becomes_the_parts_that_it_is_split_into() {
        let mut split = tree();
        split.split_extents(|from, parts| {
            let head = from.length.min(4096);
            parts.push(extent(from.file_offset, 9, from.data_offset, head));
            if from.length > head {
                let (file_offset, data_offset) = (from.file_offset + head, from.data_offset + head);
                parts.push(extent(file_offset, from.device, data_offset, from.length - head));
            }
        });
        let first = [
            extent(0, 9, 4096, 4096),
            extent(4096, 0, 8192, 4096),
            extent(16384, 9, 0, 100),
        ];
        assert_eq!(extents(&split), [&first[..], &[extent(0, 9, 8192, 4096)]]);
    }
}
