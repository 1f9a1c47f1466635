//! Corrections of tokens: whether a token is the one that was guessed, and if not, which it is.

use super::chain::{Candidate, Wanted};
use super::damaged::Damaged;
use super::mix::Mixer;
use super::model::{Bit, Tree};
use super::parse::{Guess, Parser};
use super::range::Coder;
use super::window::{Window, common};
use xebec_deflate::format::token::{DISTANCES, Token, distance_symbol};
use xebec_deflate::format::{COPY_LENGTHS, WINDOW};

/// Candidates that a copy is looked for among.
const CANDIDATES: usize = 16;
/// Steps of a chain that are walked for them.
const STEPS: u32 = 512;
/// After so many tokens that were as guessed, the next one likely is, whatever it is.
const SURE: u32 = 24;
const LONGEST: u64 = *COPY_LENGTHS.end() as u64;

/// What was learned of an encoder's tokens.
#[derive(Debug, Clone)]
pub(super) struct TokenModel {
    /// Tokens since one was not as guessed.
    run: u32,
    /// Of the last tokens, the last one lowest: whether each was as guessed.
    history: u32,
    /// Of the last tokens: whether it was a copy.
    kinds: u32,
    sure: [Bit; 4],
    mixers: Vec<Mixer<7>>,
    by_history: Vec<Bit>,
    by_size: Vec<Bit>,
    by_next: Vec<Bit>,
    by_kinds: Vec<Bit>,
    by_byte: Vec<Bit>,
    by_why: Vec<Bit>,
    by_margin: Vec<Bit>,
    option: Box<[[Bit; 16]; 16]>,
    literal: [[Bit; 16]; 4],
    same_distance: [Bit; 8],
    nth: [[Bit; CANDIDATES + 1]; 3],
    whole: [[Bit; 16]; 4],
    less: [Tree<256>; 4],
    symbol: Tree<32>,
}

impl Default for TokenModel {
    fn default() -> TokenModel {
        TokenModel {
            run: 0,
            history: 0,
            kinds: 0,
            sure: [Bit::rare(8); 4],
            mixers: vec![Mixer::default(); 64 * 16],
            by_history: vec![Bit::rare(3); 1 << 12],
            by_size: vec![Bit::rare(3); 1 << 12],
            by_next: vec![Bit::rare(3); 1 << 12],
            by_kinds: vec![Bit::rare(3); 1 << 12],
            by_byte: vec![Bit::rare(3); 1 << 16],
            by_why: vec![Bit::rare(3); 1 << 12],
            by_margin: vec![Bit::rare(3); 1 << 12],
            option: Box::default(),
            literal: Default::default(),
            same_distance: Default::default(),
            nth: Default::default(),
            whole: Default::default(),
            less: Default::default(),
            symbol: Tree::default(),
        }
    }
}

/// A length in few steps: exactly up to 10, then by eighths of powers of two.
fn step(length: u32) -> usize {
    match length {
        0..=10 => length as usize,
        11..=16 => 11,
        17..=32 => 12,
        33..=64 => 13,
        65..=257 => 14,
        _ => 15,
    }
}

/// A distance in few steps.
fn far(distance: u32) -> usize {
    (32 - distance.leading_zeros()) as usize
}

/// Why a token was guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// No copy was found.
    NoCopy,
    /// One was found, and a better one a byte later.
    Later,
    /// One was found.
    Copy,
}

fn token_of(candidate: Candidate) -> Token {
    Token::copy(candidate.length as usize, candidate.distance as usize)
}

impl TokenModel {
    /// Codes the token at `place`. The window has a byte there.
    #[inline]
    pub(super) fn code<C: Coder>(
        &mut self,
        coder: &mut C,
        window: &Window,
        parser: &mut Parser,
        place: u64,
        guess: &Guess,
        actual: Token,
    ) -> Result<Token, Damaged> {
        let (bytes, at) = window.at(place);
        let byte = bytes[at];
        let guessed = guess.taken().map_or(Token::literal(byte), token_of);
        let is_wrong = self.is_wrong(
            coder,
            guess,
            byte,
            bytes.get(at + 1).copied().unwrap_or_default(),
            actual != guessed,
        );
        let token = if is_wrong {
            self.other(coder, window, parser, place, guess, actual)?
        } else {
            guessed
        };
        self.run = if is_wrong { 0 } else { self.run.saturating_add(1) };
        self.history = self.history << 1 | u32::from(is_wrong);
        self.kinds = self.kinds << 1 | u32::from(token.copy_length() > 0);
        Ok(token)
    }

    fn is_wrong(
        &mut self,
        coder: &mut impl Coder,
        guess: &Guess,
        byte: u8,
        next: u8,
        is_wrong: bool,
    ) -> bool {
        let why = match (guess.copy, guess.later) {
            (None, _) => Why::NoCopy,
            (_, Some(_)) => Why::Later,
            _ => Why::Copy,
        };
        if self.run >= SURE {
            return self.sure[why as usize].code(coder, is_wrong);
        }
        let copy = guess.copy.unwrap_or_default();
        let later = guess.later.unwrap_or_default();
        let (size, distance) = (step(copy.length), far(copy.distance));
        let why = why as usize;
        let bits = [
            &mut self.by_history[(self.history as usize & 0xff) << 2 | why],
            &mut self.by_size[(size << 5 | distance) << 2 | why],
            &mut self.by_next[(size << 4 | step(later.length)) << 2 | why],
            &mut self.by_kinds[((self.kinds as usize & 0xf) << 4 | self.history as usize & 0x7) << 2 | why],
            &mut self.by_byte[(usize::from(byte) << 4 | size) << 2 | why],
            &mut self.by_why[(usize::from(next) << 2 | self.history as usize & 3) << 2 | why],
            &mut self.by_margin
                [((usize::from(guess.margin) << 4 | size) << 2 | self.history as usize & 3) << 2 | why],
        ];
        self.mixers[((self.history as usize & 0xf) << 2 | why) << 4 | usize::from(guess.margin)]
            .code(coder, bits, is_wrong)
    }

    /// Codes a token that is not the one that was guessed.
    #[inline(never)]
    fn other<C: Coder>(
        &mut self,
        coder: &mut C,
        window: &Window,
        parser: &mut Parser,
        place: u64,
        guess: &Guess,
        actual: Token,
    ) -> Result<Token, Damaged> {
        let (bytes, at) = window.at(place);
        if let Some(token) = self.option(coder, window, parser, place, actual) {
            return Ok(token);
        }
        if let Some(taken) = guess.taken() {
            let literal = &mut self.literal[self.history as usize & 3][step(taken.length)];
            if literal.code(coder, actual.copy_length() == 0) {
                return Ok(Token::literal(bytes[at]));
            }
        }
        let is_copy = actual.copy_length() > 0;
        let actual_distance = if is_copy { actual.distance() as u32 } else { 1 };
        let (distance, how) = self.distance(coder, window, parser, place, guess, actual_distance);
        let most = (window.end() - place).min(LONGEST) as usize;
        if distance == 0 || distance as usize > at.min(WINDOW) {
            return Err(Damaged::Copy);
        }
        let whole = common(bytes, at - distance as usize, at, most);
        if whole < *COPY_LENGTHS.start() {
            return Err(Damaged::Copy);
        }
        let is_guess = guess.taken()
            == Some(Candidate {
                length: whole as u32,
                distance,
            });
        if !is_guess && self.whole[how][step(whole as u32)].code(coder, actual.copy_length() == whole) {
            return Ok(Token::copy(whole, distance as usize));
        }
        let less = self.less[how].code(
            coder,
            (whole.wrapping_sub(actual.copy_length()).wrapping_sub(1)) % 256,
        ) + 1;
        match whole.checked_sub(less) {
            Some(length) if length >= *COPY_LENGTHS.start() => Ok(Token::copy(length, distance as usize)),
            _ => Err(Damaged::Copy),
        }
    }

    /// Codes which of the cheapest options it is, if it is one.
    fn option(
        &mut self,
        coder: &mut impl Coder,
        window: &Window,
        parser: &Parser,
        place: u64,
        actual: Token,
    ) -> Option<Token> {
        let cheapest = parser.cheapest.as_ref()?;
        let mut options = [(0, Token::literal(0)); 16];
        let count = cheapest.options(window, place, &mut options);
        let guessed = cheapest.best(window, place);
        let others = options[..count].iter().filter(|(_, token)| *token != guessed);
        for (nth, &(cost, token)) in others.enumerate() {
            if self.option[nth][cost.min(15) as usize].code(coder, token == actual) {
                return Some(token);
            }
        }
        None
    }

    /// Codes a distance, and tells how it was found.
    fn distance<C: Coder>(
        &mut self,
        coder: &mut C,
        window: &Window,
        parser: &mut Parser,
        place: u64,
        guess: &Guess,
        actual: u32,
    ) -> (u32, usize) {
        if let Some(copy) = guess.copy {
            let context = usize::from(guess.later.is_some()) << 1 | usize::from(copy.length > 8);
            if self.same_distance[context].code(coder, copy.distance == actual) {
                return (copy.distance, 0);
            }
        }
        let mut candidates = [Candidate::default(); CANDIDATES];
        let mut count = 0;
        let wanted = Wanted {
            longer: 2,
            depth: STEPS,
            nice: LONGEST as u32,
            most: (window.end() - place).min(LONGEST) as u32,
        };
        parser.chains.walk(window, place, wanted, |candidate| {
            if count == CANDIDATES {
                candidates.rotate_left(1);
                count -= 1;
            }
            candidates[count] = candidate;
            count += 1;
        });
        let copy = guess.copy.map_or(0, |copy| copy.distance);
        let context = match guess.copy {
            None => 0,
            Some(_) if guess.later.is_none() => 1,
            Some(_) => 2,
        };
        let others = candidates[..count]
            .iter()
            .rev()
            .filter(|candidate| candidate.distance != copy);
        for (nth, candidate) in others.enumerate() {
            if self.nth[context][nth].code(coder, candidate.distance == actual) {
                return (candidate.distance, 1 + usize::from(nth > 0));
            }
        }
        (self.raw(coder, actual), 3)
    }

    fn raw(&mut self, coder: &mut impl Coder, actual: u32) -> u32 {
        let symbol = self.symbol.code(coder, distance_symbol(actual as usize));
        let Some(&(first, extra)) = DISTANCES.get(symbol) else {
            return 0;
        };
        let more = actual.wrapping_sub(u32::from(first)) & ((1 << extra) - 1);
        u32::from(first) + coder.code_even(more, u32::from(extra))
    }
}
