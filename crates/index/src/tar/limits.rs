//! How much a tar archive may ask for: never more than a layer index can hold.

use xebec_format::layer::limits::{MAX_DATA, MAX_ENTRIES, MAX_PIECES};

/// Limits on what a tar archive may contain; exceeding one is [`crate::tar::TarError::Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TarLimits {
    /// Longest PAX header, GNU long name or GNU sparse map, in bytes. Each is held in memory.
    pub special: u64,
    /// Most entries of one archive.
    pub entries: u64,
    /// Most bytes that the entries of one archive may take up together: paths, targets, attributes, extents.
    pub tree: u64,
    /// Most data segments of one sparse file.
    pub sparse_segments: u64,
    /// Most pieces of one archive: one for each file with contents, and one for each segment of a sparse file.
    pub pieces: u64,
    /// Largest data space, in bytes.
    pub data: u64,
    /// Most bytes of extended attributes (names and values) of one entry.
    pub xattrs: u64,
}

impl TarLimits {
    /// 1 MiB, as in Go's reader (`maxSpecialFileSize`) and libarchive: no image tool reads longer ones, so none writes them.
    pub const SPECIAL: u64 = 1 << 20;
    /// 1 GiB: with as many entries as an index may have, 256 bytes for each.
    pub const TREE: u64 = 1 << 30;
    /// 512 Ki: more do not fit into a sparse map of [`Self::SPECIAL`] bytes.
    pub const SPARSE_SEGMENTS: u64 = 512 << 10;
    /// 192 KiB: an EROFS inode stores at most 256 KiB, and headers and padding add at most a third.
    pub const XATTRS: u64 = 192 << 10;
}

impl Default for TarLimits {
    fn default() -> Self {
        Self {
            special: Self::SPECIAL,
            entries: MAX_ENTRIES,
            tree: Self::TREE,
            sparse_segments: Self::SPARSE_SEGMENTS,
            pieces: MAX_PIECES,
            data: MAX_DATA,
            xattrs: Self::XATTRS,
        }
    }
}
