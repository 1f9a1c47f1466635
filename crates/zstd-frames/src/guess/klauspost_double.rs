//! klauspost/compress at its default level (`enc_dfast.go`, 1.14 and newer): two hash tables, of eight bytes and of five.

use super::common::{common, eight, four, hash};
use super::klauspost::Walk;
use super::{Guesser, Span};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

const LONG: u32 = 17;
const SHORT: u32 = 15;
const STRENGTH: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// By the last distance, one byte ahead of a search.
    Repeat,
    Search,
    /// By the distance before, right behind another copy.
    Behind,
}

/// Follows the default level.
#[derive(Debug, Clone)]
pub(crate) struct KlauspostDouble {
    long: Vec<u32>,
    short: Vec<u32>,
    walk: Walk,
    /// Whether the next thing to try is a copy right behind the last one.
    tries_behind: bool,
    found: Found,
}

impl KlauspostDouble {
    pub(crate) fn new() -> KlauspostDouble {
        KlauspostDouble {
            long: vec![0; 1 << LONG],
            short: vec![0; 1 << SHORT],
            walk: Walk::default(),
            tries_behind: false,
            found: Found::Nothing,
        }
    }

    fn insert_long(&mut self, text: &[u8], place: usize) {
        self.long[hash(eight(text, place), 8, LONG)] = place as u32 + 1;
    }

    fn insert_short(&mut self, text: &[u8], place: usize) {
        self.short[hash(eight(text, place), 5, SHORT)] = place as u32 + 1;
    }

    fn search(&mut self, text: &[u8]) -> Option<Sequence> {
        let may_repeat = self.walk.may_repeat();
        while self.walk.place < self.walk.limit {
            let place = self.walk.place;
            let word = eight(text, place);
            let (long, short) = (hash(word, 8, LONG), hash(word, 5, SHORT));
            let (from_long, from_short) = (self.long[long], self.short[short]);
            self.long[long] = place as u32 + 1;
            self.short[short] = place as u32 + 1;
            if may_repeat && let Some(from) = self.walk.again(text, place + 1, self.walk.distances[0]) {
                self.found = Found::Repeat;
                return Some(self.walk.repeat(text, place + 1, from, place));
            }
            self.found = Found::Search;
            let is_same = |from: usize, word: u64| four(text, from) == word as u32;
            if let Some(from) = self
                .walk
                .reached(from_long, place)
                .filter(|&from| is_same(from, word))
            {
                let length = common(text, place, from, self.walk.end);
                return Some(self.walk.copy(text, place, from, length));
            }
            if let Some(from) = self
                .walk
                .reached(from_short, place)
                .filter(|&from| is_same(from, word))
            {
                let word = eight(text, place + 1);
                let ahead = hash(word, 8, LONG);
                let from_ahead = self.walk.reached(self.long[ahead], place + 1);
                self.long[ahead] = place as u32 + 2;
                let (place, from) = match from_ahead.filter(|&from| is_same(from, word)) {
                    Some(from) => (place + 1, from),
                    None => (place, from),
                };
                let length = common(text, place, from, self.walk.end);
                return Some(self.walk.copy(text, place, from, length));
            }
            self.walk.place += self.walk.step(1, STRENGTH);
        }
        self.found = Found::Nothing;
        None
    }
}

impl Guesser for KlauspostDouble {
    fn begin_frame(&mut self, frame: &Frame) {
        self.walk.begin_frame(frame);
    }

    fn begin_block(&mut self, _: &[u8], span: &Span) {
        self.walk.begin_block(span, 10, 16);
        self.tries_behind = false;
        self.found = Found::Nothing;
    }

    fn guess(&mut self, text: &[u8]) -> Option<Sequence> {
        self.found = Found::Nothing;
        if self.walk.place >= self.walk.limit {
            return None;
        }
        if self.tries_behind
            && let Some(sequence) = self.walk.behind(text)
        {
            self.found = Found::Behind;
            return Some(sequence);
        }
        self.search(text)
    }

    fn follow(&mut self, text: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances) {
        let (searched, could_repeat) = (self.walk.place, self.walk.may_repeat());
        let start = self.walk.follow(sequence, distances);
        let behind = self.walk.place;
        let found = match (is_guess, sequence.offset, sequence.literals) {
            (true, ..) => self.found,
            (false, 1, 0) => Found::Behind,
            (false, 1..=3, _) => Found::Repeat,
            _ => Found::Search,
        };
        if !is_guess {
            for place in searched..start.min(self.walk.limit) {
                self.insert_long(text, place);
                self.insert_short(text, place);
            }
        }
        match found {
            Found::Repeat | Found::Nothing => self.tries_behind = false,
            Found::Search => {
                if behind < self.walk.limit {
                    self.insert_long(text, start + 1);
                    self.insert_long(text, behind - 2);
                    self.insert_short(text, start + 2);
                    self.insert_short(text, behind - 1);
                }
                self.tries_behind = if self.walk.is_single {
                    self.walk.may_repeat()
                } else {
                    could_repeat
                };
            }
            Found::Behind => {
                let place = behind - sequence.length as usize;
                self.insert_long(text, place);
                // Where a frame is one block, the encoder takes the hash of the place before.
                if self.walk.is_single && self.found == Found::Behind {
                    self.short[hash(eight(text, place - 1), 5, SHORT)] = place as u32 + 1;
                } else {
                    self.insert_short(text, place);
                }
                self.tries_behind = true;
            }
        }
    }
}
