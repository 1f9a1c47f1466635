//! Chooses how a batch is written, as the encoder does from 1.14.4 on.

use super::codes::{Choice, Codes, GUESSED_HEADER, Open, frequencies_of, stored_size};
use super::generation::Generation;
use super::tokens::{Frequencies, Tokens};
use crate::format::END_OF_BLOCK;

/// Batches of fewer tokens may be written by the codes of the specification.
const FEW_TOKENS: usize = 250;

/// A choice depends on these, beside the batch and the block before.
#[derive(Debug, Clone)]
pub(super) struct Chooser {
    generation: Generation,
    /// New codes are expected to cost this part more than their estimate: one of two to the power of this.
    penalty: u32,
    fixed: Box<Codes>,
}

impl Chooser {
    pub(super) fn new(generation: Generation, penalty: u32) -> Chooser {
        Chooser {
            generation,
            penalty,
            fixed: Box::new(Codes::fixed()),
        }
    }

    /// The codes of the specification.
    pub(super) fn fixed(&self) -> &Codes {
        &self.fixed
    }

    /// Whether a head tells the lengths of all symbols that there are.
    fn tells_all(&self, is_whole: bool) -> bool {
        self.generation < Generation::V1_18_1 && !is_whole
    }

    /// How often each symbol occurs in a batch, with what its codes need beside.
    fn frequencies(&self, tokens: &Tokens, is_whole: bool) -> Frequencies {
        let mut frequencies = tokens.frequencies().clone();
        if !self.tells_all(is_whole) {
            frequencies.literals[END_OF_BLOCK] = 1;
            frequencies.have_distance();
        }
        frequencies
    }

    /// New codes for a batch.
    pub(super) fn new_codes(&self, tokens: &Tokens, is_whole: bool) -> Choice {
        let mut frequencies = self.frequencies(tokens, is_whole);
        frequencies.literals[END_OF_BLOCK] = 1;
        Choice::new(&frequencies, self.tells_all(is_whole))
    }

    /// Chooses how a batch of tokens is written. `plain` is the number of its bytes, if they can be stored.
    pub(super) fn choose_tokens(
        &self,
        open: Option<&Open>,
        tokens: &Tokens,
        plain: Option<usize>,
        is_whole: bool,
    ) -> Choice {
        let mut frequencies = self.frequencies(tokens, is_whole);
        let open = open.filter(|open| !open.is_literal && open.codes.cover(tokens.frequencies()));
        let extra_bits = if plain.is_some() || open.is_some() {
            frequencies.extra_bits()
        } else {
            0
        };
        let stored_in = |bits: usize| plain.is_some_and(|plain| stored_size(plain) <= bits);
        let count = tokens.len() + usize::from(is_whole);
        if let Some(open) = open {
            let estimated = open.header + tokens.frequencies().estimated_bits(count, (1.0, 15.0));
            let renewed = estimated + open.codes.bits_of_end() + (estimated >> self.penalty);
            let reused = open.codes.bits_of(&frequencies) + extra_bits;
            let size = renewed.min(reused);
            let fixed = 3 + self.fixed.bits_of(&frequencies) + extra_bits + 7;
            if count < FEW_TOKENS && fixed < size {
                return if stored_in(size) {
                    Choice::Stored
                } else {
                    Choice::Fixed
                };
            }
            if stored_in(size) {
                return Choice::Stored;
            }
            if reused <= renewed {
                return Choice::GoOn;
            }
        }
        // From here on the end of the block counts, in each generation.
        frequencies.literals[END_OF_BLOCK] = 1;
        let choice = Choice::new(&frequencies, self.tells_all(is_whole));
        let Choice::New(codes, header) = &choice else {
            return choice;
        };
        let size = header.size() + codes.bits_of(&frequencies) + extra_bits;
        let fixed = 3 + self.fixed.bits_of(&frequencies) + extra_bits;
        if count < FEW_TOKENS && fixed <= size {
            return if stored_in(fixed) {
                Choice::Stored
            } else {
                Choice::Fixed
            };
        }
        if stored_in(size) { Choice::Stored } else { choice }
    }

    /// A new code for bytes without copies.
    pub(super) fn new_code_for_literals(&self, plain: &[u8]) -> Choice {
        let mut frequencies = frequencies_of(plain);
        frequencies[END_OF_BLOCK] = 1;
        Choice::new_for_literals(&frequencies)
    }

    /// Chooses how bytes without copies are written.
    pub(super) fn choose_literals(&self, open: Option<&Open>, plain: &[u8]) -> Choice {
        let mut frequencies = frequencies_of(plain);
        let knows_random = self.generation >= Generation::V1_14_4;
        if knows_random && looks_random(plain.len(), &frequencies[..END_OF_BLOCK]) {
            return Choice::Stored;
        }
        frequencies[END_OF_BLOCK] = 1;
        let choice = Choice::new_for_literals(&frequencies);
        let Choice::New(codes, _) = &choice else {
            return choice;
        };
        let header = open.map_or(GUESSED_HEADER, |open| open.header);
        let size = codes.bits_of_literals(&frequencies) + header;
        let size = size + (size >> self.penalty);
        if stored_size(plain.len()) <= size {
            return Choice::Stored;
        }
        let literals = &frequencies[..END_OF_BLOCK];
        let goes_on = open.is_some_and(|open| {
            open.codes.cover_literals(literals) && open.codes.bits_of_literals(literals) <= size
        });
        if goes_on { Choice::GoOn } else { choice }
    }
}

/// Whether bytes are so evenly distributed that no code is tried.
fn looks_random(length: usize, frequencies: &[u16]) -> bool {
    if length <= 1024 {
        return false;
    }
    let mean = length as f64 / 256.0;
    let most = (2 * length) as f64;
    let mut sum = 0.0;
    for &count in frequencies {
        let difference = f64::from(count) - mean;
        sum += difference * difference;
        if sum > most {
            break;
        }
    }
    sum < most
}
