//! Level 1: one table by five bytes, of which it fills in two of three places or fewer.

use super::tokens::Tokens;
use super::window::{Found, REACH, Table, Text, hash_of_5};

const BITS: u32 = 15;

/// The matcher of level 1.
#[derive(Debug, Clone)]
pub(super) struct Level1 {
    table: Table<{ 1 << BITS }, i32>,
}

impl Level1 {
    pub(super) fn new() -> Level1 {
        Level1 { table: Table::new() }
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
                        self.table.set(hash_of_5::<BITS>(text.eight(at)), text.place(at));
                    }
                    break 'search;
                }
                let around = text.eight(at - 2);
                self.table.set(hash_of_5::<BITS>(around), text.place(at - 2));
                let hash = hash_of_5::<BITS>(around >> 16);
                let from = text.index(self.table.get(hash));
                self.table.set(hash, text.place(at));
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

    /// The next copy from `at` on, where `bytes` are, and the index that comes after those that were looked at.
    #[inline]
    fn search(&mut self, text: Text<'_>, mut at: i32, mut bytes: u64, first: i32) -> Option<(Found, i32)> {
        loop {
            let hash = hash_of_5::<BITS>(bytes);
            let from = text.index(self.table.get(hash));
            let mut next = at + 2 + ((at - first) >> 5);
            if next > text.limit {
                return None;
            }
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
                self.table.set(hash, text.place(next));
                return Some((Found::new(at, from), next));
            }
            bytes = ahead >> 8;
            at = next;
        }
    }
}
