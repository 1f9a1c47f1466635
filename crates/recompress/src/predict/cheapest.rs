//! Guesses of what an encoder writes that looks for the cheapest way to say a block: by the lengths of its code's words, as libdeflate, 7-Zip and zopfli do.

use super::ahead::{PLANNED, TAIL};
use super::chain::Candidate;
use super::frequencies::{Frequencies, Lengths};
use super::profile::Profile;
use super::tree::Tree;
use super::window::{Window, common};
use xebec_deflate::format::token::{DISTANCES, LENGTHS, Token, distance_symbol, length_symbol};
use xebec_deflate::format::{COPY_LENGTHS, END_OF_BLOCK, LITERAL_SYMBOLS};

const LONGEST: usize = *COPY_LENGTHS.end();
const SHORTEST: usize = *COPY_LENGTHS.start();
/// More than any way costs.
const NEVER: u32 = 1 << 29;
/// Margins end here.
const WIDE: u32 = 15;

/// What each token costs, in bits.
#[derive(Debug, Clone)]
struct Costs {
    literals: [u32; 256],
    lengths: [u32; LONGEST + 1],
    distances: [u32; DISTANCES.len()],
}

impl Costs {
    fn new(words: &Lengths, missing: [u32; 3]) -> Costs {
        let cost = |symbol: usize, missing: u32| match words[symbol] {
            0 => missing,
            length => u32::from(length),
        };
        let mut costs = Costs {
            literals: [0; 256],
            lengths: [0; LONGEST + 1],
            distances: [0; DISTANCES.len()],
        };
        for (byte, literal) in costs.literals.iter_mut().enumerate() {
            *literal = cost(byte, missing[0]);
        }
        for (length, each) in costs.lengths.iter_mut().enumerate().skip(SHORTEST) {
            let symbol = length_symbol(length);
            *each = cost(END_OF_BLOCK + 1 + symbol, missing[1]) + u32::from(LENGTHS[symbol].1);
        }
        for (symbol, each) in costs.distances.iter_mut().enumerate() {
            *each = cost(LITERAL_SYMBOLS + symbol, missing[2]) + u32::from(DISTANCES[symbol].1);
        }
        costs
    }
}

/// Looks for the cheapest way.
#[derive(Debug, Clone)]
pub(super) struct Cheapest {
    tree: Tree,
    missing: [u32; 3],
    nice: u32,
    is_onward: bool,
    is_forced: bool,
    costs: Costs,
    /// Copies at the places from `first` on: where those of each place end in `copies`.
    first: u64,
    ends: Vec<usize>,
    copies: Vec<Candidate>,
    /// No copies are looked for before this place.
    skipped: u64,
    /// The places that are planned. Of each from `from` on: what it costs from there, what is best, and how much the next best costs more.
    from: u64,
    to: u64,
    costs_from: Vec<u32>,
    best: Vec<Candidate>,
    margins: Vec<u8>,
    /// Of each place of a plan: what it costs to come there, and the copy by which (length 0: a literal).
    arrivals: Vec<(u32, Candidate)>,
}

/// What is guessed at a place.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    pub(super) copy: Option<Candidate>,
    pub(super) margin: u8,
}

impl Cheapest {
    pub(super) fn new(
        profile: &Profile,
        words: &Lengths,
        window: &Window,
        history: u64,
        place: u64,
    ) -> Cheapest {
        let mut cheapest = Cheapest {
            tree: Tree::new(profile.has_threes, profile.depth, profile.nice, profile.window),
            missing: profile.missing,
            nice: profile.nice,
            is_onward: profile.is_onward,
            is_forced: profile.is_forced,
            costs: Costs::new(words, profile.missing),
            first: place,
            ends: Vec::new(),
            copies: Vec::new(),
            skipped: 0,
            from: 0,
            to: 0,
            costs_from: Vec::new(),
            best: Vec::new(),
            margins: Vec::new(),
            arrivals: Vec::new(),
        };
        for each in history..place {
            cheapest.tree.enter(window, each, &mut cheapest.copies);
            cheapest.copies.clear();
        }
        cheapest
    }

    /// A block begins, whose words have these lengths.
    pub(super) fn begin_block(&mut self, words: &Lengths) {
        self.costs = Costs::new(words, self.missing);
        self.to = 0;
    }

    /// Finds the copies of all places before `to`.
    fn search(&mut self, window: &Window, to: u64) {
        for place in self.first + self.ends.len() as u64..to {
            let begin = self.copies.len();
            self.tree.enter(window, place, &mut self.copies);
            if place < self.skipped {
                self.copies.truncate(begin);
            } else if let Some(last) = self.copies[begin..].last_mut()
                && last.length >= self.nice
            {
                let (bytes, at) = window.at(place);
                let most = (bytes.len() - at).min(LONGEST);
                last.length = common(bytes, at - last.distance as usize, at, most) as u32;
                self.skipped = place + u64::from(last.length);
            }
            self.ends.push(self.copies.len());
        }
    }

    /// The copies at a place that was searched.
    fn copies_at(&self, place: u64) -> &[Candidate] {
        let index = (place - self.first) as usize;
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.copies[begin..self.ends[index]]
    }

    /// Forgets the copies of places before `place`.
    fn forget(&mut self, place: u64) {
        let gone = ((place - self.first) as usize).min(self.ends.len());
        if gone == 0 {
            return;
        }
        let copies = self.ends[gone - 1];
        self.copies.drain(..copies);
        self.ends.drain(..gone);
        for end in &mut self.ends {
            *end -= copies;
        }
        self.first += gone as u64;
    }

    /// How often symbols come in the block that begins at a place, if its code is the one of the last block.
    pub(super) fn expected(&mut self, window: &Window, place: u64, block_end: u64) -> Frequencies {
        let mut frequencies = Frequencies::default();
        let end = window.end().min(block_end);
        if place >= end {
            return frequencies;
        }
        self.plan(window, place, block_end);
        let mut next = place;
        while next < self.to.min(end) {
            let token = self.best(window, next);
            frequencies.count(token);
            next += token.plain_length() as u64;
        }
        frequencies
    }

    /// What comes at a place.
    pub(super) fn guess(&mut self, window: &Window, place: u64, block_end: u64) -> Plan {
        if place < self.from || place >= self.to {
            self.plan(window, place, block_end);
        }
        let index = (place - self.from) as usize;
        let best = self.best[index];
        Plan {
            copy: (best.length > 0).then_some(best),
            margin: self.margins[index],
        }
    }

    // One function, since all of it is one walk over the same places.
    fn plan(&mut self, window: &Window, place: u64, block_end: u64) {
        let known = window.end().min(block_end);
        self.search(window, place);
        self.forget(place);
        let end = known.min(place + PLANNED + TAIL);
        self.search(window, end);
        (self.from, self.to) = (place, end.min(place + PLANNED).max(place + 1));
        let count = (end - place) as usize;
        self.costs_from.clear();
        self.costs_from
            .resize(count + LONGEST + 1, if end == block_end { NEVER } else { 0 });
        self.costs_from[count] = 0;
        self.best.clear();
        self.best.resize(count.max(1), Candidate::default());
        self.margins.clear();
        self.margins.resize(count.max(1), 0);
        let (bytes, at) = window.at(place);
        for index in (0..count).rev() {
            let mut least = self.costs.literals[usize::from(bytes[at + index])] + self.costs_from[index + 1];
            let mut second = 2 * NEVER;
            let mut best = Candidate::default();
            let mut length = SHORTEST;
            let copies = self.copies_at(place + index as u64);
            if let Some(&forced) = copies
                .last()
                .filter(|copy| self.is_forced && copy.length > self.nice)
            {
                let length = forced.length as usize;
                let each = self.costs.distances[distance_symbol(forced.distance as usize)]
                    + self.costs.lengths[length];
                self.costs_from[index] = (each + self.costs_from[index + length]).min(NEVER);
                self.best[index] = forced;
                self.margins[index] = WIDE as u8;
                continue;
            }
            for copy in copies {
                let distance_cost = self.costs.distances[distance_symbol(copy.distance as usize)];
                let longest = copy.length as usize;
                let costs = self.costs_from[index..].iter().zip(&self.costs.lengths);
                for (length, (from, each)) in costs.enumerate().take(longest + 1).skip(length) {
                    let cost = distance_cost + from + each;
                    if cost < least {
                        second = least;
                        least = cost;
                        best = Candidate {
                            length: length as u32,
                            distance: copy.distance,
                        };
                    } else if cost < second {
                        second = cost;
                    }
                }
                length = longest + 1;
            }
            self.costs_from[index] = least.min(NEVER);
            self.best[index] = best;
            self.margins[index] = (second - least).min(WIDE) as u8;
        }
        if self.is_onward {
            self.plan_onward(window, place, count);
        }
    }

    /// Looks for the way from the beginning on, too, and prefers it where two cost the same.
    // One function, since all of it is one walk over the same places.
    fn plan_onward(&mut self, window: &Window, place: u64, count: usize) {
        let (bytes, at) = window.at(place);
        self.arrivals.clear();
        self.arrivals
            .resize(count + LONGEST + 1, (u32::MAX, Candidate::default()));
        self.arrivals[0].0 = 0;
        for index in 0..count {
            let cost = self.arrivals[index].0;
            if cost == u32::MAX {
                continue;
            }
            let index_place = (place + index as u64 - self.first) as usize;
            let begin = if index_place == 0 {
                0
            } else {
                self.ends[index_place - 1]
            };
            let copies = &self.copies[begin..self.ends[index_place]];
            let mut arrive = |to: usize, cost: u32, by: Candidate| {
                if cost < self.arrivals[to].0 {
                    self.arrivals[to] = (cost, by);
                }
            };
            let mut length = SHORTEST;
            let forced = copies
                .last()
                .filter(|copy| self.is_forced && copy.length > self.nice);
            if let Some(forced) = forced {
                length = forced.length as usize;
            } else {
                arrive(
                    index + 1,
                    cost + self.costs.literals[usize::from(bytes[at + index])],
                    Candidate::default(),
                );
            }
            for &Candidate {
                length: longest,
                distance,
            } in copies
            {
                let cost = cost + self.costs.distances[distance_symbol(distance as usize)];
                while length <= longest as usize {
                    arrive(
                        index + length,
                        cost + self.costs.lengths[length],
                        Candidate {
                            length: length as u32,
                            distance,
                        },
                    );
                    length += 1;
                }
            }
        }
        let mut index = count;
        while index > 0 {
            let (_, by) = self.arrivals[index];
            index -= by.length.max(1) as usize;
            if self.best[index] != by {
                self.best[index] = by;
                self.margins[index] = 0;
            }
        }
    }

    /// The token that is guessed at a place of the plan.
    pub(super) fn best(&self, window: &Window, place: u64) -> Token {
        let (bytes, at) = window.at(place);
        let best = self.best[(place - self.from) as usize];
        match best.length {
            0 => Token::literal(bytes[at]),
            length => Token::copy(length as usize, best.distance as usize),
        }
    }

    /// The tokens that could be at a place, the cheapest first, with what each costs more than the best; as many as `options` has room for.
    pub(super) fn options(&self, window: &Window, place: u64, options: &mut [(u32, Token)]) -> usize {
        let (bytes, at) = window.at(place);
        let index = (place - self.from) as usize;
        let mut count = 0;
        let mut tell = |cost: u32, token: Token| {
            let place = options[..count]
                .iter()
                .position(|(other, _)| cost < *other)
                .unwrap_or(count);
            if place == options.len() {
                return;
            }
            count = (count + 1).min(options.len());
            options[place..count].rotate_right(1);
            options[place] = (cost, token);
        };
        let literal = self.costs.literals[usize::from(bytes[at])] + self.costs_from[index + 1];
        tell(literal, Token::literal(bytes[at]));
        let mut length = SHORTEST;
        for copy in self.copies_at(place) {
            let distance_cost = self.costs.distances[distance_symbol(copy.distance as usize)];
            while length <= copy.length as usize {
                let cost = distance_cost + self.costs.lengths[length] + self.costs_from[index + length];
                tell(cost, Token::copy(length, copy.distance as usize));
                length += 1;
            }
        }
        let least = options[0].0;
        for option in &mut options[..count] {
            option.0 -= least;
        }
        count
    }

    /// Passes over stored bytes.
    pub(super) fn skip(&mut self, window: &Window, to: u64) {
        let mut none = Vec::new();
        let from = self.first + self.ends.len() as u64;
        for place in from..to {
            self.tree.enter(window, place, &mut none);
            none.clear();
        }
        if to > from {
            (self.first, self.to) = (to, 0);
            self.ends.clear();
            self.copies.clear();
        }
    }
}
