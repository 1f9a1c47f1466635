//! Says what an encoder of some profile would write next.

use super::chain::{Candidate, Chains, Wanted};
use super::cheapest::Cheapest;
use super::frequencies::{Frequencies, Lengths};
use super::habit::Habits;
use super::profile::{Choice, Profile};
use super::window::{Window, common};
use xebec_deflate::format::COPY_LENGTHS;
use xebec_deflate::format::token::Token;

const LONGEST: u32 = *COPY_LENGTHS.end() as u32;

/// What is to be written next, and why.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Guess {
    /// The copy that begins here, if there is one worth it.
    pub(super) copy: Option<Candidate>,
    /// The copy that begins one byte later, if it makes the encoder write a literal first.
    pub(super) later: Option<Candidate>,
    /// How much the next best costs more, if that is known.
    pub(super) margin: u8,
}

impl Guess {
    /// The copy to be written, or `None` for a literal.
    pub(super) fn taken(&self) -> Option<Candidate> {
        self.copy.filter(|_| self.later.is_none())
    }
}

/// Follows an encoder through the plain bytes.
#[derive(Debug, Clone)]
pub(super) struct Parser {
    pub(super) profile: Profile,
    pub(super) chains: Chains,
    pub(super) habits: Habits,
    /// The first place that was not entered yet (or passed over).
    entered: u64,
    /// A place where a search was made before its turn, and what it found.
    pending: Option<(u64, Option<Candidate>)>,
    /// Where a pair of bytes begins.
    pair: u64,
    shortest: Shortest,
    pub(super) cheapest: Option<Box<Cheapest>>,
}

impl Parser {
    /// A parser that begins at `place`, with the bytes from `history` on before it.
    pub(super) fn new(profile: Profile, window: &Window, history: u64, place: u64) -> Parser {
        let mut parser = Parser {
            profile,
            chains: Chains::new(&profile),
            habits: Habits::default(),
            entered: history,
            pending: None,
            pair: place,
            shortest: Shortest::default(),
            cheapest: None,
        };
        if matches!(profile.choice, Choice::Cheapest | Choice::CheapestByLast) {
            parser.cheapest = Some(Box::new(Cheapest::new(
                &profile,
                &super::tables::fixed(),
                window,
                history,
                place,
            )));
        }
        parser.enter(window, place);
        parser
    }

    /// A block begins.
    pub(super) fn begin_block(&mut self, place: u64, words: &Lengths) {
        if let Some(cheapest) = &mut self.cheapest {
            cheapest.begin_block(words);
        }
        self.shortest.begins = Some(place);
    }

    /// How often the symbols of the block that begins come, roughly.
    pub(super) fn expected(&mut self, window: &Window, place: u64, block_end: u64) -> Frequencies {
        match &mut self.cheapest {
            Some(cheapest) => cheapest.expected(window, place, block_end),
            None => Frequencies::default(),
        }
    }

    /// Enters all places before `to`.
    #[inline]
    fn enter(&mut self, window: &Window, to: u64) {
        for place in self.entered..to {
            self.chains.enter(window, place);
        }
        self.entered = self.entered.max(to);
    }

    /// The longest copy at a place that is longer than `longer`.
    #[inline]
    fn search(&mut self, window: &Window, place: u64, longer: u32, depth: u32) -> Option<Candidate> {
        let wanted = Wanted {
            longer,
            depth,
            nice: self.profile.nice,
            most: (window.end() - place).min(u64::from(LONGEST)) as u32,
        };
        let found = self.chains.longest(window, place, wanted);
        let shortest = self.profile.shortest;
        found.filter(|found| {
            found.length >= shortest && (found.length > shortest || found.distance <= self.profile.far)
        })
    }

    /// What comes at `place`.
    #[inline]
    pub(super) fn guess(&mut self, window: &Window, place: u64, block_end: u64) -> Guess {
        self.enter(window, place);
        if let Some(cheapest) = &mut self.cheapest {
            let plan = cheapest.guess(window, place, block_end);
            return Guess {
                copy: plan.copy,
                later: None,
                margin: plan.margin,
            };
        }
        if self.profile.choice == Choice::Pairs {
            return self.pairs(window, place);
        }
        let least = if self.profile.adapts {
            self.shortest.at(window, place, &self.profile)
        } else {
            0
        };
        let copy = match self.pending.take() {
            Some((at, found)) if at == place => found,
            _ if self.profile.choice == Choice::Recent => self.recent(window, place),
            _ => self.search(window, place, least.max(1) - 1, self.profile.depth),
        };
        let Some(found) = copy else {
            return Guess::default();
        };
        match self.profile.choice {
            Choice::Greedy | Choice::Pairs | Choice::Recent | Choice::Cheapest | Choice::CheapestByLast => {
                Guess {
                    copy,
                    ..Guess::default()
                }
            }
            Choice::Lazy => {
                let later = self.later(window, place, found);
                Guess {
                    copy,
                    later,
                    margin: 0,
                }
            }
            Choice::Shifting => self.shifting(window, place, found),
            Choice::Weighed | Choice::WeighedTwice => {
                let later = self.weighed(window, place, found);
                Guess {
                    copy,
                    later,
                    margin: 0,
                }
            }
        }
    }

    fn later(&mut self, window: &Window, place: u64, found: Candidate) -> Option<Candidate> {
        if found.length >= self.profile.lazy || place + 1 >= window.end() {
            return None;
        }
        self.enter(window, place + 1);
        let depth = self.profile.depth >> if found.length >= self.profile.good { 2 } else { 0 };
        let later = self.search(window, place + 1, found.length, depth);
        if later.is_some() {
            self.pending = Some((place + 1, later));
        }
        later
    }

    /// Whether the copy after the one that was found can begin earlier.
    fn shifting(&mut self, window: &Window, place: u64, found: Candidate) -> Guess {
        let taken = Guess {
            copy: Some(found),
            later: None,
            margin: 0,
        };
        let next_place = place + u64::from(found.length);
        if next_place >= window.end() {
            return taken;
        }
        self.enter(window, next_place);
        let next = self.search(window, next_place, 0, self.profile.depth);
        self.pending = Some((next_place, next));
        let Some(next) = next else { return taken };
        let (bytes, at) = window.at(next_place);
        let room = (found.length.min(LONGEST - 2 - next.length.min(LONGEST - 2)) as usize)
            .min(at - (next.distance as usize).min(at));
        let backwards = |back: usize| bytes[at - 1 - back] == bytes[at - 1 - back - next.distance as usize];
        let moved = (0..room).take_while(|&back| backwards(back)).count() as u32;
        if moved + 1 < found.length || found.length < 2 {
            return taken;
        }
        let longer = Candidate {
            length: next.length + moved,
            distance: next.distance,
        };
        if moved == found.length {
            self.pending = None;
            return Guess {
                copy: Some(longer),
                later: None,
                margin: 0,
            };
        }
        self.pending = Some((place + 1, Some(longer)));
        Guess {
            copy: Some(found),
            later: Some(longer),
            margin: 0,
        }
    }

    fn weighed(&mut self, window: &Window, place: u64, found: Candidate) -> Option<Candidate> {
        if found.length >= self.profile.nice {
            return None;
        }
        let steps = if self.profile.choice == Choice::WeighedTwice {
            2
        } else {
            1
        };
        for step in 1..=steps {
            let next_place = place + step;
            if next_place >= window.end() {
                return None;
            }
            self.enter(window, next_place);
            let depth = self.profile.depth >> step;
            let Some(next) = self.search(window, next_place, found.length - 1, depth) else {
                continue;
            };
            let gain = 4 * (next.length as i32 - found.length as i32) + found.distance.ilog2() as i32
                - next.distance.ilog2() as i32;
            if gain > if step == 1 { 2 } else { 6 } {
                self.pending = Some((next_place, Some(next)));
                return Some(next);
            }
        }
        None
    }

    fn pairs(&mut self, window: &Window, place: u64) -> Guess {
        const LONG: u32 = 8;
        if place == self.pair + 1 {
            let copy = match self.pending.take() {
                Some((at, found)) if at == place => found,
                _ => self.search(window, place, 0, self.profile.depth),
            };
            return Guess {
                copy,
                later: None,
                margin: 0,
            };
        }
        self.pair = place;
        let copy = self.search(window, place, 0, self.profile.depth);
        if copy.is_some_and(|copy| copy.length >= LONG) || place + 1 >= window.end() {
            return Guess {
                copy,
                later: None,
                margin: 0,
            };
        }
        self.enter(window, place + 1);
        let next = self.search(window, place + 1, 0, self.profile.depth);
        self.pending = Some((place + 1, next));
        Guess {
            copy,
            later: next.filter(|next| next.length >= LONG),
            margin: 0,
        }
    }

    /// The nearest copy from a place that the encoder has likely entered.
    fn recent(&mut self, window: &Window, place: u64) -> Option<Candidate> {
        let mut found = None;
        let (bytes, at) = window.at(place);
        let most = (window.end() - place).min(u64::from(LONGEST)) as u32;
        let habits = &self.habits;
        self.chains.each(window, place, self.profile.depth, |distance| {
            if !habits.is_entered(place - u64::from(distance)) {
                return true;
            }
            let length = common(bytes, at - distance as usize, at, most as usize) as u32;
            if length >= self.profile.shortest {
                found = Some(Candidate { length, distance });
            }
            false
        });
        found
    }

    /// Goes on after what was written at `place`.
    #[inline]
    pub(super) fn advance(&mut self, window: &Window, place: u64, token: Token) {
        let length = token.plain_length() as u32;
        self.chains.grant(length);
        if self.profile.adapts && token.copy_length() == 0 {
            self.shortest.count(token.byte());
        }
        if self.profile.choice == Choice::Recent {
            self.learn(window, place, token);
        }
        let inner = if length > self.profile.entered {
            0
        } else {
            self.profile.inner
        };
        if length > inner {
            self.enter(window, place + 1 + u64::from(inner));
            let end = place + u64::from(length);
            if self.profile.last && self.entered < end {
                self.chains.enter(window, end - 1);
            }
            self.entered = self.entered.max(end);
            return;
        }
        self.enter(window, place + u64::from(length));
    }

    /// Learns from which places copies come.
    fn learn(&mut self, window: &Window, place: u64, token: Token) {
        let length = token.copy_length();
        if length > 0 {
            let (bytes, at) = window.at(place);
            let habits = &mut self.habits;
            self.chains.each(window, place, self.profile.depth, |distance| {
                let from = at - distance as usize;
                if distance as usize == token.distance() {
                    habits.learn(place - u64::from(distance), true);
                    return false;
                }
                if bytes[from..].starts_with(&bytes[at..at + length.min(4)]) {
                    habits.learn(place - u64::from(distance), false);
                }
                true
            });
        }
        self.habits.note(place, token.plain_length() as u64, length > 0);
    }

    /// Passes over stored bytes.
    pub(super) fn skip(&mut self, window: &Window, to: u64) {
        self.chains.grant((to - self.entered.min(to)).min(1 << 20) as u32);
        self.enter(window, to);
        if let Some(cheapest) = &mut self.cheapest {
            cheapest.skip(window, to);
        }
    }
}

/// libdeflate's shortest copy: longer where few different bytes are literals.
#[derive(Debug, Clone)]
struct Shortest {
    /// A block has begun here, and no token of it came.
    begins: Option<u64>,
    begun: u64,
    /// Where it is decided anew.
    next: u64,
    shortest: u32,
    literals: Box<[u32; 256]>,
}

impl Default for Shortest {
    fn default() -> Shortest {
        Shortest {
            begins: None,
            begun: 0,
            next: u64::MAX,
            shortest: 3,
            literals: Box::new([0; 256]),
        }
    }
}

impl Shortest {
    /// Bytes at the beginning of a block that are looked at.
    const FIRST: u64 = 4096;
    /// Bytes after which it is decided anew.
    const AGAIN: u64 = 10_000;
    /// Blocks shorter than this have no limit.
    const SMALL: u64 = 512;

    fn count(&mut self, byte: u8) {
        self.literals[usize::from(byte)] += 1;
    }

    fn at(&mut self, window: &Window, place: u64, profile: &Profile) -> u32 {
        if let Some(begins) = self.begins.take() {
            let there = (window.end() - begins.min(window.end())).min(Self::FIRST);
            let mut used = [false; 256];
            let (bytes, at) = window.at(begins);
            for &byte in &bytes[at..at + there as usize] {
                used[usize::from(byte)] = true;
            }
            let used = used.iter().filter(|used| **used).count();
            self.shortest = if there < Self::SMALL {
                3
            } else {
                Self::of(used, profile.depth)
            };
            *self.literals = [0; 256];
            (self.begun, self.next) = (begins, begins + Self::AGAIN);
        }
        if place >= self.next && profile.choice != Choice::Greedy {
            let all: u32 = self.literals.iter().sum();
            let used = self.literals.iter().filter(|count| **count > all >> 10).count();
            self.shortest = Self::of(used, profile.depth);
            self.next += place - self.begun;
        }
        self.shortest
    }

    fn of(used: usize, depth: u32) -> u32 {
        let length = match used {
            0..6 => 9,
            6..8 => 8,
            8..10 => 7,
            10..16 => 6,
            16..45 => 5,
            45..80 => 4,
            _ => 3,
        };
        match depth {
            0..5 => length.min(4),
            5..10 => length.min(5),
            10..16 => length.min(7),
            _ => length,
        }
    }
}
