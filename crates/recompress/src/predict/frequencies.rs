//! How often symbols come, and how long their words are.

use xebec_deflate::format::token::{Token, distance_symbol, length_symbol};
use xebec_deflate::format::{DISTANCE_SYMBOLS, END_OF_BLOCK, LITERAL_SYMBOLS};

/// Symbols of both alphabets.
pub(super) const SYMBOLS: usize = LITERAL_SYMBOLS + DISTANCE_SYMBOLS;

/// How often each symbol of a block comes.
#[derive(Debug, Clone)]
pub(super) struct Frequencies {
    pub(super) literals: [u32; LITERAL_SYMBOLS],
    pub(super) distances: [u32; DISTANCE_SYMBOLS],
}

impl Default for Frequencies {
    fn default() -> Frequencies {
        let mut literals = [0; LITERAL_SYMBOLS];
        literals[END_OF_BLOCK] = 1;
        Frequencies {
            literals,
            distances: [0; DISTANCE_SYMBOLS],
        }
    }
}

impl Frequencies {
    /// Counts a token.
    #[inline]
    pub(super) fn count(&mut self, token: Token) {
        match token.copy_length() {
            0 => self.literals[usize::from(token.byte())] += 1,
            length => {
                self.literals[END_OF_BLOCK + 1 + length_symbol(length)] += 1;
                self.distances[distance_symbol(token.distance())] += 1;
            }
        }
    }
}

/// The lengths of a block's words: literals and lengths, then distances, each alphabet whole.
pub(super) type Lengths = [u8; SYMBOLS];
