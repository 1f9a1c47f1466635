//! klauspost/compress at its fastest level (`enc_fast.go`, 1.14 and newer): one hash table of six bytes, two places at a time.

use super::common::{common, eight, four, hash};
use super::klauspost::Walk;
use super::{Guesser, Span};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

const LOG: u32 = 15;
const STRENGTH: u32 = 6;

/// Follows the fastest level.
#[derive(Debug, Clone)]
pub(crate) struct KlauspostFast {
    table: Vec<u32>,
    walk: Walk,
    /// Whether the next thing to try is a copy right behind the last one.
    tries_behind: bool,
    /// Whether the last guess was a copy right behind another one.
    is_behind: bool,
}

impl KlauspostFast {
    pub(crate) fn new() -> KlauspostFast {
        KlauspostFast {
            table: vec![0; 1 << LOG],
            walk: Walk::default(),
            tries_behind: false,
            is_behind: false,
        }
    }

    fn insert(&mut self, text: &[u8], place: usize) {
        self.table[hash(eight(text, place), 6, LOG)] = place as u32 + 1;
    }
}

impl Guesser for KlauspostFast {
    fn begin_frame(&mut self, frame: &Frame) {
        self.walk.begin_frame(frame);
    }

    fn begin_block(&mut self, _: &[u8], span: &Span) {
        self.walk.begin_block(span, 8, 10);
        self.tries_behind = false;
    }

    fn guess(&mut self, text: &[u8]) -> Option<Sequence> {
        self.is_behind = false;
        if self.walk.place >= self.walk.limit {
            return None;
        }
        if self.tries_behind
            && let Some(sequence) = self.walk.behind(text)
        {
            self.is_behind = true;
            return Some(sequence);
        }
        let may_repeat = self.walk.may_repeat();
        while self.walk.place < self.walk.limit {
            let place = self.walk.place;
            let word = eight(text, place);
            let (first, second) = (hash(word, 6, LOG), hash(word >> 8, 6, LOG));
            let (from, from_second) = (self.table[first], self.table[second]);
            self.table[first] = place as u32 + 1;
            self.table[second] = place as u32 + 2;
            if may_repeat && let Some(from) = self.walk.again(text, place + 2, self.walk.distances[0]) {
                return Some(self.walk.repeat(text, place + 2, from, place));
            }
            for (place, from, word) in [(place, from, word), (place + 1, from_second, word >> 8)] {
                if let Some(from) = self.walk.reached(from, place)
                    && four(text, from) == word as u32
                {
                    let length = common(text, place, from, self.walk.end);
                    return Some(self.walk.copy(text, place, from, length));
                }
            }
            self.walk.place += self.walk.step(2, STRENGTH);
        }
        None
    }

    fn follow(&mut self, text: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances) {
        let (searched, could_repeat) = (self.walk.place, self.walk.may_repeat());
        let start = self.walk.follow(sequence, distances);
        let is_behind = if is_guess {
            self.is_behind
        } else {
            sequence.offset == 1 && sequence.literals == 0
        };
        if !is_guess {
            for place in searched..start.min(self.walk.limit) {
                self.insert(text, place);
            }
        }
        if is_behind {
            self.insert(text, start);
        }
        let may = if self.walk.is_single {
            self.walk.may_repeat()
        } else {
            could_repeat
        };
        self.tries_behind = !is_behind && sequence.offset > 3 && may;
    }
}
