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
    /// What it is.
    pub kind: InodeKind,
}

/// What an inode is.
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
        /// Where the contents are, ascending, not overlapping; what is in no extent is a hole.
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
    /// What it names.
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
