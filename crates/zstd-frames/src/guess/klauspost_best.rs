//! klauspost/compress at its level "best" (`enc_best.go`, 1.17.7 and newer): two hash tables that keep the place before, too, and an estimate of what
//! a copy costs and saves.

use super::common::{common, common_before, eight, four, hash};
use super::klauspost::Walk;
use super::{Guesser, Span};
use crate::codes::{self, COPIES};
use crate::frame::Frame;
use crate::fse::Counts;
use crate::sequences::{Distances, Sequence};

const LONG: u32 = 22;
const SHORT: u32 = 18;
const STRENGTH: u32 = 10;
/// A copy of so many bytes is taken at once.
const GOOD: usize = 250;
/// At the end of a copy another one is looked for, whose first bytes may differ.
const SKIPPED: usize = 2;
/// More than any copy costs.
const TOO_MUCH: i64 = 131_074 * 8;

/// A copy that may be made.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    place: usize,
    from: usize,
    length: usize,
    /// How the block tells its distance: 1 to 3 for one of the last, with `BEHIND` if no literals come before it; -1 for another one, 0 for no copy.
    told: i32,
    cost: i64,
}

/// Said of a copy right behind another one.
const BEHIND: i32 = 4;

/// Follows the level "best".
#[derive(Debug, Clone)]
pub(crate) struct KlauspostBest {
    long: Vec<[u32; 2]>,
    short: Vec<[u32; 2]>,
    walk: Walk,
    /// The bits of a literal, in parts of 1,024.
    literal_cost: i64,
    /// The bits of each code of copy lengths and of offsets.
    copy_costs: Vec<i64>,
    offset_costs: Vec<i64>,
    /// From which place on a copy is indexed.
    indexed: usize,
}

/// What a code costs in the table that blocks have without telling it.
fn costs(counts: &Counts, bits: impl Fn(usize) -> u8) -> Vec<i64> {
    let cost = |(code, &count): (usize, &i16)| {
        let states = match count {
            ..=1 => counts.log - 1,
            _ => counts.log - (count as u32 - 1).ilog2() - 1,
        };
        i64::from(states) + i64::from(bits(code))
    };
    counts.counts.iter().enumerate().map(cost).collect()
}

impl KlauspostBest {
    pub(crate) fn new() -> KlauspostBest {
        let [_, offsets, copies] = codes::predefined();
        KlauspostBest {
            long: vec![[0; 2]; 1 << LONG],
            short: vec![[0; 2]; 1 << SHORT],
            walk: Walk::default(),
            literal_cost: 0,
            copy_costs: costs(&copies, |code| COPIES[code].1),
            offset_costs: costs(&offsets, |code| code as u8),
            indexed: 0,
        }
    }

    fn insert(&mut self, text: &[u8], place: usize) {
        let word = eight(text, place);
        for (table, hash) in [
            (&mut self.long, hash(word, 8, LONG)),
            (&mut self.short, hash(word, 4, SHORT)),
        ] {
            let entry = &mut table[hash];
            *entry = [place as u32 + 1, entry[0]];
        }
    }

    fn cost(&self, candidate: &Candidate) -> i64 {
        let offset = match candidate.told {
            ..0 => (candidate.place - candidate.from + 3) as u32,
            told => (told & 3) as u32,
        };
        let offset = self
            .offset_costs
            .get(offset.ilog2() as usize)
            .copied()
            .unwrap_or(0);
        let length = candidate.length.max(3) as u32;
        let copy = self.copy_costs[usize::from(codes::copy_code(length))];
        offset + copy - ((candidate.length as i64 * self.literal_cost) >> 10)
    }

    /// Takes a copy for `place` instead of the best one if it is better.
    fn improve(&self, text: &[u8], best: &mut Candidate, from: Option<usize>, place: usize, told: i32) {
        let Some(from) = from.filter(|&from| self.walk.reached_place(from, place)) else {
            return;
        };
        if four(text, from) != four(text, place) {
            return;
        }
        if best.length > 16 {
            let Some(left) = self
                .walk
                .end
                .checked_sub(best.place + best.length)
                .filter(|&left| left > 0)
            else {
                return;
            };
            let check = (best.length + best.place)
                .checked_sub(place + 8)
                .filter(|&check| check > 4);
            if let Some(check) = check.filter(|_| left > 2)
                && four(text, from + check) != four(text, place + check)
            {
                return;
            }
        }
        let length = common(text, place, from, self.walk.end);
        let before = if best.told <= 0 {
            common_before(text, place, from, self.walk.anchor, self.walk.least_from(place))
        } else {
            0
        };
        let mut candidate = Candidate {
            place: place - before,
            from: from - before,
            length: length + before,
            told,
            cost: 0,
        };
        candidate.cost = self.cost(&candidate);
        if candidate.cost > 0 {
            candidate.length = 0;
            candidate.cost = TOO_MUCH;
        }
        let later = ((candidate.place as i64 - best.place as i64) * self.literal_cost) >> 10;
        if best.cost >= TOO_MUCH || candidate.cost - best.cost + later < 0 {
            *best = candidate;
        }
    }

    fn improve_by(&self, text: &[u8], best: &mut Candidate, entry: u32, place: usize) {
        self.improve(text, best, (entry as usize).checked_sub(1), place, -1);
    }

    /// Copies by the last distances.
    fn repeats(&self, text: &[u8], best: &mut Candidate, place: usize) {
        let distances = self.walk.distances;
        let back = |place: usize, distance: usize| place.checked_sub(distance).filter(|_| distance > 0);
        if place == self.walk.anchor {
            self.improve(text, best, back(place, distances[1]), place, 1 | BEHIND);
            self.improve(text, best, back(place, distances[2]), place, 2 | BEHIND);
            if distances[0] > 1 {
                self.improve(text, best, back(place, distances[0] - 1), place, 3 | BEHIND);
            }
        }
        for ahead in [place + 1, place + 3] {
            if best.told > 0 || (ahead > place + 1 && best.told == 0) {
                return;
            }
            for (distance, told) in distances.into_iter().zip(1..) {
                self.improve(text, best, back(ahead, distance), ahead, told);
            }
        }
    }

    /// Copies a little ahead, and such as go on where the best one ends.
    fn look_ahead(&self, text: &[u8], best: &mut Candidate, place: usize) {
        let (next, second) = (eight(text, place + 1), eight(text, place + 2));
        self.improve_by(text, best, self.short[hash(next, 4, SHORT)][0], place + 1);
        for (word, place) in [(next, place + 1), (second, place + 2)] {
            for entry in self.long[hash(word, 8, LONG)] {
                self.improve_by(text, best, entry, place);
            }
        }
        let end = best.place + best.length;
        if best.place + SKIPPED > place && end < self.walk.limit {
            for entry in self.long[hash(eight(text, end), 8, LONG)] {
                let from = (entry as usize + SKIPPED)
                    .checked_sub(best.length + 1)
                    .filter(|&from| entry > 0 && from >= self.walk.frame);
                let Some(from) = from else { return };
                self.improve(text, best, Some(from), best.place + SKIPPED, -1);
            }
        }
    }
}

impl Guesser for KlauspostBest {
    fn begin_frame(&mut self, frame: &Frame) {
        self.walk.begin_frame(frame);
    }

    fn begin_block(&mut self, text: &[u8], span: &Span) {
        self.walk.begin_block(span, 12, 16);
        self.literal_cost = literal_cost(text.get(span.start..span.end).unwrap_or_default());
    }

    fn guess(&mut self, text: &[u8]) -> Option<Sequence> {
        while self.walk.place < self.walk.limit {
            let place = self.walk.place;
            let word = eight(text, place);
            let (long, short) = (self.long[hash(word, 8, LONG)], self.short[hash(word, 4, SHORT)]);
            let mut best = Candidate {
                place,
                from: 0,
                length: 0,
                told: 0,
                cost: TOO_MUCH,
            };
            for entry in [long[0], long[1], short[0], short[1]] {
                self.improve_by(text, &mut best, entry, place);
            }
            if self.walk.may_repeat() && best.length < GOOD {
                self.repeats(text, &mut best, place);
            }
            self.insert(text, place);
            self.indexed = place + 1;
            if best.length < GOOD {
                if best.length < 4 {
                    self.walk.place += self.walk.step(1, STRENGTH);
                    continue;
                }
                self.look_ahead(text, &mut best, place);
            }
            return Some(Sequence {
                literals: (best.place - self.walk.anchor) as u32,
                length: best.length as u32,
                offset: if best.told > 0 {
                    (best.told & 3) as u32
                } else {
                    (best.place - best.from) as u32 + 3
                },
            });
        }
        None
    }

    fn follow(&mut self, text: &[u8], sequence: Sequence, is_guess: bool, distances: &Distances) {
        let start = self.walk.follow(sequence, distances);
        let end = if sequence.offset <= 3 {
            self.walk.place.min(self.walk.limit + 4)
        } else {
            self.walk.place.min(self.walk.limit.saturating_sub(4))
        };
        let from = if is_guess {
            self.indexed
        } else {
            self.indexed.max(start.min(self.indexed + 1))
        };
        for place in from..end {
            self.insert(text, place);
        }
        self.indexed = self.indexed.max(end);
    }
}

/// The bits of a literal by the entropy of the block, in parts of 1,024; one bit at least.
fn literal_cost(block: &[u8]) -> i64 {
    let mut counts = [0_u32; 256];
    for &byte in block {
        counts[usize::from(byte)] += 1;
    }
    let share = 1.0 / block.len() as f64;
    let bits = counts.iter().filter(|&&count| count > 0).map(|&count| {
        let count = f64::from(count);
        (-(count * share).log2() * count).ceil()
    });
    let bits = bits.sum::<f64>().ceil() as i64;
    (bits * 1024 / block.len().max(1) as i64).max(1024)
}
