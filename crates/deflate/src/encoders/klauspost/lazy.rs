//! Levels 7 to 9: chains, and a copy gives way to a longer one that begins a byte later, or that ends where the bytes after it are known.

use super::blocks::BlockWriter;
use super::chains::{AHEAD, Chains, Copy, Effort, LONGEST, SHORTEST, SIZE};
use super::generation::Generation;
use super::lengths::code_lengths;
use super::place::{Numbers, Place};
use super::tokens::Tokens;
use crate::encoders::Output;
use crate::format::WINDOW;

/// The tokens of a block.
const BLOCK: usize = 32_768;
/// How many bytes of a copy may differ at its beginning when another one is looked for by its end.
const PASSED: usize = 2;
/// From this length of chains on, a copy is weighed against literals.
const LONG_CHAIN: usize = 100;

/// The rest of the work at a byte, after a block was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing: the next byte begins.
    Nothing,
    /// All after a literal was written.
    Literal,
    /// So many more bytes are skipped, this one with them.
    Skip(usize),
}

/// The encoder of levels 7 to 9.
#[derive(Debug, Clone)]
pub(super) struct Lazy {
    effort: Effort,
    /// A copy of this length is not compared with one that begins a byte later.
    lazy: usize,
    generation: Generation,
    chains: Chains,
    /// The index of the next byte.
    at: usize,
    /// The copy that was found at the byte before.
    found: Copy,
    /// Whether the byte before is not written yet.
    is_pending: bool,
    /// How many literals there were since the last copy. It overflows, and then counts from zero.
    quiet: u16,
    /// Where places end that can be put into chains.
    insert_end: usize,
    /// Where the block began, if the window still has that.
    block_start: Option<usize>,
    /// The same place, and the state there.
    start: Place,
    tokens: Tokens,
    /// How many plain bytes came.
    taken: u64,
    /// Where the step began which the encoder is in.
    step_start: Option<usize>,
    rest: Rest,
    /// Places from here on are not in chains since their bytes were not all there.
    uninserted: Option<usize>,
}

impl Lazy {
    /// The encoder of a level, of 9 if there is no such level.
    pub(super) fn new(level: i8, generation: Generation) -> Lazy {
        let (lazy, nice, chain) = match level {
            7 => (12, 16, 24),
            8 => (30, 40, 64),
            _ => (258, 258, 1024),
        };
        Lazy {
            effort: Effort { nice, chain },
            lazy,
            generation,
            chains: Chains::new(),
            at: 0,
            found: Copy::NONE,
            is_pending: false,
            quiet: 0,
            insert_end: 0,
            block_start: Some(0),
            start: Place {
                plain: 0,
                matcher: None,
            },
            tokens: Tokens::new(generation),
            taken: 0,
            step_start: None,
            rest: Rest::Nothing,
            uninserted: None,
        }
    }

    /// Begins a stream after a dictionary.
    pub(super) fn restart(&mut self, dictionary: &[u8]) {
        self.chains.restart();
        self.tokens.clear();
        let dictionary = &dictionary[dictionary.len().saturating_sub(WINDOW)..];
        self.at = self.chains.fill(dictionary);
        self.chains.insert_all(0..self.at.saturating_sub(SHORTEST - 1));
        self.found = Copy::NONE;
        self.is_pending = false;
        self.quiet = 0;
        self.taken = 0;
        let is_own = self.generation < Generation::V1_20_0;
        self.block_start = Some(if is_own { 0 } else { self.at });
        self.step_start = None;
        self.rest = Rest::Nothing;
        self.uninserted = None;
        self.start = self.place(Rest::Nothing);
    }

    /// Goes on after a cut: puts the bytes before it into the window again, where they were.
    pub(super) fn resume(&mut self, plain: u64, numbers: Numbers, history: &[u8]) -> Option<()> {
        let [at, step, rest, is_pending, length, distance, quiet] = numbers;
        let number = |number: u64| usize::try_from(number).ok();
        self.at = number(at).filter(|&at| at <= SIZE)?;
        self.step_start = match step {
            0 => None,
            step => Some(self.at.checked_sub(number(step - 1)?)?),
        };
        self.rest = match rest {
            0 => Rest::Nothing,
            1 => Rest::Literal,
            rest => Rest::Skip(number(rest - 2)?),
        };
        self.is_pending = is_pending != 0;
        self.found = Copy {
            length: number(length).filter(|length| (SHORTEST - 1..=LONGEST).contains(length))?,
            distance: number(distance).filter(|&distance| distance <= WINDOW)?,
        };
        self.quiet = u16::try_from(quiet).ok()?;
        let known = history
            .len()
            .min(self.at)
            .min(usize::try_from(plain).unwrap_or(SIZE));
        self.chains.fill(&vec![0; self.at - known]);
        self.chains.fill(&history[history.len() - known..]);
        let end = self.at.saturating_sub(SHORTEST - 1).max(self.at - known);
        self.chains.insert_all(self.at - known..end);
        self.uninserted = Some(end);
        self.block_start = Some(self.at);
        self.taken = plain;
        self.start = self.place(self.rest);
        (self.is_sound() && (!self.is_pending || self.at > 0)).then_some(())
    }

    /// Whether a copy was found only where one can have been: at the byte after a literal, and then there are not many literals yet.
    fn is_sound(&self) -> bool {
        let can_be = self.rest == Rest::Literal
            && usize::from(self.quiet) <= self.effort.chain
            && self.found.length >= SHORTEST
            && (1..=self.at).contains(&self.found.distance);
        self.found == Copy::NONE || can_be
    }

    pub(super) fn write(&mut self, mut plain: &[u8], blocks: &mut BlockWriter, output: &mut Output) {
        while !plain.is_empty() {
            if self.chains.end() == SIZE {
                self.step(false, blocks, output);
            }
            // After a cut the step before it ends first: it saw no more bytes than a window.
            if self.at >= SIZE - AHEAD && self.step_start.is_none() {
                self.chains.shift();
                self.at -= WINDOW;
                self.block_start = self.block_start.and_then(|start| start.checked_sub(WINDOW));
            }
            let taken = self.chains.fill(plain);
            self.taken += taken as u64;
            plain = &plain[taken..];
        }
    }

    /// Writes what was taken, up to the end of a block.
    pub(super) fn flush(&mut self, blocks: &mut BlockWriter, output: &mut Output) {
        self.step(true, blocks, output);
    }

    /// Makes tokens of the bytes of the window, of all of them if `is_whole`.
    fn step(&mut self, is_whole: bool, blocks: &mut BlockWriter, output: &mut Output) {
        let end = self.chains.end();
        if self.step_start.is_none() && end - self.at < AHEAD && !is_whole {
            return;
        }
        let start = *self.step_start.get_or_insert(self.at);
        if end > start && self.effort.chain > LONG_CHAIN {
            // Before, the count went over the whole window, and overflowed if all its bytes were the same.
            let counted = if self.generation < Generation::V1_18_1 {
                SIZE
            } else {
                WINDOW
            };
            self.chains.measure(start, counted, |frequencies| {
                let mut lengths = [0; 256];
                code_lengths(frequencies, 15, &mut lengths);
                lengths
            });
        }
        self.insert_end = (end + 1).saturating_sub(SHORTEST);
        let mut target = Target {
            is_whole,
            blocks,
            output,
        };
        self.finish_rest(&mut target);
        while end - self.at >= AHEAD || is_whole && end > self.at {
            self.byte(&mut target);
        }
        if is_whole {
            if std::mem::take(&mut self.is_pending) {
                self.tokens.push_literal(self.chains.bytes()[self.at - 1]);
            }
            self.step_start = None;
            if !self.tokens.is_empty() {
                self.write_block(Some(Rest::Nothing), &mut target);
            }
        }
        self.step_start = None;
    }

    /// After a cut: does what was left to do there.
    fn finish_rest(&mut self, target: &mut Target<'_>) {
        let Some(first) = self.uninserted.take() else {
            return;
        };
        let rest = self.possible_rest();
        let end = self.at + usize::from(rest == Rest::Literal);
        self.chains.insert_all(first..end.min(self.insert_end));
        match rest {
            Rest::Nothing => {}
            Rest::Literal => self.after_literal(target),
            Rest::Skip(left) => {
                self.skip_one();
                self.skip(left.saturating_sub(1), target);
            }
        }
    }

    /// The rest of the work at the cut; nothing, if the cut says what cannot be.
    fn possible_rest(&mut self) -> Rest {
        let rest = std::mem::replace(&mut self.rest, Rest::Nothing);
        if self.found != Copy::NONE && self.at + self.found.length > self.chains.end() {
            self.found = Copy::NONE;
        }
        if self.at < self.chains.end() {
            rest
        } else {
            Rest::Nothing
        }
    }

    /// Looks for a copy at the next byte, and writes the copy or the literal before it.
    fn byte(&mut self, target: &mut Target<'_>) {
        let last = self.insert_here();
        let before = std::mem::replace(&mut self.found, Copy::NONE);
        let ahead = self.chains.end() - self.at;
        let nearest = self.at.saturating_sub(WINDOW) as i32;
        if last >= nearest && ahead > before.length && before.length < self.lazy {
            let by_gain = self.effort.chain > LONG_CHAIN;
            if let Some(copy) = self.chains.search(self.at, last, self.effort, by_gain) {
                self.found = copy;
            }
        }
        if before.length >= SHORTEST && self.found.length <= before.length {
            self.put_copy(before, target);
            return;
        }
        if self.found.length >= SHORTEST {
            self.quiet = 0;
        }
        if self.is_pending {
            self.quiet = self.quiet.wrapping_add(1);
            self.put_literal(self.at - 1, Some(Rest::Literal), target);
            self.after_literal(target);
        } else {
            self.at += 1;
            self.is_pending = true;
        }
    }

    /// Adds the next byte to its chain. Returns the place before it in the chain, negative if there is none.
    #[inline]
    fn insert_here(&mut self) -> i32 {
        if self.at < self.insert_end {
            self.chains.insert(self.at)
        } else {
            -1
        }
    }

    fn skip_one(&mut self) {
        self.insert_here();
        self.at += 1;
    }

    /// Goes on to the next byte. After many literals without a copy, some bytes are passed over.
    fn after_literal(&mut self, target: &mut Target<'_>) {
        self.at += 1;
        let quiet = usize::from(self.quiet);
        if quiet > self.effort.chain {
            self.skip(1 + (quiet - self.effort.chain) / 64, target);
        }
    }

    /// Writes so many literals, and the one after them.
    fn skip(&mut self, mut left: usize, target: &mut Target<'_>) {
        while left > 0 && self.at + 1 < self.chains.end() {
            self.put_literal(self.at - 1, Some(Rest::Skip(left)), target);
            self.skip_one();
            left -= 1;
        }
        self.is_pending = false;
        self.put_literal(self.at - 1, Some(Rest::Nothing), target);
    }

    /// Writes the copy that was found at the byte before, or a longer one with the same end or a later one.
    fn put_copy(&mut self, copy: Copy, target: &mut Target<'_>) {
        let first = self.at - 1;
        let copy = match self.better_by_end(first, copy) {
            Some((better, passed)) => {
                for byte in first..first + passed {
                    self.put_literal(byte, None, target);
                    self.at += 1;
                    self.insert_here();
                }
                better
            }
            None => copy,
        };
        self.tokens.push_copy(copy.length, copy.distance);
        let next = self.at + copy.length - 1;
        let places = self.at + 1..next.min(self.insert_end);
        self.chains.insert_all(places);
        self.at = next;
        self.found = Copy::NONE;
        self.is_pending = false;
        self.quiet = 0;
        if self.tokens.len() == BLOCK {
            self.write_block(Some(Rest::Nothing), target);
        }
    }

    /// Looks for a longer copy by what follows this one, which begins at `first`. Returns it, and how many bytes before it remain literals.
    fn better_by_end(&self, first: usize, copy: Copy) -> Option<(Copy, usize)> {
        let follows = first + copy.length;
        if copy.length >= LONGEST - PASSED || follows >= self.insert_end {
            return None;
        }
        let nearest = self.at.saturating_sub(WINDOW);
        let from = usize::try_from(self.chains.like(follows) - copy.length as i32).ok()?;
        if from + copy.distance == first || from <= nearest + PASSED {
            return None;
        }
        let bytes = self.chains.bytes();
        let end = first + (self.chains.end() - self.at).min(LONGEST + PASSED);
        let here = bytes.get(first + PASSED..end)?;
        let mut length = super::window::common(here, bytes.get(from + PASSED..)?) as usize;
        if length <= copy.length {
            return None;
        }
        let mut passed = PASSED;
        while passed > 0 && length < LONGEST && bytes[first + passed - 1] == bytes[from + passed - 1] {
            length += 1;
            passed -= 1;
        }
        let distance = first.checked_sub(from)?;
        Some((Copy { length, distance }, passed))
    }

    /// Adds a literal, and writes the block if it is full. `rest` is what is left to do then; `None` if a cut cannot tell it.
    fn put_literal(&mut self, at: usize, rest: Option<Rest>, target: &mut Target<'_>) {
        self.tokens.push_literal(self.chains.bytes()[at]);
        if self.tokens.len() == BLOCK {
            self.write_block(rest, target);
        }
    }

    /// Writes the tokens, which go up to the next byte.
    fn write_block(&mut self, rest: Option<Rest>, target: &mut Target<'_>) {
        let end = match rest {
            Some(rest) => self.place(rest),
            None => Place {
                matcher: None,
                ..self.place(Rest::Nothing)
            },
        };
        let plain = self
            .block_start
            .and_then(|start| self.chains.bytes().get(start..self.at));
        target.blocks.write_tokens(
            &self.tokens,
            plain,
            target.is_whole,
            [self.start, end],
            target.output,
        );
        self.tokens.clear();
        self.block_start = Some(self.at);
        self.start = end;
    }

    /// The place before the next byte.
    fn place(&self, rest: Rest) -> Place {
        let step = self.step_start.map_or(0, |start| 1 + self.at - start);
        let rest = match rest {
            Rest::Nothing => 0,
            Rest::Literal => 1,
            Rest::Skip(left) => 2 + left,
        };
        let numbers = [
            self.at,
            step,
            rest,
            usize::from(self.is_pending),
            self.found.length,
            self.found.distance,
            usize::from(self.quiet),
        ];
        Place {
            plain: self.taken - (self.chains.end() - self.at) as u64,
            matcher: Some(numbers.map(|number| number as u64)),
        }
    }
}

/// Where blocks are written, and whether they end with their tokens.
struct Target<'a> {
    is_whole: bool,
    blocks: &'a mut BlockWriter,
    output: &'a mut Output,
}
