//! Turns the bytes of the window into tokens, greedily or with one place of delay, and ends blocks that are full.

use super::block::{Block, Capacity};
use super::matcher::{Effort, Matcher, is_searched};
use crate::encoders::Output;
use crate::format::WINDOW;

/// The shortest copy.
const SHORTEST: usize = 3;
/// Copies of three bytes are not worth their distance from here on.
const TOO_FAR: usize = 4096;

/// How tokens are chosen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    /// Each copy is taken that is found. Places inside of copies are put into chains if the copy is no longer than this.
    Greedy { inserted: usize },
    /// A copy is taken if there is no longer one at the place after it. That is not looked at if the copy is at least so long.
    Lazy { enough: usize },
}

/// A copy that begins at the place before the current one and may still be given up for a longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Of the place before, nothing is written yet.
    is_open: bool,
    /// 2: there is no copy.
    length: usize,
    distance: usize,
}

/// The matcher at work.
#[derive(Debug, Clone)]
pub(super) struct Parse {
    pub(super) matcher: Matcher,
    pub(super) block: Block,
    pub(super) choice: Choice,
    effort: Effort,
    /// The place at which the next copy is searched for.
    pub(super) at: usize,
    /// The place at which the block begins. It is negative if the window has lost it.
    pub(super) block_begin: isize,
    /// Plain bytes of the blocks that have ended.
    pub(super) plain: u64,
    /// How many places before `at` are not in chains yet, since bytes after them were missing.
    pub(super) behind: usize,
    pub(super) candidate: Candidate,
    /// The candidate of the place `at`, which a resumed encoder knows before it has its bytes.
    pub(super) resumed: Option<Candidate>,
    /// Whether blocks are forgotten and not written: the bytes come before the place at which a resumed encoder goes on.
    pub(super) is_rehearsal: bool,
}

impl Candidate {
    /// None.
    pub(super) const NONE: Candidate = Candidate {
        is_open: false,
        length: SHORTEST - 1,
        distance: 0,
    };

    /// As numbers of a cut: length and distance, twice 0 for none.
    fn state(self) -> [u64; 2] {
        if self.is_open {
            [self.length as u64, self.distance as u64]
        } else {
            [0, 0]
        }
    }

    /// Of numbers of a cut, if they can be meant.
    pub(super) fn of_state(length: u64, distance: u64) -> Option<Option<Candidate>> {
        match (length, distance) {
            (0, 0) => Some(None),
            (2, 0..=32_768) | (3..=258, 1..=32_768) => Some(Some(Candidate {
                is_open: true,
                length: length as usize,
                distance: distance as usize,
            })),
            _ => None,
        }
    }
}

impl Parse {
    pub(super) fn new(matcher: Matcher, capacity: Capacity, choice: Choice, effort: Effort) -> Parse {
        Parse {
            matcher,
            block: Block::new(capacity),
            choice,
            effort,
            at: 0,
            block_begin: 0,
            plain: 0,
            behind: 0,
            candidate: Candidate::NONE,
            resumed: None,
            is_rehearsal: false,
        }
    }

    /// Begins at a place of the window, before which there are these plain bytes.
    pub(super) fn reset(&mut self, before: &[u8], at: usize) {
        self.matcher.reset(before, at);
        self.begin(at, before.len());
    }

    /// Begins a block at a place, before which there are so many plain bytes. Chains that there are get lost; all those bytes are put into new
    /// ones.
    pub(super) fn begin(&mut self, at: usize, before: usize) {
        self.matcher.forget_chains();
        self.at = at;
        self.block_begin = at as isize;
        self.behind = before;
        self.catch_up();
        self.candidate = Candidate::NONE;
        self.resumed = None;
        self.block.clear();
    }

    /// Puts places into chains that are behind, as far as there are bytes after them.
    pub(super) fn catch_up(&mut self) {
        while self.behind > 0 && self.matcher.end >= self.at - self.behind + SHORTEST {
            self.matcher.insert(self.at - self.behind);
            self.behind -= 1;
        }
    }

    /// Makes tokens until the place is `until` or a little after it. Each search sees the bytes up to the end of the window.
    pub(super) fn run(&mut self, until: usize, output: &mut Output) {
        if let Some(mut candidate) = self.resumed
            && self.at < until
        {
            self.resumed = None;
            candidate.length = candidate.length.min(self.matcher.end - self.at);
            self.candidate = candidate;
            self.insert(self.at);
            self.at += 1;
        }
        match self.choice {
            Choice::Greedy { inserted } => self.greedy(until, inserted, output),
            Choice::Lazy { enough } => self.lazy(until, enough, output),
        }
    }

    /// Moves everything one window back.
    pub(super) fn slide(&mut self) {
        self.matcher.slide();
        self.at -= WINDOW;
        self.block_begin -= WINDOW as isize;
    }

    /// Ends a block that is full, at a place. `pending` is the candidate of that place.
    fn end_block(&mut self, end: usize, pending: Candidate, output: &mut Output) {
        self.write_block(end, false, output);
        if !self.is_rehearsal {
            let [length, distance] = pending.state();
            output.end_of_block(self.plain, || Some(vec![end as u64, length, distance]));
        }
    }

    /// Writes the block up to a place.
    pub(super) fn write_block(&mut self, end: usize, is_last: bool, output: &mut Output) {
        if self.is_rehearsal {
            self.block.clear();
        } else {
            let begin = usize::try_from(self.block_begin).ok();
            let plain = begin.map(|begin| self.matcher.plain(begin..end));
            self.block.write(plain, is_last, &mut output.bits);
            self.plain += self.in_block(end) as u64;
        }
        self.block_begin = end as isize;
    }

    /// How far a place is from the beginning of the block.
    #[inline]
    fn in_block(&self, at: usize) -> usize {
        (at as isize - self.block_begin) as usize
    }

    /// Puts a place into its chain if there are bytes for its hash, and returns the head before.
    #[inline]
    fn insert(&mut self, place: usize) -> usize {
        if place + SHORTEST <= self.matcher.end {
            self.matcher.insert(place)
        } else {
            0
        }
    }

    fn greedy(&mut self, until: usize, inserted: usize, output: &mut Output) {
        let end = self.matcher.end;
        while self.at < until {
            let at = self.at;
            let head = self.insert(at);
            let (length, distance) = if is_searched(at, head) {
                self.matcher.longest(at, head, SHORTEST - 1, self.effort)
            } else {
                (0, 0)
            };
            let plain = self.in_block(at);
            let is_full = if length >= SHORTEST {
                self.at += length;
                if length <= inserted && self.at + SHORTEST <= end {
                    for place in at + 1..self.at {
                        self.matcher.insert(place);
                    }
                }
                self.block.copy(length, distance, plain)
            } else {
                self.at += 1;
                self.block.literal(self.matcher.byte(at), plain)
            };
            if is_full {
                self.end_block(self.at, Candidate::NONE, output);
            }
        }
    }

    fn lazy(&mut self, until: usize, enough: usize, output: &mut Output) {
        let end = self.matcher.end;
        let mut before = self.candidate;
        while self.at < until {
            let at = self.at;
            let head = self.insert(at);
            let mut here = Candidate {
                is_open: true,
                length: SHORTEST - 1,
                distance: 0,
            };
            if before.length < enough && is_searched(at, head) {
                (here.length, here.distance) = self.matcher.longest(at, head, before.length, self.effort);
                if here.length == SHORTEST && here.distance > TOO_FAR {
                    here.length -= 1;
                }
            }
            if before.length >= SHORTEST && here.length <= before.length {
                let is_full = self.block.copy(before.length, before.distance, self.in_block(at));
                self.at += before.length - 1;
                for place in at + 1..self.at.min(end - (SHORTEST - 1)) {
                    self.matcher.insert(place);
                }
                before = Candidate::NONE;
                if is_full {
                    self.end_block(self.at, before, output);
                }
                continue;
            }
            if before.is_open && self.block.literal(self.matcher.byte(at - 1), self.in_block(at)) {
                self.end_block(at, here, output);
            }
            before = here;
            self.at += 1;
        }
        self.candidate = before;
    }

    /// Writes the place that is still open, at the end of the plain bytes.
    pub(super) fn close_candidate(&mut self) {
        if self.candidate.is_open {
            self.block
                .literal(self.matcher.byte(self.at - 1), self.in_block(self.at));
        }
        self.candidate = Candidate::NONE;
    }
}
