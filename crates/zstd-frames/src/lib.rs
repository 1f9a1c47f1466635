//! The zstd format (RFC 8878), and what it takes to make the same frames again from their plain bytes.
//!
//! Three layers lie on each other:
//!
//! * `reader` reads frames and keeps all that they say beside the plain bytes: heads, blocks, how each block tells its literals, tables and
//!   sequences. `block` writes the same bytes from that: the codes leave an encoder no choice but those that are kept.
//! * `guess` follows encoders: from plain bytes it guesses the next sequence that this encoder makes, and it may be told another one and goes on
//!   behind that. `entropy` guesses which tables an encoder makes of the symbols of a block.
//! * `corrections` writes down where the guesses are wrong, by a range coder. [`describe`] cuts a stream into stretches of some MiB and makes the
//!   corrections of each; [`restore`] makes the bytes of one stretch again from its plain bytes, some before them, and the corrections.
//!
//! Promise: the same corrections for the same stream, however it is cut; no input makes anything here panic; memory is bounded by the largest window that
//! is taken. What is made of corrections has to be compared with a digest: damaged ones may make other bytes.
//!
//! May use: `bitstream`.
//!
//! The behaviour that is guessed is that of libzstd (BSD or GPL 2) and of `github.com/klauspost/compress/zstd` (BSD). No line of them is here.

pub(crate) mod back_bits;
pub(crate) mod block;
pub(crate) mod codes;
pub(crate) mod corrections;
pub mod describe;
pub(crate) mod entropy;
pub(crate) mod frame;
pub(crate) mod fse;
pub(crate) mod guess;
pub(crate) mod huffman;
pub(crate) mod models;
pub(crate) mod range_coder;
pub(crate) mod reader;
pub mod restore;
pub(crate) mod sequences;

#[cfg(test)]
mod tests;

/// The largest block, plain or compressed.
pub const BLOCK_MOST: usize = 128 << 10;
/// The largest window that is taken; a reader keeps so many plain bytes.
pub const WINDOW_MOST: u64 = 128 << 20;

/// Why bytes are no zstd frames, or none that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidZstd {
    /// Neither a frame nor a skippable one.
    #[error("no frame begins here")]
    Magic,
    /// A head with a bit that has no meaning.
    #[error("a frame's head has a bit that has no meaning")]
    Head,
    /// A frame that needs a dictionary.
    #[error("a frame needs a dictionary")]
    Dictionary,
    /// A window of more than 128 MiB.
    #[error("a frame's window is too large")]
    Window,
    /// A block of the kind that does not exist.
    #[error("a block is of kind 3, which does not exist")]
    BlockKind,
    /// A block that is larger than blocks may be.
    #[error("a block is too large")]
    BlockSize,
    /// Literals that are not what their head says.
    #[error("a block's literals are not as its head says")]
    Literals,
    /// Weights that are no code.
    #[error("a block's code is none")]
    Code,
    /// Counts that are no table.
    #[error("a block's table is none")]
    Table,
    /// A table or code of an earlier block, which there is not.
    #[error("a block repeats a table that no block before it has")]
    Repeat,
    /// Sequences that are not what their head says.
    #[error("a block's sequences are not as its head says")]
    Sequences,
    /// A copy from before the window.
    #[error("a copy begins before the window")]
    Distance,
    /// The input ends in the middle.
    #[error("the stream ends too soon")]
    Truncated,
}
