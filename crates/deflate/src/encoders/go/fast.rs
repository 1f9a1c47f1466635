//! The matcher of level 1. It works on pieces of up to 65,535 bytes, each of which becomes a block, and finds copies in the piece and in the one
//! before.
//!
//! A table has one place for each hash of four bytes. The matcher takes the copy that stands there, however short, and skips more and more bytes
//! the longer it finds none.

use super::blocks::STORED_MOST;
use super::words::{common, eight, four, spread, zeroed};
use crate::format::token::Token;
use crate::format::{COPY_LENGTHS, WINDOW};

const TABLE_BITS: u32 = 14;
const TABLE: usize = 1 << TABLE_BITS;
/// The matcher stops so many bytes before the end of a piece.
const MARGIN: usize = 15;
/// The least piece to look for copies in.
pub(super) const LEAST: usize = MARGIN + 2;
/// A copy is found by its first bytes.
const FOUND: usize = 4;
/// The place of the first byte: an entry that was never set is too far back then.
const FIRST: u32 = WINDOW as u32 + 1;
/// Places are counted anew from here on.
const RENUMBERED: u32 = 1 << 22;

/// Four bytes, and where they were last.
#[derive(Clone, Copy, Default)]
struct Entry {
    bytes: u32,
    place: u32,
}

/// The matcher of level 1.
pub(super) struct Fast {
    table: Box<[Entry; TABLE]>,
    /// The place of the first byte of the current piece. Places are in order of the stream, and otherwise mean nothing.
    now: u32,
}

#[inline]
fn slot(bytes: u32) -> usize {
    (spread(bytes) >> (32 - TABLE_BITS)) as usize
}

impl Fast {
    pub(super) fn new() -> Fast {
        Fast {
            table: zeroed(),
            now: FIRST,
        }
    }

    /// Forgets all earlier bytes.
    pub(super) fn forget(&mut self) {
        self.now += WINDOW as u32;
        self.renumber();
    }

    /// Keeps places small. What is too far back stays so.
    fn renumber(&mut self) {
        if self.now < RENUMBERED {
            return;
        }
        let less = self.now - FIRST;
        for entry in self.table.iter_mut() {
            entry.place = entry.place.saturating_sub(less);
        }
        self.now = FIRST;
    }

    /// Appends the tokens of a piece, which is `bytes` from `start` on. The piece before it is `bytes` up to there. A copy may begin before
    /// `bytes`, where short pieces came before: then only its first four bytes are known, and it has no more.
    pub(super) fn tokens(&mut self, bytes: &[u8], start: usize, tokens: &mut Vec<Token>) {
        debug_assert!((LEAST..=STORED_MOST).contains(&(bytes.len() - start)));
        self.renumber();
        let emitted = self.search(bytes, start, tokens);
        tokens.extend(bytes[emitted..].iter().map(|&byte| Token::literal(byte)));
        self.now += (bytes.len() - start) as u32;
    }

    /// Appends tokens up to the last copy; returns where that ends.
    #[inline]
    fn search(&mut self, bytes: &[u8], start: usize, tokens: &mut Vec<Token>) -> usize {
        let limit = bytes.len() - MARGIN;
        // The place of `bytes[at]` is `at` and this.
        let shift = self.now.wrapping_sub(start as u32);
        let table = &mut *self.table;
        let mut literals = start;
        let mut at = start;
        let mut word = four(bytes, at);
        loop {
            // After 32 looks in vain the matcher looks at each second byte, after 32 more bytes at each third one, and so on.
            let mut skip = 32;
            let mut next = at;
            let mut distance = loop {
                at = next;
                let step = skip >> 5;
                next = at + step;
                skip += step;
                if next > limit {
                    return literals;
                }
                let place = shift.wrapping_add(at as u32);
                let entry = &mut table[slot(word)];
                let found = std::mem::replace(entry, Entry { bytes: word, place });
                let distance = (place - found.place) as usize;
                if distance <= WINDOW && found.bytes == word {
                    break distance;
                }
                word = four(bytes, next);
            };
            tokens.extend(bytes[literals..at].iter().map(|&byte| Token::literal(byte)));
            loop {
                let length = FOUND + more(bytes, at + FOUND, distance);
                tokens.push(Token::copy(length, distance));
                at += length;
                literals = at;
                if at >= limit {
                    return literals;
                }
                // The last byte of the copy and the one after it go into the table; others of the copy do not.
                let next_eight = eight(bytes, at - 1);
                let place = shift.wrapping_add(at as u32);
                let before = next_eight as u32;
                table[slot(before)] = Entry {
                    bytes: before,
                    place: place - 1,
                };
                let here = (next_eight >> 8) as u32;
                let found = std::mem::replace(&mut table[slot(here)], Entry { bytes: here, place });
                distance = (place - found.place) as usize;
                if distance > WINDOW || found.bytes != here {
                    word = (next_eight >> 16) as u32;
                    at += 1;
                    break;
                }
            }
        }
    }
}

/// How many bytes from `at` on go on a copy that was found by its first bytes.
#[inline]
fn more(bytes: &[u8], at: usize, distance: usize) -> usize {
    let Some(from) = at.checked_sub(distance) else {
        return 0;
    };
    let most = (bytes.len() - at).min(COPY_LENGTHS.end() - FOUND);
    common(bytes, from, at, most)
}
