//! Levels 2 to 9: searches the window for copies, at 4 to 9 with an eye on the copy that the next byte begins.

use std::ops::Range;

use super::blocks::BlockWriter;
use super::window::{AHEAD, SHORTEST, SIZE, Window};
use crate::encoders::{Cut, Output};
use crate::format::token::Token;
use crate::format::{COPY_LENGTHS, WINDOW};

/// A block ends with this many tokens.
const BLOCK_TOKENS: usize = 1 << 14;
/// After a flush the last places before it are in no chain.
const UNCHAINED: usize = SHORTEST - 1;
/// The longest copy less than none.
const NONE: usize = SHORTEST - 1;
/// A cut tells of so many flushes within reach. Where there are more, the encoder cannot be resumed.
const FLUSHES_MOST: usize = 8;

/// How hard a level searches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// How many places of a chain to look at.
    places: usize,
    /// A copy of this length ends the search in the chain.
    nice: usize,
    next: Next,
}

/// What becomes of the bytes after the first one of a copy.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// The copy is taken. Its bytes go into the chains if it has this length at most.
    Chained(usize),
    /// A longer copy is looked for at the next byte, if this one is shorter than that. All bytes go into the chains.
    Searched(usize),
}

impl Effort {
    /// The effort of a level from 2 to 9.
    pub(super) fn of_level(level: i8) -> Option<Effort> {
        let (places, nice, next) = match level {
            2 => (8, 16, Next::Chained(5)),
            3 => (32, 32, Next::Chained(6)),
            4 => (16, 16, Next::Searched(4)),
            5 => (32, 32, Next::Searched(16)),
            6 => (128, 128, Next::Searched(16)),
            7 => (256, 128, Next::Searched(32)),
            8 => (1024, 258, Next::Searched(128)),
            9 => (4096, 258, Next::Searched(258)),
            _ => return None,
        };
        Some(Effort { places, nice, next })
    }
}

/// The encoder of levels 2 to 9.
pub(super) struct Search {
    effort: Effort,
    window: Window,
    /// The byte of the window to go on with.
    at: usize,
    /// Whether the byte before `at` is in no token yet, and the copy that it begins: its length ([`NONE`] if there is none) and distance.
    is_pending: bool,
    length: usize,
    distance: usize,
    tokens: Vec<Token>,
    /// The plain byte at which the tokens begin.
    block: u64,
    /// Up to this plain byte a resumed encoder only works to fill its chains.
    silent_until: u64,
    /// Places before `at` that a resumed encoder has to put into chains when the bytes after them are there.
    unchained: Range<usize>,
    /// At which plain bytes there was a flush, as far as they are within reach.
    flushes: Vec<u64>,
    blocks: BlockWriter,
}

impl Search {
    pub(super) fn new(effort: Effort) -> Search {
        Search::begin(effort, 0)
    }

    fn begin(effort: Effort, before: u64) -> Search {
        Search {
            effort,
            window: Window::new(before),
            at: 0,
            is_pending: false,
            length: NONE,
            distance: 0,
            tokens: Vec::with_capacity(BLOCK_TOKENS),
            block: before,
            silent_until: 0,
            unchained: 0..0,
            flushes: Vec::new(),
            blocks: BlockWriter::new(),
        }
    }

    /// The state of a cut is where it is in the window, whether the byte after it is pending, the copy that begins there, and how far back the
    /// flushes within reach are.
    fn state(&self) -> Option<Vec<u64>> {
        if self.flushes.len() > FLUSHES_MOST {
            return None;
        }
        let mut state = vec![
            self.block - self.window.before,
            u64::from(self.is_pending),
            self.length as u64,
            self.distance as u64,
        ];
        state.extend(self.flushes.iter().map(|flush| self.block - flush));
        Some(state)
    }

    /// At levels 4 to 9 all places are in the chains, so the chains of a resumed encoder are those of the one that was cut, given as much history as
    /// a copy can reach. At 2 and 3 they depend on the tokens: the encoder works through the history in silence. The more of it there is, the more
    /// likely the encoder comes to the same tokens.
    pub(super) fn resume(effort: Effort, history: &[u8], cut: &Cut) -> Option<Search> {
        let [place, is_pending, length, distance, flushes @ ..] = &cut.state[..] else {
            return None;
        };
        let before = cut.plain.checked_sub(*place)?;
        let (length, distance) = (usize::try_from(*length).ok()?, usize::try_from(*distance).ok()?);
        let place = usize::try_from(*place).ok()?;
        let is_copy =
            COPY_LENGTHS.contains(&length) && distance <= WINDOW && (length == NONE || distance > 0);
        let is_state = is_copy && *is_pending <= 1 && (length == NONE || *is_pending == 1);
        if place + usize::from(*is_pending == 1) > SIZE || !is_state || flushes.len() > FLUSHES_MOST {
            return None;
        }
        if let Next::Chained(_) = effort.next {
            return Some(Search::work_silently(effort, history, cut.plain));
        }
        let mut search = Search::begin(effort, before);
        let kept = history.len().min(place).min(WINDOW);
        search.window.place(&history[history.len() - kept..], place);
        search.block = cut.plain;
        search.is_pending = *is_pending == 1;
        (search.length, search.distance) = (length, distance);
        search.at = place + usize::from(search.is_pending);
        for flush in flushes {
            search.flushes.push(cut.plain.checked_sub(*flush)?);
        }
        search.unchained = place - kept..search.at;
        Some(search)
    }

    fn work_silently(effort: Effort, history: &[u8], plain: u64) -> Search {
        let begin = plain.saturating_sub(history.len() as u64);
        let place = (begin % WINDOW as u64) as usize;
        let mut search = Search::begin(effort, begin - place as u64);
        search.window.place(&[], place);
        (search.at, search.block) = (place, plain);
        search.silent_until = plain;
        search.write(history, &mut Output::default());
        search
    }

    pub(super) fn write(&mut self, mut plain: &[u8], output: &mut Output) {
        while !plain.is_empty() {
            plain = self.window.fill(plain);
            self.work(AHEAD, output);
            if self.window.end == SIZE && self.ahead() < AHEAD {
                self.slide();
            }
        }
    }

    fn slide(&mut self) {
        self.window.slide();
        self.at -= WINDOW;
        let unchained = &mut self.unchained;
        *unchained = unchained.start.saturating_sub(WINDOW)..unchained.end.saturating_sub(WINDOW);
        let reach = self.window.before;
        self.flushes.retain(|&flush| flush >= reach);
    }

    /// How many bytes there are from `at` on.
    fn ahead(&self) -> usize {
        self.window.end.saturating_sub(self.at)
    }

    /// Writes all bytes that have come.
    pub(super) fn drain(&mut self, output: &mut Output) {
        self.work(1, output);
        if self.is_pending {
            self.tokens.push(Token::literal(self.window.byte(self.at - 1)));
            self.is_pending = false;
        }
        self.unchained = 0..0;
        let end = self.window.before + self.window.end as u64;
        if self.flushes.last() != Some(&end) {
            self.flushes.push(end);
        }
        if !self.tokens.is_empty() {
            self.write_block(output);
        }
        // Go does this before it takes more bytes, here too where the window is not full.
        if SIZE - self.at <= AHEAD {
            self.slide();
        }
    }

    /// Makes tokens while there are `least` bytes ahead.
    fn work(&mut self, least: usize, output: &mut Output) {
        let chained = self.window.end.saturating_sub(UNCHAINED);
        self.chain_history(chained);
        match self.effort.next {
            Next::Chained(most) => {
                if self.silent_until > 0 && !self.work_in_silence(least, most, chained) {
                    return;
                }
                while self.ahead() >= least {
                    self.take(most, chained);
                    if self.tokens.len() == BLOCK_TOKENS {
                        self.write_block(output);
                    }
                }
            }
            Next::Searched(below) => {
                while self.ahead() >= least {
                    self.weigh(below, chained);
                    if self.tokens.len() == BLOCK_TOKENS {
                        self.write_block(output);
                    }
                }
            }
        }
    }

    /// Puts places of the history into chains, up to `chained`.
    fn chain_history(&mut self, chained: usize) {
        while self.unchained.start < self.unchained.end.min(chained) {
            let place = self.unchained.start;
            let plain = self.window.before + place as u64;
            let is_chained = |&flush: &u64| plain >= flush || plain + (UNCHAINED as u64) < flush;
            if self.flushes.iter().all(is_chained) {
                self.window.insert(place);
            }
            self.unchained.start += 1;
        }
    }

    /// Whether the silence is over. If the last copy reaches beyond its end, the tokens were others than at the first time. All that follows is wrong
    /// then, as it would be anyway.
    fn work_in_silence(&mut self, least: usize, most: usize, chained: usize) -> bool {
        while self.window.before + (self.at as u64) < self.silent_until {
            if self.ahead() < least {
                return false;
            }
            self.take(most, chained);
            self.tokens.clear();
        }
        self.silent_until = 0;
        true
    }

    /// Levels 2 and 3: takes the copy for the next bytes, or a literal. Places before `chained` go into chains.
    #[inline]
    fn take(&mut self, most: usize, chained: usize) {
        let at = self.at;
        let mut copy = None;
        if at < chained {
            let distance = self.window.insert(at);
            copy = self.longest(distance, NONE);
        }
        let Some((length, distance)) = copy else {
            self.tokens.push(Token::literal(self.window.byte(at)));
            self.at += 1;
            return;
        };
        self.tokens.push(Token::copy(length, distance));
        self.at += length;
        if length <= most {
            self.insert(at + 1..self.at.min(chained));
        }
    }

    /// Levels 4 to 9: looks for a copy that is longer than the one of the byte before, and takes that one if there is none. A copy of `below`
    /// bytes or more is taken at once.
    #[inline]
    fn weigh(&mut self, below: usize, chained: usize) {
        let at = self.at;
        let mut copy = None;
        if at < chained {
            let distance = self.window.insert(at);
            if self.length < below && self.ahead() > self.length {
                copy = self.longest(distance, self.length);
            }
        }
        if copy.is_none() && self.length > NONE {
            self.tokens.push(Token::copy(self.length, self.distance));
            // The minimum matters only for a state that no encoder has made.
            self.at = (at + self.length - 1).min(self.window.end);
            self.insert(at + 1..self.at.min(chained));
            self.is_pending = false;
            self.length = NONE;
        } else {
            if self.is_pending {
                self.tokens.push(Token::literal(self.window.byte(at - 1)));
            }
            self.at += 1;
            self.is_pending = true;
            (self.length, self.distance) = copy.unwrap_or((NONE, 0));
        }
    }

    #[inline]
    fn longest(&self, distance: usize, length: usize) -> Option<(usize, usize)> {
        // At levels 2 and 3 the bytes of long copies are in no chain, and the last ones before a flush at none.
        let is_complete = matches!(self.effort.next, Next::Searched(_)) && self.flushes.is_empty();
        let most = (self.effort.places, self.effort.nice);
        self.window.longest(self.at, distance, length, most, is_complete)
    }

    #[inline]
    fn insert(&mut self, places: Range<usize>) {
        for place in places {
            self.window.insert(place);
        }
    }

    fn write_block(&mut self, output: &mut Output) {
        let end = self.at - usize::from(self.is_pending);
        let plain = self.window.since(self.block, end);
        self.blocks.smallest(&self.tokens, plain, &mut output.bits);
        self.tokens.clear();
        self.block = self.window.before + end as u64;
        self.end_of_block(output);
    }

    /// Tells the output that a block has ended.
    pub(super) fn end_of_block(&self, output: &mut Output) {
        output.end_of_block(self.block, || self.state());
    }
}
