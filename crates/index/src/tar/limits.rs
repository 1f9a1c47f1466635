//! How much a tar archive may ask for.

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
    /// Largest data space, in bytes.
    pub data: u64,
    /// Most bytes of extended attributes (names and values) of one entry.
    pub xattrs: u64,
}

impl TarLimits {
    /// 1 MiB, as in Go's reader (`maxSpecialFileSize`) and libarchive: what no image tool reads, none writes.
    pub const SPECIAL: u64 = 1 << 20;
    /// The largest images in the field have under 2 million entries.
    pub const ENTRIES: u64 = 10_000_000;
    /// 2 GiB: with ten million entries, 200 bytes for each.
    pub const TREE: u64 = 2 << 30;
    /// 512 Ki: more do not fit into a sparse map of [`Self::SPECIAL`] bytes.
    pub const SPARSE_SEGMENTS: u64 = 512 << 10;
    /// 16 TiB: the data space is one file, and this is the largest that ext4 holds with 4 KiB blocks.
    pub const DATA: u64 = 16 << 40;
    /// 192 KiB: an EROFS inode stores at most 256 KiB, and headers and padding add at most a third.
    pub const XATTRS: u64 = 192 << 10;
    /// 64 KiB: `XATTR_SIZE_MAX` of Linux, for one value.
    pub const XATTR_VALUE: usize = 64 << 10;
    /// `XATTR_NAME_MAX` of Linux.
    pub const XATTR_NAME: usize = 255;
    /// `PATH_MAX` of Linux without the final NUL: the longest target that `symlink` takes.
    pub const SYMLINK_TARGET: usize = 4095;
}

impl Default for TarLimits {
    fn default() -> Self {
        Self {
            special: Self::SPECIAL,
            entries: Self::ENTRIES,
            tree: Self::TREE,
            sparse_segments: Self::SPARSE_SEGMENTS,
            data: Self::DATA,
            xattrs: Self::XATTRS,
        }
    }
}
