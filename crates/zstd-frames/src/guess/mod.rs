//! Guesses the next sequence of an encoder.
//!
//! A [`Guesser`] has the hash tables of one encoder and walks through the plain bytes as that encoder does. It may be told that the sequence was
//! another one; then it goes on behind that as the encoder would have.

pub(crate) mod common;
mod klauspost;
pub(crate) mod klauspost_best;
pub(crate) mod klauspost_better;
pub(crate) mod klauspost_double;
pub(crate) mod klauspost_fast;
pub(crate) mod libzstd;
pub(crate) mod libzstd_double;
pub(crate) mod libzstd_fast;
pub(crate) mod libzstd_finders;
pub(crate) mod libzstd_lazy;
pub(crate) mod profile;

use super::frame::Frame;
use super::sequences::{Distances, Sequence};

/// A block that begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Where its plain bytes are in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Where its frame begins in the text, or 0 if that is before the text.
    pub(crate) frame: usize,
    /// How many plain bytes of the frame are before it.
    pub(crate) position: u64,
    /// The last three distances.
    pub(crate) distances: Distances,
}

/// Follows one encoder through a text: plain bytes that stay where they are.
pub(crate) trait Guesser {
    /// A frame begins.
    fn begin_frame(&mut self, frame: &Frame);

    /// A block begins.
    fn begin_block(&mut self, text: &[u8], span: &Span);

    /// The next sequence of the block, or `None` if the rest of it is literals.
    fn guess(&mut self, text: &[u8]) -> Option<Sequence>;

    /// The next sequence of the block was this: the guess, or another one. `distances` are those after it.
    fn follow(&mut self, text: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances);
}

/// Goes through a block as if each guess was right.
pub(crate) fn run(guesser: &mut dyn Guesser, text: &[u8], span: &Span) {
    guesser.begin_block(text, span);
    let mut distances = span.distances;
    while let Some(sequence) = guesser.guess(text) {
        distances.take(sequence);
        guesser.follow(text, sequence, true, &distances);
    }
}
