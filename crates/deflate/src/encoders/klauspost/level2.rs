//! Level 2: as level 1, with a larger table, of which it fills in more places within copies.

use super::tokens::Tokens;
use super::window::{Found, REACH, Table, Text, hash_of_5};

const BITS: u32 = 17;

/// The matcher of level 2.
#[derive(Debug, Clone)]
pub(super) struct Level2 {
    table: Table<{ 1 << BITS }, i32>,
}

impl Level2 {
    pub(super) fn new() -> Level2 {
        Level2 { table: Table::new() }
    }

    pub(super) fn lessen(&mut self, less: i32) {
        self.table.lessen(less);
    }

    /// Makes tokens of the bytes from `start` on. None at all if there is no copy.
    pub(super) fn run(&mut self, text: Text<'_>, start: i32, tokens: &mut Tokens) {
        let mut first = start;
        let mut at = start;
        let mut bytes = text.eight(at);
        'search: while let Some((found, next)) = self.search(text, at, bytes, first) {
            let mut found = found;
            loop {
                found.length = text.same(found.at + 4, found.from + 4) + 4;
                found = text.extended_back(found, first);
                tokens.push_literals(text.slice(first, found.at));
                tokens.push_long_copy(found.length as usize, (found.at - found.from) as usize);
                first = found.at + found.length;
                at = if next >= first { next + 1 } else { first };
                if at >= text.limit {
                    if at + found.length + 8 < text.end() {
                        self.insert(text, at, text.eight(at));
                    }
                    break 'search;
                }
                let mut inside = at - found.length + 2;
                while inside < at - 5 {
                    let bytes = text.eight(inside);
                    self.insert(text, inside, bytes);
                    self.insert(text, inside + 2, bytes >> 16);
                    self.insert(text, inside + 4, bytes >> 32);
                    inside += 7;
                }
                let around = text.eight(at - 2);
                self.insert(text, at - 2, around);
                self.insert(text, at - 1, around >> 8);
                let from = text.index(self.table.get(hash_of_5::<BITS>(around >> 16)));
                self.insert(text, at, around >> 16);
                if at - from > REACH || (around >> 16) as u32 != text.four(from) {
                    bytes = around >> 24;
                    at += 1;
                    break;
                }
                found = Found::new(at, from);
            }
        }
        if first < text.end() && !tokens.is_empty() {
            tokens.push_literals(text.slice(first, text.end()));
        }
    }

    #[inline]
    fn insert(&mut self, text: Text<'_>, at: i32, bytes: u64) {
        self.table.set(hash_of_5::<BITS>(bytes), text.place(at));
    }

    /// The next copy from `next` on, where `bytes` are, and the index that comes after those that were looked at.
    #[inline]
    fn search(&mut self, text: Text<'_>, mut next: i32, mut bytes: u64, first: i32) -> Option<(Found, i32)> {
        loop {
            let hash = hash_of_5::<BITS>(bytes);
            let mut at = next;
            next = at + 2 + ((at - first) >> 5);
            if next > text.limit {
                return None;
            }
            let from = text.index(self.table.get(hash));
            let ahead = text.eight(next);
            self.table.set(hash, text.place(at));
            let hash = hash_of_5::<BITS>(ahead);
            if at - from < REACH && bytes as u32 == text.four(from) {
                self.table.set(hash, text.place(next));
                return Some((Found::new(at, from), next));
            }
            // The index after the skipped ones, too, and the one after that at once.
            bytes = ahead;
            at = next;
            next += 1;
            let from = text.index(self.table.get(hash));
            self.table.set(hash, text.place(at));
            if at - from < REACH && bytes as u32 == text.four(from) {
                return Some((Found::new(at, from), next));
            }
            bytes = ahead >> 8;
        }
    }
}
