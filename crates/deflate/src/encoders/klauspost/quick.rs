//! Levels 1 to 6: batches of 65,535 bytes, each matched as a whole against a window of earlier ones.

use super::blocks::BlockWriter;
use super::generation::Generation;
use super::level1::Level1;
use super::level2::Level2;
use super::level3::Level3;
use super::level4::Level4;
use super::level56::Level56;
use super::place::{Numbers, Place};
use super::tokens::Tokens;
use super::window::{BATCH, Window};
use crate::encoders::Output;
use crate::format::WINDOW;

/// A last batch of fewer bytes is not matched.
const FEW: usize = 128;
/// A last batch of so many bytes or fewer is stored.
const FEWEST: usize = 32;

#[derive(Debug, Clone)]
enum Matcher {
    One(Level1),
    Two(Level2),
    Three(Level3),
    Four(Level4),
    Five(Level56<false>),
    Six(Level56<true>),
}

/// The encoder of levels 1 to 6.
#[derive(Debug, Clone)]
pub(super) struct Quick {
    matcher: Matcher,
    window: Window,
    /// Bytes that are not matched yet.
    batch: Vec<u8>,
    tokens: Tokens,
    /// How many plain bytes came, with those of `batch`.
    taken: u64,
}

impl Quick {
    /// The encoder of a level, of 5 if there is no such level.
    pub(super) fn new(level: i8, generation: Generation) -> Quick {
        Quick {
            matcher: match level {
                1 => Matcher::One(Level1::new()),
                2 => Matcher::Two(Level2::new()),
                3 => Matcher::Three(Level3::new()),
                4 => Matcher::Four(Level4::new(generation)),
                6 => Matcher::Six(Level56::new(generation)),
                _ => Matcher::Five(Level56::new(generation)),
            },
            window: Window::new(if generation < Generation::V1_12_3 { 10 } else { 5 }),
            batch: Vec::new(),
            tokens: Tokens::new(generation),
            taken: 0,
        }
    }

    /// Begins a stream after a dictionary.
    pub(super) fn restart(&mut self, dictionary: &[u8]) {
        self.window.clear();
        self.batch.clear();
        self.tokens.clear();
        self.taken = 0;
        self.learn(&dictionary[dictionary.len().saturating_sub(WINDOW)..]);
    }

    /// Goes on after a cut: matches the bytes before it again, in batches that end where those of the stream did.
    pub(super) fn resume(&mut self, plain: u64, numbers: Numbers, history: &[u8]) -> Option<()> {
        let length = usize::try_from(numbers[0]).ok()?;
        if length > self.window.room() {
            return None;
        }
        // Back from the cut, as long as the batches before were full ones.
        let mut before = length;
        let mut left = history.len().min(usize::try_from(plain).unwrap_or(usize::MAX));
        let mut batches = 0;
        while left >= BATCH
            && let Some(shorter) = self.window.length_before(before)
        {
            (before, left, batches) = (shorter, left - BATCH, batches + 1);
        }
        let part = left.min(before);
        self.window.begin_with_nothing(before - part);
        let used = &history[history.len() - BATCH * batches - part..];
        let (part, full) = used.split_at(part);
        for batch in std::iter::once(part).chain(full.chunks(BATCH)) {
            self.learn(batch);
        }
        self.taken = plain;
        Some(())
    }

    /// Fills the tables from bytes that are not written.
    fn learn(&mut self, bytes: &[u8]) {
        self.match_batch(bytes);
        self.tokens.clear();
    }

    pub(super) fn write(&mut self, mut plain: &[u8], blocks: &mut BlockWriter, output: &mut Output) {
        while !plain.is_empty() {
            if self.batch.len() == BATCH {
                self.write_batch(false, blocks, output);
            }
            let part = plain.len().min(BATCH - self.batch.len());
            self.batch.extend_from_slice(&plain[..part]);
            self.taken += part as u64;
            plain = &plain[part..];
        }
    }

    /// Writes what was taken, up to the end of a block.
    pub(super) fn flush(&mut self, blocks: &mut BlockWriter, output: &mut Output) {
        self.write_batch(true, blocks, output);
    }

    fn write_batch(&mut self, is_whole: bool, blocks: &mut BlockWriter, output: &mut Output) {
        if self.batch.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let start = self.place(self.taken - batch.len() as u64);
        if batch.len() < FEW {
            self.window.clear();
            let places = [start, self.place(self.taken)];
            if batch.len() <= FEWEST {
                blocks.write_stored(&batch, places, output);
            } else {
                blocks.write_literals(&batch, true, places, output);
            }
        } else {
            self.match_batch(&batch);
            let places = [start, self.place(self.taken)];
            if self.tokens.is_empty() {
                blocks.write_stored(&batch, places, output);
            } else if self.tokens.len() > batch.len() - batch.len() / 16 {
                blocks.write_literals(&batch, is_whole, places, output);
            } else {
                blocks.write_tokens(&self.tokens, Some(&batch), is_whole, places, output);
            }
        }
        self.tokens.clear();
        batch.clear();
        self.batch = batch;
    }

    /// A place between batches: where the window stands there.
    fn place(&self, plain: u64) -> Place {
        let mut numbers = Numbers::default();
        numbers[0] = self.window.len() as u64;
        Place {
            plain,
            matcher: Some(numbers),
        }
    }

    fn match_batch(&mut self, batch: &[u8]) {
        let less = self.window.append(batch);
        if less > 0 {
            self.lessen(less);
        }
        if batch.len() < Window::LEAST {
            return;
        }
        let text = self.window.text();
        let start = text.end() - batch.len() as i32;
        match &mut self.matcher {
            Matcher::One(level) => level.run(text, start, &mut self.tokens),
            Matcher::Two(level) => level.run(text, start, &mut self.tokens),
            Matcher::Three(level) => level.run(text, start, &mut self.tokens),
            Matcher::Four(level) => level.run(text, start, &mut self.tokens),
            Matcher::Five(level) => level.run(text, start, &mut self.tokens),
            Matcher::Six(level) => level.run(text, start, &mut self.tokens),
        }
    }

    fn lessen(&mut self, less: i32) {
        match &mut self.matcher {
            Matcher::One(level) => level.lessen(less),
            Matcher::Two(level) => level.lessen(less),
            Matcher::Three(level) => level.lessen(less),
            Matcher::Four(level) => level.lessen(less),
            Matcher::Five(level) => level.lessen(less),
            Matcher::Six(level) => level.lessen(less),
        }
    }
}
