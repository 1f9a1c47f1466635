//! libzstd's strategies `greedy`, `lazy`, `lazy2` and `btlazy2` (`zstd_lazy.c`): the longest copy for a place, and perhaps a better one a byte or two
//! later.

use super::common::{common, common_before, four};
use super::libzstd::{Input, Parameters, Reach, Strategy, two_distances};
use super::libzstd_finders::Finder;
use super::{Guesser, Span};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

/// Without a copy for so many bytes, steps become longer by one.
const STRENGTH: u32 = 8;
/// Steps from this on are such that places between are not indexed.
const SKIPPING: usize = 8;
/// After so many places that are not indexed, at the end of a block, only some of the last ones are.
const LONG: usize = 384;
const LONG_LAST: usize = 192;

/// A copy that was found.
#[derive(Debug, Clone, Copy)]
struct Copy {
    place: usize,
    length: usize,
    /// As a block tells it: 1 for the last distance, else 3 more than the distance.
    offset: usize,
}

impl Copy {
    /// How good it is: `weight` for each byte, less the bits of the distance.
    fn gain(&self, weight: i64) -> i64 {
        self.length as i64 * weight - i64::from(self.offset.ilog2())
    }
}

/// Follows a lazy strategy.
#[derive(Debug, Clone)]
pub(crate) struct Lazy<F> {
    level: i8,
    input: Input,
    /// Whether it indexes all places, as versions before 1.5.5 do.
    is_old: bool,
    parameters: Parameters,
    finder: F,
    reach: Reach,
    end: usize,
    limit: usize,
    anchor: usize,
    place: usize,
    distances: [usize; 2],
    skips: bool,
    is_behind_copy: bool,
    is_behind: bool,
}

impl<F: Finder> Lazy<F> {
    pub(crate) fn new(level: i8, input: Input, is_old: bool, finder: F) -> Lazy<F> {
        let mut lazy = Lazy {
            level,
            input,
            is_old,
            parameters: Parameters::of(level, &Frame::default()),
            finder,
            reach: Reach::default(),
            end: 0,
            limit: 0,
            anchor: 0,
            place: 0,
            distances: [0; 2],
            skips: false,
            is_behind_copy: false,
            is_behind: false,
        };
        lazy.begin_frame(&Frame::default());
        lazy
    }

    fn depth(&self) -> u32 {
        match self.parameters.strategy {
            Strategy::Lazy => 1,
            Strategy::Lazy2 | Strategy::TreeLazy2 | Strategy::Optimal => 2,
            _ => 0,
        }
    }

    /// Where `place` is at a distance, if four bytes there are the same.
    fn again(&self, text: &[u8], place: usize, distance: usize) -> Option<usize> {
        let from = place.checked_sub(distance).filter(|_| distance > 0)?;
        if four(text, from) != four(text, place) {
            return None;
        }
        let is_reached = !self.reach.has_two_parts()
            || (from >= self.reach.low
                && !(self.reach.prefix.saturating_sub(3)..self.reach.prefix).contains(&from));
        is_reached.then_some(from)
    }

    fn find(&mut self, text: &[u8], place: usize) -> Option<Copy> {
        let (length, from) = self
            .finder
            .find(text, place, (self.reach.low, self.end), self.skips)?;
        Some(Copy {
            place,
            length,
            offset: place - from + 3,
        })
    }

    /// A better copy at `place`, after `best`, which begins before. `bonus` is what the best one has for being earlier. Says whether a search, not the
    /// last distance, has found a better one.
    fn improve(&mut self, text: &[u8], best: &mut Copy, place: usize, weight: i64, bonus: i64) -> bool {
        if let Some(from) = self.again(text, place, self.distances[0]) {
            let length = common(text, place, from, self.end);
            let copy = Copy {
                place,
                length,
                offset: 1,
            };
            if copy.gain(weight) > best.gain(weight) + 1 {
                *best = copy;
            }
        }
        match self.find(text, place) {
            Some(copy) if copy.gain(4) > best.gain(4) + bonus => {
                *best = copy;
                true
            }
            _ => false,
        }
    }

    fn search(&mut self, text: &[u8]) -> Option<Copy> {
        let depth = self.depth();
        while self.place < self.limit {
            let mut best = None;
            if let Some(from) = self.again(text, self.place + 1, self.distances[0]) {
                let place = self.place + 1;
                let copy = Copy {
                    place,
                    length: common(text, place, from, self.end),
                    offset: 1,
                };
                if depth == 0 {
                    return Some(copy);
                }
                best = Some(copy);
            }
            if let Some(copy) = self.find(text, self.place)
                && best.is_none_or(|best| copy.length > best.length)
            {
                best = Some(copy);
            }
            let Some(mut best) = best else {
                let step = (self.place - self.anchor) >> STRENGTH;
                self.place += step + 1;
                let step = step + usize::from(!self.reach.has_two_parts());
                self.skips = step > SKIPPING && !self.is_old;
                continue;
            };
            let mut place = self.place;
            while depth > 0 && place < self.limit {
                place += 1;
                if self.improve(text, &mut best, place, 3, 4) {
                    continue;
                }
                if depth < 2 || place >= self.limit {
                    break;
                }
                place += 1;
                if !self.improve(text, &mut best, place, 4, 7) {
                    break;
                }
            }
            return Some(best);
        }
        None
    }
}

impl<F: Finder> Guesser for Lazy<F> {
    fn begin_frame(&mut self, frame: &Frame) {
        self.parameters = Parameters::of(self.level, frame);
        self.finder.begin_frame(&self.parameters);
    }

    fn begin_block(&mut self, text: &[u8], span: &Span) {
        self.reach = Reach::of(span, &self.parameters, self.input);
        self.end = span.end;
        self.limit = span.end.saturating_sub(self.finder.margin());
        self.anchor = span.start;
        let begins = span.position == 0 || (self.input == Input::Pieces && self.reach.prefix == span.start);
        self.place = span.start + usize::from(begins);
        self.distances = if self.reach.has_two_parts() {
            [span.distances.0[0], span.distances.0[1]].map(|distance| distance as usize)
        } else {
            two_distances(span, self.place, &self.reach, self.parameters.window_log)
        };
        self.skips = false;
        self.is_behind_copy = false;
        if let Some(first) = self.reach.job {
            self.finder.begin_job(text, first, span.start.saturating_sub(8));
        }
        let next = self.finder.next();
        if begins || self.reach.job.is_some() {
            *next = span.start;
        }
        *next = (*next).max(self.reach.low);
        if span.start > *next + LONG {
            *next = span.start - LONG_LAST.min(span.start - *next - LONG);
        }
    }

    fn guess(&mut self, text: &[u8]) -> Option<Sequence> {
        self.is_behind = false;
        if self.is_behind_copy
            && self.place <= self.limit
            && let Some(from) = self.again(text, self.place, self.distances[1])
        {
            self.is_behind = true;
            return Some(Sequence {
                literals: 0,
                length: common(text, self.place, from, self.end) as u32,
                offset: 1,
            });
        }
        let copy = self.search(text)?;
        let mut before = 0;
        if copy.offset > 3 {
            let from = copy.place + 3 - copy.offset;
            let low = if from < self.reach.prefix {
                self.reach.low
            } else {
                self.reach.prefix
            };
            before = common_before(text, copy.place, from, self.anchor, low);
        }
        Some(Sequence {
            literals: (copy.place - before - self.anchor) as u32,
            length: (copy.length + before) as u32,
            offset: copy.offset as u32,
        })
    }

    fn follow(&mut self, _: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances) {
        if !is_guess {
            self.distances = [distances.0[0] as usize, distances.0[1] as usize];
        } else if self.is_behind {
            self.distances.swap(0, 1);
        } else if sequence.offset > 3 {
            self.distances = [sequence.offset as usize - 3, self.distances[0]];
        }
        self.anchor += sequence.literals as usize + sequence.length as usize;
        self.place = self.anchor;
        self.skips = false;
        self.is_behind_copy = true;
    }
}
