//! Level 3: one table by five bytes, each entry with the two last places.

use super::tokens::Tokens;
use super::window::{Found, Pair, REACH, Table, Text, hash_of_5};

const BITS: u32 = 16;
/// How far back an entry may be. This level keeps four bytes more of a distance than the others.
const NEAR: i32 = REACH - 4;

/// The matcher of level 3.
#[derive(Debug, Clone)]
pub(super) struct Level3 {
    table: Table<{ 1 << BITS }, Pair>,
}

impl Level3 {
    pub(super) fn new() -> Level3 {
        Level3 { table: Table::new() }
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
                    let source = found.from + found.length;
                    if source + 8 < text.end() && source > 0 {
                        self.insert(text, source, text.eight(source));
                    }
                    break 'search;
                }
                let mut inside = at - found.length + 2;
                while inside < at - 5 {
                    self.insert(text, inside, text.eight(inside));
                    inside += 6;
                }
                let around = text.eight(at - 2);
                self.insert(text, at - 2, around);
                self.insert(text, at - 1, around >> 8);
                bytes = around >> 16;
                let pair = self.table.get(hash_of_5::<BITS>(bytes));
                self.insert(text, at, bytes);
                match near(text, at, bytes, pair) {
                    Some(from) => found = Found::new(at, from),
                    None => break,
                }
            }
            bytes >>= 8;
            at += 1;
        }
        if first < text.end() && !tokens.is_empty() {
            tokens.push_literals(text.slice(first, text.end()));
        }
    }

    #[inline]
    fn insert(&mut self, text: Text<'_>, at: i32, bytes: u64) {
        self.table.push(hash_of_5::<BITS>(bytes), text.place(at));
    }

    /// The next copy from `next` on, where `bytes` are, and the index that comes after those that were looked at.
    #[inline]
    fn search(&mut self, text: Text<'_>, mut next: i32, mut bytes: u64, first: i32) -> Option<(Found, i32)> {
        loop {
            let hash = hash_of_5::<BITS>(bytes);
            let at = next;
            next = at + 1 + ((at - first) >> 7);
            if next > text.limit {
                return None;
            }
            let [last, before] = self.table.get(hash).map(|place| text.index(place));
            let ahead = text.eight(next);
            self.table.push(hash, text.place(at));
            if at - last <= NEAR {
                let found = |from| Some((Found::new(at, from), next));
                if bytes as u32 == text.four(last) {
                    let is_before = at - before <= NEAR
                        && bytes as u32 == text.four(before)
                        && text.same(at + 4, before + 4) > text.same(at + 4, last + 4);
                    return found(if is_before { before } else { last });
                }
                if at - before < NEAR && bytes as u32 == text.four(before) {
                    return found(before);
                }
            }
            bytes = ahead;
        }
    }
}

/// Whether the bytes directly after a copy begin another one, and from where.
#[inline]
fn near(text: Text<'_>, at: i32, bytes: u64, pair: Pair) -> Option<i32> {
    let [last, before] = pair.map(|place| text.index(place));
    if at - last >= NEAR {
        return None;
    }
    if bytes as u32 == text.four(last) {
        return Some(last);
    }
    (at - before < NEAR && bytes as u32 == text.four(before)).then_some(before)
}
