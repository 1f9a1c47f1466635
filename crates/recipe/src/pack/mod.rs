//! Packs: files of many chunks that are never changed.
//!
//! Chunks that may be similar are next to each other, in zstd frames of about 512 KiB plain. Reading a chunk reads one frame. The index is at the end.

pub(crate) mod damaged;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod order;
pub(crate) mod writer;

/// Plain bytes of a frame, at most.
pub const MOST_FRAME: usize = crate::chunk::MOST_CHUNK;
/// Plain bytes of a pack, at most.
pub const MOST_PACK: u64 = 1 << 30;
/// Bytes of the index of a pack, at most, with its trailer.
pub const MOST_INDEX: usize = 256 << 20;
