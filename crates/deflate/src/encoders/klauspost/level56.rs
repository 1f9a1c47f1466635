//! Levels 5 and 6: one table by four bytes, and one by seven with the two last places. A copy gives way to a longer one that begins a byte later, or
//! that ends where the bytes after it are known.

use super::generation::Generation;
use super::tokens::Tokens;
use super::window::{Found, Pair, REACH, Table, Text, hash_of_4, hash_of_7};

const BITS: u32 = 15;
/// The longest copy of one token.
const LONGEST: i32 = 258;
/// At level 5, copies from this length on are not looked for by their end.
const LONG: i32 = 30;

/// The matcher of level 5, and of level 6 with `IS_SIX`.
#[derive(Debug, Clone)]
pub(super) struct Level56<const IS_SIX: bool> {
    short: Table<{ 1 << BITS }, i32>,
    long: Table<{ 1 << BITS }, Pair>,
    /// How many bytes of a copy may differ at its beginning when another one is looked for by its end.
    passed: i32,
    /// Whether another one is looked for so at all.
    looks_by_end: bool,
}

impl<const IS_SIX: bool> Level56<IS_SIX> {
    /// Where nothing is found, the longer the bytes since the last copy, the more are skipped.
    const SKIP: u32 = if IS_SIX { 7 } else { 6 };

    pub(super) fn new(generation: Generation) -> Self {
        Level56 {
            short: Table::new(),
            long: Table::new(),
            passed: if generation < Generation::V1_15_11 { 0 } else { 2 },
            looks_by_end: generation >= Generation::V1_12_3,
        }
    }

    pub(super) fn lessen(&mut self, less: i32) {
        self.short.lessen(less);
        self.long.lessen(less);
    }

    /// Makes tokens of the bytes from `start` on. None at all if there is no copy.
    pub(super) fn run(&mut self, text: Text<'_>, start: i32, tokens: &mut Tokens) {
        let mut first = start;
        let mut at = start;
        let mut bytes = text.eight(at);
        let mut distance = 1;
        while let Some((mut found, next)) = self.search(text, (at, bytes), first, distance) {
            if found.length == 0 {
                found.length = text.same(found.at + 4, found.from + 4) + 4;
            } else if found.length == LONGEST {
                found.length += text.same(found.at + LONGEST, found.from + LONGEST);
            }
            found = text.extended_back(self.better_by_end(text, found), first);
            distance = found.at - found.from;
            tokens.push_literals(text.slice(first, found.at));
            tokens.push_long_copy(found.length as usize, distance as usize);
            first = found.at + found.length;
            at = if next >= first { next + 1 } else { first };
            if at >= text.limit {
                if IS_SIX {
                    self.insert_rest(text, next + 1);
                }
                break;
            }
            if IS_SIX {
                self.insert_most(text, next + 1, at);
                bytes = text.eight(at);
            } else {
                self.insert_some(text, at - found.length + 1, at);
                let around = text.eight(at - 1);
                self.insert(text, at - 1, around);
                bytes = around >> 8;
            }
        }
        if first < text.end() && !tokens.is_empty() {
            tokens.push_literals(text.slice(first, text.end()));
        }
    }

    #[inline]
    fn insert(&mut self, text: Text<'_>, at: i32, bytes: u64) {
        self.short.set(hash_of_4::<BITS>(bytes), text.place(at));
        self.long.push(hash_of_7::<BITS>(bytes), text.place(at));
    }

    /// The next copy from `next` on, where `bytes` are, and the index that comes after those that were looked at.
    // One function, since the steps share the place and both candidates.
    #[inline]
    fn search(
        &mut self,
        text: Text<'_>,
        (mut next, mut bytes): (i32, u64),
        first: i32,
        distance: i32,
    ) -> Option<(Found, i32)> {
        loop {
            let at = next;
            next = at + 1 + ((at - first) >> Self::SKIP);
            if next > text.limit {
                return None;
            }
            let short = text.index(self.short.get(hash_of_4::<BITS>(bytes)));
            let [last, before] = self
                .long
                .get(hash_of_7::<BITS>(bytes))
                .map(|place| text.index(place));
            let ahead = text.eight(next);
            self.insert(text, at, bytes);
            let is_copy = |from: i32| at - from < REACH && bytes as u32 == text.four(from);
            if at - last < REACH {
                let found = match (is_copy(last), is_copy(before)) {
                    (true, true) => Some(longer_of(text, at, last, before)),
                    (true, false) => Some(Found::new(at, last)),
                    (false, true) => Some(Found::new(at, before)),
                    (false, false) => None,
                };
                if let Some(found) = found {
                    self.insert(text, next, ahead);
                    return Some((found, next));
                }
            }
            if is_copy(short) {
                let later = self.long.get(hash_of_7::<BITS>(ahead));
                self.insert(text, next, ahead);
                let found = measured(text, at, short);
                let found = longer_later(
                    text,
                    found,
                    (bytes, ahead),
                    next,
                    later,
                    IS_SIX.then_some(distance),
                );
                return Some((found, next));
            }
            bytes = ahead;
        }
    }

    /// Looks for a longer copy by what follows this one.
    #[inline]
    fn better_by_end(&self, text: Text<'_>, found: Found) -> Found {
        let end = found.at + found.length;
        if !self.looks_by_end || end >= text.limit || !IS_SIX && found.length >= LONG {
            return found;
        }
        let pair = self
            .long
            .get(hash_of_7::<BITS>(text.eight(end)))
            .map(|place| text.index(place));
        let at = found.at + self.passed;
        let mut best = found;
        for (turn, place) in pair.into_iter().enumerate().take(if IS_SIX { 2 } else { 1 }) {
            // The second time the length may be another one, and the place is then not that of the end.
            let from = place - best.length + self.passed;
            let distance = at - from;
            if distance >= REACH {
                if turn == 0 {
                    return best;
                }
                continue;
            }
            if distance > 0 && from >= 0 {
                let length = text.same(at, from);
                if length > best.length {
                    best = Found { at, from, length };
                }
            }
        }
        best
    }

    /// Level 5 fills in every third place within a copy.
    #[inline]
    fn insert_some(&mut self, text: Text<'_>, mut at: i32, end: i32) {
        if at >= end - 1 {
            return;
        }
        let bytes = text.eight(at);
        self.insert(text, at, bytes);
        self.long.push(hash_of_7::<BITS>(bytes >> 8), text.place(at + 1));
        self.short.set(hash_of_4::<BITS>(bytes >> 16), text.place(at + 2));
        at += 4;
        while at < end - 1 {
            let bytes = text.eight(at);
            self.long.push(hash_of_7::<BITS>(bytes), text.place(at));
            self.short.set(hash_of_4::<BITS>(bytes >> 8), text.place(at + 1));
            at += 3;
        }
    }

    /// Level 6 fills in every place within a copy, every second one only by seven bytes.
    #[inline]
    fn insert_most(&mut self, text: Text<'_>, mut at: i32, end: i32) {
        while at < end - 1 {
            let bytes = text.eight(at);
            self.insert(text, at, bytes);
            self.long.push(hash_of_7::<BITS>(bytes >> 8), text.place(at + 1));
            at += 2;
        }
    }

    /// Level 6 fills in every second place up to the end of the batch.
    fn insert_rest(&mut self, text: Text<'_>, mut at: i32) {
        while at < text.end() - 8 {
            self.insert(text, at, text.eight(at));
            at += 2;
        }
    }
}

/// A copy of whose bytes the first four are known to be the same.
#[inline]
fn measured(text: Text<'_>, at: i32, from: i32) -> Found {
    let length = text.same_in_copy(at + 4, from + 4) + 4;
    Found { at, from, length }
}

/// The longer of two copies, the nearer one if they are equal.
#[inline]
fn longer_of(text: Text<'_>, at: i32, last: i32, before: i32) -> Found {
    let near = measured(text, at, last);
    let far = measured(text, at, before);
    if far.length > near.length { far } else { near }
}

/// A copy, or a longer one that begins later: at the next byte from the distance of the copy before, if one is given, or at `next` from a place by
/// seven bytes. `bytes` are those at the copy and at `next`.
#[inline]
fn longer_later(
    text: Text<'_>,
    found: Found,
    bytes: (u64, u64),
    next: i32,
    later: Pair,
    distance: Option<i32>,
) -> Found {
    if let Some(distance) = distance {
        let from = found.at - distance + 1;
        if text.four(from) == (bytes.0 >> 8) as u32 {
            let again = measured(text, found.at + 1, from);
            if again.length > found.length {
                return again;
            }
        }
    }
    let mut best = found;
    let [last, before] = later.map(|place| text.index(place));
    if next - last >= REACH {
        return best;
    }
    for from in [last, before] {
        if next - from < REACH && text.four(from) == bytes.1 as u32 {
            let later = measured(text, next, from);
            if later.length > best.length {
                best = later;
                if distance.is_none() {
                    break;
                }
            }
        }
    }
    best
}
