//! In which order chunks are put into a pack: those that may be similar next to each other.

use crate::chunk::Hint;

/// The key by which chunks are sorted. Chunks with the same key stay in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    extension: Vec<u8>,
    name: Vec<u8>,
    size: u64,
    offset: u64,
}

impl Key {
    /// The key of a chunk.
    pub(super) fn of(hint: &Hint, _bytes: &[u8]) -> Key {
        Key {
            extension: hint.extension().to_vec(),
            name: hint.name.clone(),
            size: hint.size,
            offset: hint.offset,
        }
    }
}
