//! Limits on every count and length that an index from outside declares, and why each is where it is.
//!
//! Together they bound what decoding a hostile index can cost: about [`MAX_SECTION`] for a section's plain bytes,
//! and [`MAX_ENTRIES`], [`MAX_PIECES`] and [`MAX_SPANS`] times the size of the decoded values.

/// Largest encoded index that is looked at, in bytes. A million files take about 15 MB.
pub const MAX_INDEX: u64 = 128 << 20;
/// Largest plain size of one section of an index, in bytes. Two million files take about 50 MB.
pub const MAX_SECTION: u64 = 256 << 20;
/// Most entries of one layer. The largest images known have about two million.
pub const MAX_ENTRIES: u64 = 4 << 20;
/// Most bytes that all paths of one layer may have together, once their shared prefixes are written out: four times
/// what two million files have.
pub const MAX_PATH_BYTES: u64 = 512 << 20;
/// Most extents of one layer: as many as an ordinary layer has entries, and room for sparse files.
pub const MAX_EXTENTS: u64 = 8 << 20;
/// Most pieces of one layer.
pub const MAX_PIECES: u64 = 8 << 20;
/// Most spans of one layer: with spans of 1 MiB, 4 TiB.
pub const MAX_SPANS: u64 = 4 << 20;
/// Most plain bytes that one span may decode to: what a fill must hold in memory at once.
pub const MAX_SPAN_PLAIN: u64 = 64 << 20;
/// Most source bytes of one span: incompressible plain bytes and a codec's overhead.
pub const MAX_SPAN_SOURCE: u64 = MAX_SPAN_PLAIN + (1 << 20);
/// Longest range of the data space that one span may give. Contents spread when they are put at page boundaries:
/// a file of one byte takes 1 KiB of a tar file and 4 KiB of the data space.
pub const MAX_SPAN_DATA: u64 = 4 * MAX_SPAN_PLAIN;
/// Largest stored access-point window: 32 KiB (deflate's farthest distance, RFC 1951) and zstd's worst overhead.
pub const MAX_WINDOW: u64 = 33 << 10;
/// Largest data space of a layer: the 32-bit block addresses of EROFS with blocks of 4 KiB reach 16 TiB.
pub const MAX_DATA: u64 = (u32::MAX as u64) << 12;
/// Largest file: what `off_t` can say.
pub const MAX_FILE: u64 = i64::MAX as u64;
/// Longest target of a symbolic link (`PATH_MAX` of Linux less the terminating NUL).
pub const MAX_SYMLINK: usize = 4095;
/// Longest name of an extended attribute (`XATTR_NAME_MAX` of Linux).
pub const MAX_XATTR_NAME: usize = 255;
/// Longest value of an extended attribute (`XATTR_SIZE_MAX` of Linux).
pub const MAX_XATTR_VALUE: usize = 64 << 10;
/// Most bytes that an entry's extended attributes may take together, names and values (`XATTR_LIST_MAX` of Linux
/// bounds the names alone to 64 KiB; the values are bounded here so that the sets below stay small).
pub const MAX_XATTR_SET: usize = 256 << 10;
/// Most bytes that the extended attributes of all entries may take once each entry has its own copy.
pub const MAX_XATTR_BYTES: u64 = 256 << 20;
