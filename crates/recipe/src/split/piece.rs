//! Pieces of plain bytes, and how long files are cut into them.

use crate::chunk::Hint;

/// How long files are cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutter {
    /// A file is one chunk; one of more than [`MOST_CHUNK`](crate::MOST_CHUNK) bytes is chunks of exactly so many, and a last one.
    Files,
    /// A file of more than 256 KiB is cut where its contents say (FastCDC), so that two files with a long part in common have most of its chunks in common.
    Content {
        /// How long chunks are on average, in bytes. They are a quarter as long at least, and four times as long at most. Taken as the power of two below,
        /// from 4 KiB to 1 MiB.
        average: u32,
    },
}

impl Cutter {
    /// By content, with chunks of 64 KiB on average.
    pub const CONTENT: Cutter = Cutter::Content { average: 64 << 10 };
}

/// A piece of the plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of the frame: headers, padding, records, short files. Two of these may follow each other.
    Inline(&'a [u8]),
    /// So many zeros: 4 KiB or more of the frame, 64 KiB or more of a file, or a whole file of nothing else, which may be as short as a file that is
    /// no part of the frame (128 bytes), and shorter if the stream ends in it.
    Zeros(u64),
    /// Contents of a file, or of bytes that are no tar stream: at least one byte and at most [`MOST_CHUNK`](crate::MOST_CHUNK).
    Chunk {
        /// The chunk.
        bytes: &'a [u8],
        /// Of which file it is.
        hint: &'a Hint,
    },
}

/// Gets the pieces, in order.
pub(super) type Sink<'s> = dyn FnMut(Piece<'_>) + 's;

/// Whether there is nothing but zeros.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // The first bytes of most blocks tell. The rest is compared with itself, moved by one, which is one call of memcmp.
    match bytes.split_first() {
        None => true,
        Some((first, rest)) => *first == 0 && rest == bytes.get(..rest.len()).unwrap_or_default(),
    }
}
