//! libzstd's strategy `dfast` (`zstd_double_fast.c`): two hash tables, of eight bytes and of fewer.

use super::common::{common, common_before, eight, four, hash};
use super::libzstd::{Input, Parameters, Reach, two_distances};
use super::{Guesser, Span};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

/// Without a copy for so many bytes, steps become longer by one.
const STRENGTH: u32 = 8;

/// How the last guess was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A copy after a search that came to this place; a hash and place to be written down if the copy is made.
    Search(usize, Option<(usize, usize)>),
    /// A copy by the second last distance, right behind another copy.
    Again,
}

/// Follows `dfast`.
#[derive(Debug, Clone)]
pub(crate) struct Double {
    level: i8,
    input: Input,
    /// Whether a long copy one byte ahead of a short one is taken even if it is no longer, as before 1.5.7.
    is_old: bool,
    parameters: Parameters,
    /// Places in the text, one more than they are; 0: none.
    long: Vec<u32>,
    short: Vec<u32>,
    reach: Reach,
    end: usize,
    /// The end of the last copy, and where the search goes on.
    anchor: usize,
    place: usize,
    distances: [usize; 2],
    is_behind_copy: bool,
    found: Found,
}

impl Double {
    pub(crate) fn new(level: i8, input: Input, is_old: bool) -> Double {
        let mut double = Double {
            level,
            input,
            is_old,
            parameters: Parameters::of(level, &Frame::default()),
            long: Vec::new(),
            short: Vec::new(),
            reach: Reach::default(),
            end: 0,
            anchor: 0,
            place: 0,
            distances: [0; 2],
            is_behind_copy: false,
            found: Found::Nothing,
        };
        double.begin_frame(&Frame::default());
        double
    }

    fn long_hash(&self, eight: u64) -> usize {
        hash(eight, 8, self.parameters.hash_log)
    }

    fn short_hash(&self, eight: u64) -> usize {
        hash(eight, self.parameters.least, self.parameters.chain_log)
    }

    fn insert_long(&mut self, text: &[u8], place: usize) {
        let hash = self.long_hash(eight(text, place));
        self.long[hash] = place as u32 + 1;
    }

    fn insert_short(&mut self, text: &[u8], place: usize) {
        let hash = self.short_hash(eight(text, place));
        self.short[hash] = place as u32 + 1;
    }

    /// The last place that is searched.
    fn limit(&self) -> Option<usize> {
        self.end.checked_sub(8)
    }

    /// The sequence of a copy found at `place` from `from`, of `length` bytes, longer by what is before it.
    fn sequence(&self, text: &[u8], place: usize, from: usize, length: usize) -> Sequence {
        let low = if from < self.reach.prefix {
            self.reach.low
        } else {
            self.reach.prefix
        };
        let before = common_before(text, place, from, self.anchor, low);
        Sequence {
            literals: (place - before - self.anchor) as u32,
            length: (length + before) as u32,
            offset: (place - from) as u32 + 3,
        }
    }

    /// Whether four bytes at `place` are the same at a distance.
    fn is_again(&self, text: &[u8], place: usize, distance: usize) -> bool {
        let Some(from) = place.checked_sub(distance) else {
            return false;
        };
        if distance == 0 || four(text, from) != four(text, place) {
            return false;
        }
        !self.reach.has_two_parts()
            || (from >= self.reach.low
                && !(self.reach.prefix.saturating_sub(3)..self.reach.prefix).contains(&from))
    }

    /// A copy by the last distance, one byte ahead.
    fn next_again(&mut self, text: &[u8], place: usize) -> Option<Sequence> {
        let distance = self.distances[0];
        if !self.is_again(text, place + 1, distance) {
            return None;
        }
        self.found = Found::Search(place, None);
        Some(Sequence {
            literals: (place + 1 - self.anchor) as u32,
            length: common(text, place + 1, place + 1 - distance, self.end) as u32,
            offset: 1,
        })
    }

    /// The search where all that may be reached is in one buffer.
    fn search(&mut self, text: &[u8], limit: usize) -> Option<Sequence> {
        let least = self.reach.low as u32 + 1;
        // Of a guess that was wrong, the tables have places ahead.
        let is_near = |from: u32, place: usize| from > least && from as usize <= place;
        let (mut step, mut ahead) = (1, self.place + 1);
        let mut next_step = self.place + (1 << STRENGTH);
        if ahead > limit {
            return None;
        }
        let mut word = eight(text, self.place);
        let mut hash = self.long_hash(word);
        let mut from_long = self.long[hash];
        loop {
            let place = self.place;
            let short = self.short_hash(word);
            let from_short = self.short[short];
            self.long[hash] = place as u32 + 1;
            self.short[short] = place as u32 + 1;
            if let Some(sequence) = self.next_again(text, place) {
                return Some(sequence);
            }
            let word_ahead = eight(text, ahead);
            let hash_ahead = self.long_hash(word_ahead);
            let later = (step < 4).then_some((hash_ahead, ahead));
            if is_near(from_long, place) && eight(text, from_long as usize - 1) == word {
                self.found = Found::Search(place, later);
                let from = from_long as usize - 1;
                return Some(self.sequence(text, place, from, common(text, place, from, self.end)));
            }
            let from_ahead = self.long[hash_ahead];
            if is_near(from_short, place) && four(text, from_short as usize - 1) == word as u32 {
                self.found = Found::Search(place, later);
                let from = from_short as usize - 1;
                let length = common(text, place, from, self.end);
                if is_near(from_ahead, ahead) && eight(text, from_ahead as usize - 1) == word_ahead {
                    let from = from_ahead as usize - 1;
                    let length_ahead = common(text, ahead, from, self.end);
                    if length_ahead > length || self.is_old {
                        return Some(self.sequence(text, ahead, from, length_ahead));
                    }
                }
                return Some(self.sequence(text, place, from, length));
            }
            if ahead >= next_step {
                step += 1;
                next_step += 1 << STRENGTH;
            }
            self.place = ahead;
            ahead += step;
            (word, hash, from_long) = (word_ahead, hash_ahead, from_ahead);
            if ahead > limit {
                return None;
            }
        }
    }

    /// The search where part of what may be reached is outside of the buffer.
    fn search_two_parts(&mut self, text: &[u8], limit: usize) -> Option<Sequence> {
        let least = self.reach.low as u32 + 1;
        // Of a guess that was wrong, the tables have places ahead.
        let is_near = |from: u32, place: usize| from > least && from as usize <= place;
        while self.place < limit {
            let place = self.place;
            let word = eight(text, place);
            let (long, short) = (self.long_hash(word), self.short_hash(word));
            let (from_long, from_short) = (self.long[long], self.short[short]);
            self.long[long] = place as u32 + 1;
            self.short[short] = place as u32 + 1;
            if let Some(sequence) = self.next_again(text, place) {
                return Some(sequence);
            }
            self.found = Found::Search(place, None);
            if is_near(from_long, place) && eight(text, from_long as usize - 1) == word {
                let from = from_long as usize - 1;
                return Some(self.sequence(text, place, from, common(text, place, from, self.end)));
            }
            if is_near(from_short, place) && four(text, from_short as usize - 1) == word as u32 {
                let word = eight(text, place + 1);
                let hash = self.long_hash(word);
                let from_ahead = self.long[hash];
                self.long[hash] = place as u32 + 2;
                let (place, from) =
                    if is_near(from_ahead, place + 1) && eight(text, from_ahead as usize - 1) == word {
                        (place + 1, from_ahead as usize - 1)
                    } else {
                        (place, from_short as usize - 1)
                    };
                return Some(self.sequence(text, place, from, common(text, place, from, self.end)));
            }
            self.place += ((place - self.anchor) >> STRENGTH) + 1;
        }
        self.found = Found::Nothing;
        None
    }
}

impl Guesser for Double {
    fn begin_frame(&mut self, frame: &Frame) {
        self.parameters = Parameters::of(self.level, frame);
        let (long, short) = (1 << self.parameters.hash_log, 1 << self.parameters.chain_log);
        if (self.long.len(), self.short.len()) != (long, short) {
            self.long = vec![0; long];
            self.short = vec![0; short];
        }
    }

    fn begin_block(&mut self, text: &[u8], span: &Span) {
        self.reach = Reach::of(span, &self.parameters, self.input);
        if let Some(first) = self.reach.job {
            self.long.fill(0);
            self.short.fill(0);
            for place in (first..span.start.saturating_sub(9)).step_by(3) {
                self.insert_long(text, place);
                self.insert_short(text, place);
            }
        }
        self.end = span.end;
        self.anchor = span.start;
        self.place = span.start + usize::from(span.position == 0);
        self.distances = two_distances(span, self.place, &self.reach, self.parameters.window_log);
        self.is_behind_copy = false;
        self.found = Found::Nothing;
    }

    fn guess(&mut self, text: &[u8]) -> Option<Sequence> {
        self.found = Found::Nothing;
        let limit = self.limit()?;
        if self.is_behind_copy && self.place <= limit && self.is_again(text, self.place, self.distances[1]) {
            self.found = Found::Again;
            return Some(Sequence {
                literals: 0,
                length: common(text, self.place, self.place - self.distances[1], self.end) as u32,
                offset: 1,
            });
        }
        if self.reach.has_two_parts() {
            self.search_two_parts(text, limit)
        } else {
            self.search(text, limit)
        }
    }

    fn follow(&mut self, text: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances) {
        let start = self.anchor + sequence.literals as usize;
        if is_guess && self.found == Found::Again {
            self.insert_short(text, self.place);
            self.insert_long(text, self.place);
            self.distances.swap(0, 1);
        } else {
            let at = match self.found {
                Found::Search(at, later) if is_guess => {
                    if let Some((hash, ahead)) = later {
                        self.long[hash] = ahead as u32 + 1;
                    }
                    at
                }
                _ => {
                    for place in self.place..start.min(self.end.saturating_sub(8)) {
                        self.insert_long(text, place);
                        self.insert_short(text, place);
                    }
                    start
                }
            };
            if !is_guess {
                self.distances = [distances.0[0] as usize, distances.0[1] as usize];
            } else if sequence.offset > 3 {
                self.distances = [sequence.offset as usize - 3, self.distances[0]];
            }
            let behind = start + sequence.length as usize;
            if self.limit().is_some_and(|limit| behind <= limit) {
                self.insert_long(text, at + 2);
                self.insert_long(text, behind - 2);
                self.insert_short(text, at + 2);
                self.insert_short(text, behind - 1);
            }
        }
        self.anchor = start + sequence.length as usize;
        self.place = self.anchor;
        self.is_behind_copy = true;
    }
}
