//! A recipe in bytes: `docs/formats/recipe.md`.
//!
//! The frame of a tar stream is most of what is written beside the ids of chunks, so it is taken apart into columns first: [`header`] guesses a header from
//! those before it, and [`frame`] writes what differs.

mod frame;
mod header;
mod invalid;
mod parts;
mod read;
mod write;

pub use invalid::InvalidRecipe;

/// With this a recipe begins.
const MAGIC: [u8; 8] = *b"XBRECIPE";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Bytes of the digest at the end.
const DIGEST: usize = 32;
/// Bytes of a block of a tar stream.
const BLOCK: usize = 512;
