//! What a pack is in bytes: `docs/formats/recipe.md`.

/// With this a pack begins, and then comes the version.
pub(super) const MAGIC: [u8; 8] = *b"XBPACK\r\n";
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u32 = 1;
/// Bytes before the first frame.
pub(super) const HEAD: usize = 12;
/// With this a pack ends.
pub(super) const END_MAGIC: [u8; 8] = *b"XBPACKED";
/// Bytes of the trailer.
pub(super) const TRAILER: usize = 60;
/// Bytes of the trailer that its digest covers, with the index.
pub(super) const COUNTS: usize = 16;
/// Chunks of a pack, at most.
pub(super) const MOST_CHUNKS: usize = 1 << 22;
/// Frames of a pack, at most.
pub(super) const MOST_FRAMES: usize = 1 << 20;
/// Bytes of a digest.
pub(super) const DIGEST: usize = 32;
/// Bytes of one number of the index, at most.
pub(super) const MOST_NUMBER: usize = 5;
