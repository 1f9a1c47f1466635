//! Level 4: one table by four bytes and one by seven; a copy by four bytes gives way to a longer one by seven that begins a little later.

use super::generation::Generation;
use super::tokens::Tokens;
use super::window::{Found, REACH, Table, Text, hash_of_4, hash_of_7};

const BITS: u32 = 15;

/// The matcher of level 4.
#[derive(Debug, Clone)]
pub(super) struct Level4 {
    short: Table<{ 1 << BITS }, i32>,
    long: Table<{ 1 << BITS }, i32>,
    /// Whether two copies are compared by their lengths.
    is_right: bool,
}

impl Level4 {
    pub(super) fn new(generation: Generation) -> Level4 {
        Level4 {
            short: Table::new(),
            long: Table::new(),
            is_right: generation < Generation::V1_18_0,
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
        while let Some((mut found, next)) = self.search(text, at, bytes, first) {
            found.length = text.same(found.at + 4, found.from + 4) + 4;
            found = text.extended_back(found, first);
            tokens.push_literals(text.slice(first, found.at));
            tokens.push_long_copy(found.length as usize, (found.at - found.from) as usize);
            first = found.at + found.length;
            at = if next >= first { next + 1 } else { first };
            if at >= text.limit {
                if at + 8 < text.end() {
                    self.insert(text, at, text.eight(at));
                }
                break;
            }
            let mut inside = next;
            while inside < at - 1 {
                let bytes = text.eight(inside);
                self.long.set(hash_of_7::<BITS>(bytes), text.place(inside));
                self.long
                    .set(hash_of_7::<BITS>(bytes >> 8), text.place(inside + 1));
                self.short
                    .set(hash_of_4::<BITS>(bytes >> 8), text.place(inside + 1));
                inside += 3;
            }
            let around = text.eight(at - 1);
            self.insert(text, at - 1, around);
            bytes = around >> 8;
        }
        if first < text.end() && !tokens.is_empty() {
            tokens.push_literals(text.slice(first, text.end()));
        }
    }

    #[inline]
    fn insert(&mut self, text: Text<'_>, at: i32, bytes: u64) {
        self.short.set(hash_of_4::<BITS>(bytes), text.place(at));
        self.long.set(hash_of_7::<BITS>(bytes), text.place(at));
    }

    /// The next copy from `next` on, where `bytes` are, and the index that comes after those that were looked at.
    #[inline]
    fn search(&mut self, text: Text<'_>, mut next: i32, mut bytes: u64, first: i32) -> Option<(Found, i32)> {
        loop {
            let at = next;
            next = at + 1 + ((at - first) >> 6);
            if next > text.limit {
                return None;
            }
            let short = text.index(self.short.get(hash_of_4::<BITS>(bytes)));
            let long = text.index(self.long.get(hash_of_7::<BITS>(bytes)));
            let ahead = text.eight(next);
            self.insert(text, at, bytes);
            if at - long < REACH && bytes as u32 == text.four(long) {
                let found = Found::new(at, long);
                return Some((found, next));
            }
            if at - short < REACH && bytes as u32 == text.four(short) {
                let found = Found::new(at, short);
                let later = text.index(self.long.get(hash_of_7::<BITS>(ahead)));
                // From 1.18.0 on the encoder measures the later copy at its distance, as if that were its index.
                let compared = if self.is_right { later } else { next - later };
                let is_later = next - later < REACH
                    && text.four(later) == ahead as u32
                    && text.same(next + 4, compared + 4) > text.same(at + 4, short + 4);
                let later = Found::new(next, later);
                return Some((if is_later { later } else { found }, next));
            }
            bytes = ahead;
        }
    }
}
