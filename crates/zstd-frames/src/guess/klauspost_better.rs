//! klauspost/compress at its level "better" (`enc_better.go`, 1.17.7 and newer; what is indexed behind a copy was other before): a hash table of
//! eight bytes that keeps the place before, too, and one of five.

use super::common::{common, eight, four, hash};
use super::klauspost::Walk;
use super::{Guesser, Span};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

const LONG: u32 = 19;
const SHORT: u32 = 13;
const STRENGTH: u32 = 9;
/// At the end of a copy another one is looked for, whose first bytes may differ.
const SKIPPED: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// After a search that came to this place, by the last distance or another one.
    Search(usize),
    /// By the distance before, right behind another copy.
    Behind,
}

/// A copy that was found.
#[derive(Debug, Clone, Copy)]
struct Copy {
    place: usize,
    from: usize,
    length: usize,
}

/// Follows the level "better".
#[derive(Debug, Clone)]
pub(crate) struct KlauspostBetter {
    /// Each entry has the last place and the one before.
    long: Vec<[u32; 2]>,
    short: Vec<u32>,
    walk: Walk,
    tries_behind: bool,
    found: Found,
}

impl KlauspostBetter {
    pub(crate) fn new() -> KlauspostBetter {
        KlauspostBetter {
            long: vec![[0; 2]; 1 << LONG],
            short: vec![0; 1 << SHORT],
            walk: Walk::default(),
            tries_behind: false,
            found: Found::Nothing,
        }
    }

    #[inline]
    fn put_long(&mut self, hash: usize, place: usize) -> [u32; 2] {
        let entry = &mut self.long[hash];
        std::mem::replace(entry, [place as u32 + 1, entry[0]])
    }

    fn insert_long(&mut self, text: &[u8], place: usize) {
        self.put_long(hash(eight(text, place), 8, LONG), place);
    }

    fn insert_short(&mut self, text: &[u8], place: usize) {
        self.short[hash(eight(text, place), 5, SHORT)] = place as u32 + 1;
    }

    /// Every second place from `from` on, up to the last but one before `end`.
    fn index(&mut self, text: &[u8], from: usize, end: usize) {
        for place in (from..end.saturating_sub(1)).step_by(2) {
            self.insert_short(text, place + 1);
            self.insert_long(text, place);
        }
    }

    /// The longest copy of eight bytes or more for `place`, of the places in an entry; longer than `length`.
    fn longest(&self, text: &[u8], entry: [u32; 2], place: usize, word: u64, length: usize) -> Option<Copy> {
        let mut best = None;
        let mut most = length;
        for from in entry {
            if let Some(from) = self
                .walk
                .reached(from, place)
                .filter(|&from| eight(text, from) == word)
            {
                let length = common(text, place, from, self.walk.end);
                if length > most {
                    most = length;
                    best = Some(Copy { place, from, length });
                }
            }
        }
        best
    }

    /// One byte ahead of a short copy: the first place of the entry that makes a longer one.
    fn ahead(&mut self, text: &[u8], short: Copy) -> Copy {
        let place = short.place + 1;
        let word = eight(text, place);
        let entry = self.put_long(hash(word, 8, LONG), place);
        for from in entry {
            let copy = self.longest(text, [from, 0], place, word, short.length);
            if let Some(copy) = copy {
                return copy;
            }
        }
        short
    }

    /// A longer copy that goes on where this one ends.
    fn at_end(&self, text: &[u8], mut copy: Copy) -> Copy {
        let end = copy.place + copy.length;
        if end >= self.walk.limit {
            return copy;
        }
        let place = copy.place + SKIPPED;
        for entry in self.long[hash(eight(text, end), 8, LONG)] {
            let Some(from) = (entry as usize + SKIPPED)
                .checked_sub(copy.length + 1)
                .filter(|_| entry > 0)
            else {
                continue;
            };
            if self.walk.reached_place(from, place) && four(text, from) == four(text, place) {
                let length = common(text, place, from, self.walk.end);
                if length > copy.length {
                    copy = Copy { place, from, length };
                }
            }
        }
        copy
    }

    fn search(&mut self, text: &[u8]) -> Option<Sequence> {
        let may_repeat = self.walk.may_repeat();
        while self.walk.place < self.walk.limit {
            let place = self.walk.place;
            let word = eight(text, place);
            let short = hash(word, 5, SHORT);
            let from_long = self.put_long(hash(word, 8, LONG), place);
            let from_short = std::mem::replace(&mut self.short[short], place as u32 + 1);
            self.found = Found::Search(place);
            if may_repeat && let Some(from) = self.walk.again(text, place + 1, self.walk.distances[0]) {
                return Some(self.walk.repeat(text, place + 1, from, place));
            }
            let mut copy = self.longest(text, from_long, place, word, 0);
            if copy.is_none()
                && let Some(from) = self.walk.reached(from_short, place)
                && four(text, from) == word as u32
            {
                let length = common(text, place, from, self.walk.end);
                copy = Some(self.ahead(text, Copy { place, from, length }));
            }
            if let Some(copy) = copy {
                let copy = self.at_end(text, copy);
                return Some(self.walk.copy(text, copy.place, copy.from, copy.length));
            }
            self.walk.place += self.walk.step(1, STRENGTH);
        }
        self.found = Found::Nothing;
        None
    }
}

impl Guesser for KlauspostBetter {
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
        if behind >= self.walk.limit {
            return;
        }
        match self.found {
            Found::Search(place) if is_guess => self.index(text, place + 1, behind),
            Found::Behind if is_guess => {
                self.insert_long(text, start);
                self.insert_short(text, start);
                return;
            }
            _ => {
                for place in searched..start {
                    self.insert_long(text, place);
                    self.insert_short(text, place);
                }
                self.index(text, start.max(searched) + 1, behind);
            }
        }
        let may = if self.walk.is_single {
            self.walk.may_repeat()
        } else {
            could_repeat
        };
        self.tries_behind = sequence.offset > 3 && may;
    }
}
