//! libzstd's strategy `fast` (`zstd_fast.c`, 1.5.4 and newer): one hash table.

use super::common::{common, common_before, eight, four, hash};
use super::libzstd::{Input, Parameters, Reach, two_distances};
use super::{Guesser, Span};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

/// After so many bytes without a copy, steps become longer by one.
const STEP_BYTES: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A copy after a search that came to this place, and the hash and place that the search would have come to next.
    Search(usize, (usize, usize)),
    /// A copy by the second last distance, right behind another copy.
    Behind,
}

/// Follows `fast`.
#[derive(Debug, Clone)]
pub(crate) struct Fast {
    level: i8,
    input: Input,
    parameters: Parameters,
    /// Places in the text, one more than they are; 0: none.
    table: Vec<u32>,
    reach: Reach,
    end: usize,
    anchor: usize,
    place: usize,
    distances: [usize; 2],
    is_behind_copy: bool,
    found: Found,
}

/// Where the search is: two places next to each other, two that come next, and what is known of them.
struct Search {
    places: [usize; 4],
    hashes: [usize; 2],
    from: u32,
    step: usize,
    next_step: usize,
}

impl Fast {
    pub(crate) fn new(level: i8, input: Input) -> Fast {
        let mut fast = Fast {
            level,
            input,
            parameters: Parameters::of(level, &Frame::default()),
            table: Vec::new(),
            reach: Reach::default(),
            end: 0,
            anchor: 0,
            place: 0,
            distances: [0; 2],
            is_behind_copy: false,
            found: Found::Nothing,
        };
        fast.begin_frame(&Frame::default());
        fast
    }

    fn hash(&self, text: &[u8], place: usize) -> usize {
        hash(
            eight(text, place),
            self.parameters.least,
            self.parameters.hash_log,
        )
    }

    fn insert(&mut self, text: &[u8], place: usize) {
        let hash = self.hash(text, place);
        self.table[hash] = place as u32 + 1;
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

    /// Where a copy for `place` may be from.
    fn from(&self, text: &[u8], entry: u32, place: usize) -> Option<usize> {
        let from = (entry as usize).checked_sub(1)?;
        (from >= self.reach.low && from < place && four(text, from) == four(text, place)).then_some(from)
    }

    fn copy(&mut self, text: &[u8], place: usize, from: usize, next: (usize, usize)) -> Sequence {
        self.found = Found::Search(place, next);
        let low = if from < self.reach.prefix {
            self.reach.low
        } else {
            self.reach.prefix
        };
        let before = common_before(text, place, from, self.anchor, low);
        Sequence {
            literals: (place - before - self.anchor) as u32,
            length: (common(text, place, from, self.end) + before) as u32,
            offset: (place - from) as u32 + 3,
        }
    }

    fn search(&mut self, text: &[u8], limit: usize) -> Option<Sequence> {
        let least_step = self.parameters.target.max(1) as usize + 1;
        let place = self.place;
        let mut search = Search {
            places: [place, place + 1, place + least_step, place + least_step + 1],
            hashes: [0; 2],
            from: 0,
            step: least_step,
            next_step: place + STEP_BYTES,
        };
        if search.places[3] >= limit {
            return None;
        }
        search.hashes = [self.hash(text, place), self.hash(text, place + 1)];
        search.from = self.table[search.hashes[0]];
        loop {
            let [place, next, second, _] = search.places;
            self.table[search.hashes[0]] = place as u32 + 1;
            if self.is_again(text, second, self.distances[0]) {
                self.found = Found::Search(place, (search.hashes[1], next));
                self.table[search.hashes[1]] = next as u32 + 1;
                let from = second - self.distances[0];
                let before = usize::from(from > 0 && text[second - 1] == text[from - 1]);
                return Some(Sequence {
                    literals: (second - before - self.anchor) as u32,
                    length: (common(text, second, from, self.end) + before) as u32,
                    offset: 1,
                });
            }
            if let Some(from) = self.from(text, search.from, place) {
                self.table[search.hashes[1]] = next as u32 + 1;
                return Some(self.copy(text, place, from, (search.hashes[1], next)));
            }
            self.advance(text, &mut search);
            let [place, next, ..] = search.places;
            self.table[search.hashes[0]] = place as u32 + 1;
            if let Some(from) = self.from(text, search.from, place) {
                if search.step <= 4 && !self.reach.has_two_parts() {
                    self.table[search.hashes[1]] = next as u32 + 1;
                }
                return Some(self.copy(text, place, from, (search.hashes[1], next)));
            }
            self.advance(text, &mut search);
            search.places[2] = search.places[0] + search.step;
            search.places[3] = search.places[1] + search.step;
            if search.places[2] >= search.next_step {
                search.step += 1;
                search.next_step += STEP_BYTES;
            }
            self.place = search.places[0];
            if search.places[3] >= limit {
                return None;
            }
        }
    }

    /// Goes on by one place.
    #[inline]
    fn advance(&self, text: &[u8], search: &mut Search) {
        let [_, next, second, third] = search.places;
        search.from = self.table[search.hashes[1]];
        search.hashes = [search.hashes[1], self.hash(text, second)];
        search.places = [next, second, third, third];
    }
}

impl Guesser for Fast {
    fn begin_frame(&mut self, frame: &Frame) {
        self.parameters = Parameters::of(self.level, frame);
        let size = 1 << self.parameters.hash_log;
        if self.table.len() != size {
            self.table = vec![0; size];
        }
    }

    fn begin_block(&mut self, text: &[u8], span: &Span) {
        self.reach = Reach::of(span, &self.parameters, self.input);
        if let Some(first) = self.reach.job {
            self.table.fill(0);
            for place in (first..span.start.saturating_sub(9)).step_by(3) {
                self.insert(text, place);
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
        let limit = self.end.checked_sub(8)?;
        if self.is_behind_copy && self.place <= limit && self.is_again(text, self.place, self.distances[1]) {
            self.found = Found::Behind;
            return Some(Sequence {
                literals: 0,
                length: common(text, self.place, self.place - self.distances[1], self.end) as u32,
                offset: 1,
            });
        }
        self.search(text, limit)
    }

    fn follow(&mut self, text: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances) {
        let start = self.anchor + sequence.literals as usize;
        let behind = start + sequence.length as usize;
        if is_guess && self.found == Found::Behind {
            self.insert(text, self.place);
            self.distances.swap(0, 1);
        } else {
            let at = match self.found {
                Found::Search(at, (hash, next)) if is_guess => {
                    if self.reach.has_two_parts() && next < behind {
                        self.table[hash] = next as u32 + 1;
                    }
                    at
                }
                _ => {
                    for place in self.place..start.min(self.end.saturating_sub(8)) {
                        self.insert(text, place);
                    }
                    start
                }
            };
            if !is_guess {
                self.distances = [distances.0[0] as usize, distances.0[1] as usize];
            } else if sequence.offset > 3 {
                self.distances = [sequence.offset as usize - 3, self.distances[0]];
            }
            if behind + 8 <= self.end {
                self.insert(text, at + 2);
                self.insert(text, behind - 2);
            }
        }
        self.anchor = behind;
        self.place = behind;
        self.is_behind_copy = true;
    }
}
