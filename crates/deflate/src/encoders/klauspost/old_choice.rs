//! Chooses how a batch is written, as the encoder did before 1.14.4.
//!
//! Codes that the next batch may go on with have words for all symbols: each symbol counts as if it occurred once. The codes of the specification are
//! not used.

use super::codes::{Choice, GUESSED_HEADER, Open, frequencies_of, stored_size};
use super::generation::Generation;
use super::tokens::{Frequencies, Tokens, estimated_bits_of};
use crate::format::END_OF_BLOCK;

/// A choice depends on these, beside the batch and the block before.
#[derive(Debug, Clone, Copy)]
pub(super) struct OldChooser {
    pub(super) generation: Generation,
    /// As that of newer generations.
    pub(super) penalty: u32,
}

impl OldChooser {
    /// How often each symbol occurs in a batch, as the codes count them, and how many symbols that are.
    fn frequencies(tokens: &Tokens, is_whole: bool) -> (Frequencies, usize) {
        let mut frequencies = tokens.frequencies().clone();
        let mut count = tokens.len();
        if is_whole {
            frequencies.literals[END_OF_BLOCK] = 1;
        } else {
            count += fill(&mut frequencies.literals);
            fill(&mut frequencies.distances);
        }
        (frequencies, count)
    }

    /// New codes for a batch.
    pub(super) fn new_codes(self, tokens: &Tokens, is_whole: bool) -> Choice {
        let (mut frequencies, _) = OldChooser::frequencies(tokens, is_whole);
        frequencies.have_distance();
        Choice::new(&frequencies, !is_whole)
    }

    /// Chooses how a batch of tokens is written. `plain` is the number of its bytes, if they can be stored.
    pub(super) fn choose_tokens(
        self,
        open: Option<&Open>,
        tokens: &Tokens,
        plain: Option<usize>,
        is_whole: bool,
    ) -> Choice {
        let (mut frequencies, count) = OldChooser::frequencies(tokens, is_whole);
        // The first versions let a symbol cost less than a bit, and more than fifteen.
        let bounds = if self.generation < Generation::V1_12_3 {
            (f32::NEG_INFINITY, f32::INFINITY)
        } else {
            (1.0, 15.0)
        };
        let estimated = frequencies.estimated_bits(count, bounds);
        frequencies.have_distance();
        let stored_in = |bits: usize| plain.is_some_and(|plain| stored_size(plain) < bits + (bits >> 4));
        if let Some(open) = open.filter(|open| !open.is_literal) {
            let renewed = open.header + estimated;
            let renewed = renewed + (renewed >> self.penalty);
            let reused = open.codes.bits_of(&frequencies) + frequencies.extra_bits();
            if stored_in(renewed.min(reused)) {
                return Choice::Stored;
            }
            if reused <= renewed {
                return Choice::GoOn;
            }
        }
        let choice = Choice::new(&frequencies, !is_whole);
        let Choice::New(codes, header) = &choice else {
            return choice;
        };
        let size = header.size() + codes.bits_of(&frequencies) + frequencies.extra_bits();
        if stored_in(size) { Choice::Stored } else { choice }
    }

    /// A new code for bytes without copies, in the first versions.
    pub(super) fn new_code_for_literals(self, plain: &[u8], is_whole: bool) -> Choice {
        let mut frequencies = frequencies_of(plain);
        if !is_whole {
            fill(&mut frequencies);
        }
        frequencies[END_OF_BLOCK] = 1;
        Choice::new_for_literals(&frequencies)
    }

    /// Chooses how bytes without copies are written, in the first versions.
    pub(super) fn choose_literals(self, open: Option<&Open>, plain: &[u8], is_whole: bool) -> Choice {
        let mut frequencies = frequencies_of(plain);
        let mut literals = frequencies;
        let absent = if is_whole {
            0
        } else {
            fill(&mut literals[..END_OF_BLOCK])
        };
        let header = open.map_or(GUESSED_HEADER, |open| open.header);
        let is_first = self.generation < Generation::V1_11_13;
        // The end of the block does not count.
        let (counted, more) = if is_first {
            (plain.len(), 15)
        } else {
            (plain.len() + absent, plain.len() / 32)
        };
        let bits = estimated_bits_of(&frequencies[..END_OF_BLOCK], counted);
        let size = (bits + 0.99) as usize + header + more;
        let mut size = size + (size >> self.penalty);
        if stored_size(plain.len()) < size {
            return Choice::Stored;
        }
        if is_first {
            frequencies = literals;
            let one = estimated_bits_of(&[1], counted);
            let absent = (0..absent).fold(0.0, |sum, _| sum + one);
            size += (absent + 0.99) as usize;
        }
        let goes_on = |open: &Open| open.codes.bits_of_literals(&frequencies[..END_OF_BLOCK]) <= size;
        if open.is_some_and(goes_on) {
            Choice::GoOn
        } else {
            self.new_code_for_literals(plain, is_whole)
        }
    }
}

/// Lets each symbol occur. Returns how many did not.
fn fill(frequencies: &mut [u16]) -> usize {
    let absent = frequencies.iter_mut().filter(|count| **count == 0);
    absent.map(|count| *count = 1).count()
}
