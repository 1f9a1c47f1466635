//! Cuts plain bytes into pieces: what frames files, runs of zeros, and chunks. The pieces in order are the bytes.
//!
//! A tar stream is followed as far as it is understood: its headers say where the contents of a file begin and how long they are. From the first block on
//! that is no header, all bytes are cut as one long file without a name.

mod content_cut;
mod contents;
mod frame;
mod piece;
mod splitter;
mod tar;

pub use piece::{Cutter, Piece};
pub use splitter::Splitter;
