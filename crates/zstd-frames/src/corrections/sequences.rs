//! The sequences of a block, as far as they are not what was guessed.

use super::damaged::Damaged;
use crate::codes::COPY_LEAST;
use crate::guess::common::common;
use crate::guess::{Guesser, Span};
use crate::models::{Number, Symbol};
use crate::range_coder::{Bit, Coder};
use crate::sequences::{Distances, Sequence};

/// How many of the last guesses are looked at for how likely the next one is right.
const REMEMBERED: u32 = 4;

/// Contexts of sequences.
#[derive(Debug, Clone)]
pub(super) struct Contexts {
    /// By which of the last guesses were right, and by the kind of the guess.
    is_right: [[Bit; 4]; 1 << REMEMBERED],
    /// The last guesses, one bit each; set is right.
    remembered: usize,
    is_over: Bit,
    literals: Symbol<4>,
    fewer: Number,
    more: Number,
    is_same_offset: [Bit; 2],
    offset_kind: [Symbol<4>; 2],
    offset: Number,
    is_longest: [Bit; 2],
    shorter: Number,
    length: Number,
}

impl Default for Contexts {
    fn default() -> Contexts {
        Contexts {
            is_right: [[Bit::new(60_000); 4]; 1 << REMEMBERED],
            remembered: (1 << REMEMBERED) - 1,
            is_over: Bit::default(),
            literals: Symbol::default(),
            fewer: Number::default(),
            more: Number::default(),
            is_same_offset: [Bit::default(); 2],
            offset_kind: [Symbol::default(), Symbol::default()],
            offset: Number::default(),
            is_longest: [Bit::new(60_000); 2],
            shorter: Number::default(),
            length: Number::default(),
        }
    }
}

impl Contexts {
    /// The sequences of a block. Each that is returned fits in it; `distances` goes on to the next block.
    pub(super) fn code<C: Coder>(
        &mut self,
        coder: &mut C,
        guesser: &mut dyn Guesser,
        text: &[u8],
        span: &Span,
        given: Option<&[Sequence]>,
        distances: &mut Distances,
    ) -> Result<Vec<Sequence>, Damaged> {
        guesser.begin_block(text, span);
        let mut sequences = Vec::with_capacity(given.map_or(0, <[Sequence]>::len));
        let mut rest = given.unwrap_or_default().iter();
        let mut place = span.start;
        while span.end - place >= COPY_LEAST as usize {
            let guess = guesser.guess(text);
            let given = rest.next().copied();
            let kind = match guess {
                None => 0,
                Some(sequence) if sequence.offset <= 3 => 1,
                Some(sequence) => 2 + usize::from(sequence.literals > 0),
            };
            let is_right = coder.bit(&mut self.is_right[self.remembered][kind], guess == given);
            self.remembered = (self.remembered << 1 | usize::from(is_right)) & ((1 << REMEMBERED) - 1);
            let sequence = if is_right {
                guess
            } else {
                self.other(coder, guess, given, text, place, span.end, distances)?
            };
            let Some(sequence) = sequence else { break };
            let end = place + sequence.literals as usize + sequence.length as usize;
            if end > span.end || sequence.length < COPY_LEAST || sequence.offset == 0 {
                return Err(Damaged::Value);
            }
            distances.take(sequence);
            guesser.follow(text, sequence, is_right, distances);
            place = end;
            sequences.push(sequence);
        }
        Ok(sequences)
    }

    /// A sequence that was not guessed, or `None` if there are no more.
    #[allow(clippy::too_many_arguments, reason = "all that a sequence depends on")]
    fn other<C: Coder>(
        &mut self,
        coder: &mut C,
        guess: Option<Sequence>,
        given: Option<Sequence>,
        text: &[u8],
        place: usize,
        end: usize,
        distances: &Distances,
    ) -> Result<Option<Sequence>, Damaged> {
        if guess.is_some() && coder.bit(&mut self.is_over, given.is_none()) {
            return Ok(None);
        }
        let given = given.unwrap_or_default();
        let literals = self.literals(coder, guess, given)?;
        let from = place + literals as usize;
        if from >= end {
            return Err(Damaged::Value);
        }
        let offset = self.offset(coder, guess, given, literals);
        let distance = distances.told(offset, literals) as usize;
        let longest = match from.checked_sub(distance).filter(|_| distance > 0) {
            Some(behind) => common(text, from, behind, end) as u32,
            None => 0,
        };
        let is_known = longest >= COPY_LEAST;
        let length = if !is_known {
            self.length
                .code(coder, given.length.wrapping_sub(COPY_LEAST))
                .saturating_add(COPY_LEAST)
        } else {
            let is_same = guess.is_some_and(|guess| guess.literals == literals && guess.offset == offset);
            // A guess of the same copy was wrong in its length.
            if !is_same
                && coder.bit(
                    &mut self.is_longest[usize::from(offset <= 3)],
                    given.length == longest,
                )
            {
                longest
            } else {
                longest.saturating_sub(self.shorter.code(coder, longest.wrapping_sub(given.length)))
            }
        };
        Ok(Some(Sequence {
            literals,
            length,
            offset,
        }))
    }

    fn literals<C: Coder>(
        &mut self,
        coder: &mut C,
        guess: Option<Sequence>,
        given: Sequence,
    ) -> Result<u32, Damaged> {
        let Some(guess) = guess else {
            return Ok(self.more.code(coder, given.literals));
        };
        let kind = match given.literals.cmp(&guess.literals) {
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Greater => 2,
        };
        match self.literals.code(coder, kind) {
            0 => Ok(guess.literals),
            1 => {
                let fewer = self
                    .fewer
                    .code(coder, guess.literals.wrapping_sub(given.literals).wrapping_sub(1));
                guess
                    .literals
                    .checked_sub(fewer)
                    .and_then(|left| left.checked_sub(1))
                    .ok_or(Damaged::Value)
            }
            _ => {
                let more = self
                    .more
                    .code(coder, given.literals.wrapping_sub(guess.literals).wrapping_sub(1));
                guess
                    .literals
                    .checked_add(more)
                    .and_then(|sum| sum.checked_add(1))
                    .ok_or(Damaged::Value)
            }
        }
    }

    fn offset<C: Coder>(
        &mut self,
        coder: &mut C,
        guess: Option<Sequence>,
        given: Sequence,
        literals: u32,
    ) -> u32 {
        if let Some(guess) = guess {
            let is_same_place = usize::from(guess.literals == literals);
            if coder.bit(
                &mut self.is_same_offset[is_same_place],
                guess.offset == given.offset,
            ) {
                return guess.offset;
            }
        }
        let kind = if given.offset <= 3 {
            given.offset as usize
        } else {
            0
        };
        match self.offset_kind[usize::from(literals == 0)].code(coder, kind) {
            0 => self.offset.code(coder, given.offset),
            kind => kind as u32,
        }
    }
}
