//! The entries of a layer's tree.

use crate::path::LayerPath;

/// Owner, mode, times and extended attributes of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits with setuid, setgid and sticky (octal 7777); the type is in [`EntryKind`].
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970, negative before.
    pub mtime: i64,
    /// Nanoseconds to add to `mtime`, below 1,000,000,000 (so times before 1970 count up from the earlier second).
    pub mtime_nanoseconds: u32,
    /// Extended attributes, ascending by name, no name twice.
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute, with its full name (`user.x`, `security.capability`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// Full name, at most 255 bytes, no NUL.
    pub name: Vec<u8>,
    /// Value, at most 64 KiB.
    pub value: Vec<u8>,
}

/// One entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is. For whiteouts the path that is removed, not the marker's.
    pub path: LayerPath,
    /// Owner, mode, times; default for whiteouts.
    pub metadata: Metadata,
    /// The kind of the entry, with what only that kind has.
    pub kind: EntryKind,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory; one that exists already keeps its children and takes this metadata.
    Directory,
    /// A regular file.
    File {
        /// Length in bytes, holes included.
        size: u64,
        /// Where the contents are, ascending, not overlapping; what is in no extent is a hole.
        /// An ordinary file has one extent, an empty one none.
        extents: Vec<Extent>,
    },
    /// A symbolic link.
    Symlink {
        /// Its target, as written; at most 4,095 bytes, no NUL.
        target: Vec<u8>,
    },
    /// A further name of a file that is earlier in this layer or in a lower one.
    Hardlink {
        /// That file's path.
        target: LayerPath,
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
    /// Whiteout (`.wh.NAME`): the path is removed from the lower layers, never from this one.
    Whiteout,
    /// Opaque directory (`.wh..wh..opq` in `path`): the lower layers' children of `path` are removed.
    Opaque,
}

/// A run of a file's contents in the layer's data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file; a multiple of the page size.
    pub file_offset: u64,
    /// Offset in the data space; a multiple of the page size.
    pub data_offset: u64,
    /// Length in bytes, over 0; a multiple of the page size unless it ends the file.
    pub length: u64,
}
