//! Makes corrections out of a stream.

use std::collections::VecDeque;

use super::profile::PROFILES;
use super::range::{Coder, Encoder, Price};
use super::stretch::{PART_PLAIN, Shape, Sight, Stretch, is_full};
use xebec_deflate::format::WINDOW;
use xebec_deflate::format::inflate::{BlockHead, BlockKind, Item};
use xebec_deflate::format::token::Token;

/// So much of a stretch is looked at.
#[derive(Debug, Clone, Copy)]
struct Sample {
    tokens: usize,
    plain: usize,
}

/// All profiles are tried on this much, at most,
const FIRST: Sample = Sample {
    tokens: 8_000,
    plain: 64 << 10,
};
/// and the best of them, this many, on this much. Deep searches in bytes that are all alike take long.
const BEST: usize = 6;
const SECOND: Sample = Sample {
    tokens: 100_000,
    plain: 1 << 20,
};
/// A profile is tried for so many tokens: a stream of many short members must not take long.
const TOKENS_OF_TRY: usize = 4;
/// If the profile of the stretch before costs less than a bit for so many tokens, no other is tried.
const FEW: u64 = 64;
/// Parts that wait for plain bytes behind them. Empty blocks have none.
const WAITING: usize = 1024;

/// A block, or a part of it.
#[derive(Debug, Clone)]
struct Part {
    /// The head of the block that begins with it.
    head: Option<BlockHead>,
    is_last: bool,
    tokens: Vec<Token>,
    /// The place after it.
    end: u64,
    /// Whether the block ends with it.
    ends: bool,
}

impl Part {
    /// How many plain bytes its tokens hold.
    fn plain_length(&self) -> usize {
        self.tokens.iter().map(|token| token.plain_length()).sum()
    }

    /// The beginning of it, as if nothing had come after that yet. `None` if all of it is in the sample.
    fn first(&self, sample: Sample) -> Option<Part> {
        let mut plain = 0;
        let first = self.tokens.iter().take(sample.tokens).take_while(|token| {
            plain += token.plain_length();
            plain <= sample.plain
        });
        let tokens: Vec<Token> = first.copied().collect();
        if tokens.len() == self.tokens.len() {
            return None;
        }
        let mut part = Part {
            head: self.head.clone(),
            is_last: self.is_last,
            tokens,
            end: self.end,
            ends: false,
        };
        part.end -= (self.plain_length() - part.plain_length()) as u64;
        Some(part)
    }
}

/// Takes a stream apart and makes corrections of it.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The plain bytes before the stretch, and those of it that no stretch has.
    history: Vec<u8>,
    plain: Vec<u8>,
    waiting: VecDeque<Part>,
    current: Option<Part>,
    /// The place after the tokens of `current`, and the place at which it began.
    place: u64,
    began: u64,
    /// The profile of the stretch before.
    likely: Option<usize>,
    at_work: Option<Work>,
}

/// A stretch of which the profile is known.
#[derive(Debug)]
struct Work {
    profile: usize,
    stretch: Stretch,
    encoder: Encoder,
}

impl Writer {
    /// A writer that begins after `history`, of which it takes the last 32 KiB.
    pub(crate) fn new(history: &[u8]) -> Writer {
        let history = history[history.len().saturating_sub(WINDOW)..].to_vec();
        let place = Writer::first_place(&history);
        Writer {
            history,
            plain: Vec::new(),
            waiting: VecDeque::new(),
            current: None,
            place,
            began: place,
            likely: None,
            at_work: None,
        }
    }

    fn first_place(history: &[u8]) -> u64 {
        super::window::Window::new(history).end()
    }

    /// Takes what an inflater gave in one call.
    pub(crate) fn write(&mut self, items: Vec<Item>, plain: &[u8]) {
        match &mut self.at_work {
            Some(work) => work.stretch.window.append(plain),
            None => self.plain.extend_from_slice(plain),
        }
        for item in items {
            match item {
                Item::Block(head) => {
                    self.began = self.place;
                    if let BlockKind::Stored { length, .. } = head.kind {
                        self.place += u64::from(length);
                    }
                    self.current = Some(Part {
                        is_last: head.is_last,
                        head: Some(head),
                        tokens: Vec::new(),
                        end: self.place,
                        ends: false,
                    });
                }
                Item::Tokens(tokens) => self.take(&tokens),
                Item::EndOfBlock { .. } => self.end_part(true),
            }
        }
        self.work(false);
    }

    fn take(&mut self, tokens: &[Token]) {
        for &token in tokens {
            let Some(current) = &mut self.current else { return };
            current.tokens.push(token);
            self.place += token.plain_length() as u64;
            if is_full(current.tokens.len(), self.place - self.began) {
                self.end_part(false);
            }
        }
    }

    fn end_part(&mut self, ends: bool) {
        let Some(mut part) = self.current.take() else {
            return;
        };
        part.end = self.place;
        part.ends = ends;
        if !ends {
            self.began = self.place;
            self.current = Some(Part {
                head: None,
                tokens: Vec::new(),
                ..part
            });
        }
        self.waiting.push_back(part);
    }

    /// Ends a stretch, at the end of a block, and begins another. Returns the corrections of the one that ends.
    pub(crate) fn cut(&mut self) -> Vec<u8> {
        self.work(true);
        let Some(mut work) = self.at_work.take() else {
            return Vec::new();
        };
        work.stretch.ends(&mut work.encoder, true);
        let place = work.stretch.place;
        let begin = place - (WINDOW as u64).min(place - Writer::first_place(&[]));
        *self = Writer::new(work.stretch.window.range(begin, place));
        self.likely = Some(work.profile);
        work.encoder.finish()
    }

    /// Codes what waits, if enough is known.
    fn work(&mut self, is_end: bool) {
        if self.at_work.is_none() {
            let tokens: usize = self.waiting.iter().map(|part| part.tokens.len()).sum();
            let plain = self.plain.len() as u64;
            if !is_end && tokens < SECOND.tokens && plain < PART_PLAIN && self.waiting.len() <= WAITING {
                return;
            }
            self.begin(is_end);
        }
        let Some(work) = &mut self.at_work else { return };
        let known = work.stretch.window.known();
        let ahead = work.stretch.parser.profile.ahead();
        while let Some(part) = self.waiting.front() {
            let sight = if known >= part.end + ahead {
                Sight::Usual
            } else if is_end {
                Sight::All
            } else if self.waiting.len() > WAITING {
                Sight::Place(known)
            } else {
                return;
            };
            code_part(
                &mut work.stretch,
                &mut work.encoder,
                part,
                sight,
                is_end && self.waiting.len() == 1,
            );
            self.waiting.pop_front();
            work.stretch.window.forget(work.stretch.place);
        }
    }

    /// Chooses a profile.
    fn begin(&mut self, is_end: bool) {
        let tokens: usize = self.waiting.iter().map(|part| part.tokens.len()).sum();
        let few = tokens.min(SECOND.tokens) as u64 / FEW;
        let is_right = |&likely: &usize| self.price(likely, SECOND, few, is_end).is_some();
        let profile = match self.likely.filter(is_right) {
            Some(likely) => likely,
            None => {
                let tried: Vec<usize> = (0..PROFILES.len()).take(1 + tokens / TOKENS_OF_TRY).collect();
                let best = self.best(&tried, FIRST, BEST, is_end);
                let best = match best[..] {
                    [] | [_] => best,
                    _ => self.best(&best, SECOND, 1, is_end),
                };
                best.first().copied().unwrap_or_default()
            }
        };
        if let Ok(mut stretch) = Stretch::new(&self.history, profile) {
            stretch.window.append(&self.plain);
            let mut encoder = Encoder::default();
            encoder.code_even(profile as u32, 8);
            self.at_work = Some(Work {
                profile,
                stretch,
                encoder,
            });
            self.plain = Vec::new();
        }
    }

    /// The profiles whose corrections of the first tokens cost least, `count` of them at most.
    fn best(&self, profiles: &[usize], sample: Sample, count: usize, is_end: bool) -> Vec<usize> {
        let mut best: Vec<(u64, usize)> = Vec::new();
        for &profile in profiles {
            let limit = best.get(count - 1).map_or(u64::MAX, |(price, _)| *price);
            if let Some(price) = self.price(profile, sample, limit, is_end) {
                best.push((price, profile));
                best.sort_unstable();
                best.truncate(count);
            }
        }
        best.into_iter().map(|(_, profile)| profile).collect()
    }

    /// How many bits the corrections of the first tokens cost. `None` if that is not below the limit.
    fn price(&self, profile: usize, mut left: Sample, limit: u64, is_end: bool) -> Option<u64> {
        let mut stretch = Stretch::new(&self.history, profile).ok()?;
        stretch.window.append(&self.plain);
        let mut price = Price::default();
        for (nth, part) in self.waiting.iter().enumerate() {
            let shorter = part.first(left);
            let is_all = is_end && shorter.is_none() && nth + 1 == self.waiting.len();
            let part = shorter.as_ref().unwrap_or(part);
            let sight = if stretch.window.known() >= part.end + stretch.parser.profile.ahead() {
                Sight::Usual
            } else {
                Sight::All
            };
            code_part(&mut stretch, &mut price, part, sight, is_all);
            if price.bits() >= limit {
                return None;
            }
            if shorter.is_some() {
                break;
            }
            left.tokens -= part.tokens.len();
            left.plain -= part.plain_length();
        }
        Some(price.bits())
    }
}

fn code_part(stretch: &mut Stretch, coder: &mut impl Coder, part: &Part, sight: Sight, is_all: bool) {
    let shape = Shape {
        tokens: part.tokens.len() as u32,
        end: part.end,
        is_part: !part.ends,
        is_all,
    };
    let began = stretch.place;
    if let Some(head) = &part.head {
        stretch.ends(coder, false);
        stretch.is_last(coder, head.is_last);
        let stored = match head.kind {
            BlockKind::Stored { length, padding } => Some((length, padding)),
            _ => None,
        };
        let room = (8 - (head.bit + 3) % 8) % 8;
        stretch.head(coder, head.is_last, room as u32, stored, shape);
        if let Some((length, _)) = stored {
            stretch.skip(u64::from(length));
            return;
        }
    } else {
        stretch.next_part(coder, part.is_last, shape);
    }
    stretch.sight(coder, sight);
    let knows_codes = stretch.parser.profile.knows_codes();
    if let Some(head) = part.head.as_ref().filter(|_| knows_codes) {
        stretch.tables(coder, &head.kind);
    }
    for &token in &part.tokens {
        let coded = stretch.token(coder, token);
        debug_assert_eq!(coded, Ok(token));
    }
    if let Some(head) = part.head.as_ref().filter(|_| !knows_codes) {
        stretch.tables(coder, &head.kind);
    }
    if part.ends {
        stretch.end_block(shape.tokens, stretch.place - began);
    }
}
