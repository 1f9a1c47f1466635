//! The window of levels 2 to 9: bytes, and chains of places whose four bytes have the same hash.
//!
//! The window has twice the reach of a copy. When it is full, its upper half moves down. So at times fewer bytes than a copy could reach are left
//! before the next one, and those that are gone are not found.

use super::words::{common, four, spread, zeroed};
use crate::format::{COPY_LENGTHS, WINDOW};

/// Bytes in the window.
pub(super) const SIZE: usize = 2 * WINDOW;
/// The shortest copy that is looked for.
pub(super) const SHORTEST: usize = 4;
/// The matcher waits for so many bytes.
pub(super) const AHEAD: usize = SHORTEST + LONGEST;
/// A copy of [`SHORTEST`] bytes from further back than this costs more than literals.
const SHORT_REACH: usize = 4096;
const LONGEST: usize = *COPY_LENGTHS.end();
const HASH_BITS: u32 = 17;
const HEADS: usize = 1 << HASH_BITS;
/// A link that leads to no place.
const OUT_OF_REACH: u16 = u16::MAX;
/// The number of the first place: what has no number is out of its reach.
const FIRST: u32 = WINDOW as u32 + 1;
/// Places are numbered anew when the window begins at this number.
const RENUMBERED: u32 = 1 << 22;

/// The bytes and their chains.
pub(super) struct Window {
    bytes: Box<[u8; SIZE]>,
    /// Where the bytes end that have come.
    pub(super) end: usize,
    /// How many plain bytes come before the window.
    pub(super) before: u64,
    /// By hash: the number of the last place.
    heads: Box<[u32; HEADS]>,
    /// Of each place, in a ring: how far before it the one with the same hash is.
    links: Box<[u16; WINDOW]>,
    /// The number of the first place in the window.
    first: u32,
}

impl Window {
    /// A window that begins after so many plain bytes.
    pub(super) fn new(before: u64) -> Window {
        Window {
            bytes: zeroed(),
            end: 0,
            before,
            heads: zeroed(),
            links: zeroed(),
            first: FIRST,
        }
    }

    /// Puts bytes into a window that has none, so that they end before the place `end`.
    pub(super) fn place(&mut self, plain: &[u8], end: usize) {
        self.bytes[end - plain.len()..end].copy_from_slice(plain);
        self.end = end;
    }

    /// Appends bytes, as many as there is room for; returns the others.
    pub(super) fn fill<'a>(&mut self, plain: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = plain.split_at(plain.len().min(SIZE - self.end));
        self.bytes[self.end..self.end + taken.len()].copy_from_slice(taken);
        self.end += taken.len();
        rest
    }

    /// Moves the upper half down.
    pub(super) fn slide(&mut self) {
        self.bytes.copy_within(WINDOW.., 0);
        self.end -= WINDOW;
        self.before += WINDOW as u64;
        self.first += WINDOW as u32;
        if self.first >= RENUMBERED {
            let less = self.first - FIRST;
            for number in self.heads.iter_mut() {
                *number = number.saturating_sub(less);
            }
            self.first = FIRST;
        }
    }

    #[inline]
    pub(super) fn byte(&self, at: usize) -> u8 {
        self.bytes[at]
    }

    /// The bytes between two plain positions, if the first is still there.
    pub(super) fn since(&self, plain: u64, end: usize) -> Option<&[u8]> {
        let start = plain.checked_sub(self.before)?;
        self.bytes.get(usize::try_from(start).ok()?..end)
    }

    /// Puts the place into its chain. Four bytes from `at` on must be there. Returns how far back the place before it in the chain is, more than
    /// [`WINDOW`] if there is none within reach.
    #[inline]
    pub(super) fn insert(&mut self, at: usize) -> usize {
        let number = self.first + at as u32;
        let head = &mut self.heads[hash(&self.bytes[..], at)];
        let back = number - std::mem::replace(head, number);
        let back = u16::try_from(back).map_or(OUT_OF_REACH, |back| back);
        self.links[at % WINDOW] = back;
        usize::from(back)
    }

    /// The longest copy for the bytes at `at`, if any is longer than `length`: the first such of the `most` places in the chain, or the first of
    /// `nice` bytes or more. `distance` is that of the first place to look at. `length` is at least [`SHORTEST`] - 1, and more bytes than that are
    /// there. `is_complete` says that all places within reach are in chains: then it is known sooner that there is no longer copy.
    #[inline]
    pub(super) fn longest(
        &self,
        at: usize,
        mut distance: usize,
        mut length: usize,
        (most, nice): (usize, usize),
        is_complete: bool,
    ) -> Option<(usize, usize)> {
        let bytes = &self.bytes[..];
        let there = LONGEST.min(self.end - at);
        let nice = nice.min(there);
        let reach = at.min(WINDOW);
        if is_complete && !self.can_be_longer(at, distance, length) {
            return None;
        }
        let mut best = None;
        // A longer copy has these bytes where the best one so far ends.
        let mut last_four = four(bytes, at + length + 1 - SHORTEST);
        for _ in 0..most {
            if distance > reach {
                break;
            }
            let from = at - distance;
            if four(bytes, from + length + 1 - SHORTEST) == last_four {
                let same = common(bytes, from, at, there);
                if same > length && (same > SHORTEST || distance <= SHORT_REACH) {
                    length = same;
                    best = Some((length, distance));
                    if length >= nice || is_complete && !self.can_be_longer(at, distance, length) {
                        break;
                    }
                    last_four = four(bytes, at + length + 1 - SHORTEST);
                }
            }
            // If the place is as far back as can be, its link has been written over by that of `at`, which leads out of reach from there, too.
            distance += usize::from(self.links[from % WINDOW]);
        }
        best
    }

    /// Whether one of the places from `distance` back on can have a copy of more than `length` bytes for those at `at`. It has the last four of these bytes, too. If
    /// no place in their chain is within reach, the other chain, which may be long, need not be looked through. (A third of all places that were looked at
    /// in programs were looked at for nothing.)
    #[inline]
    fn can_be_longer(&self, at: usize, distance: usize, length: usize) -> bool {
        let last_four = length + 1 - SHORTEST;
        // Places after `at` are in no chain yet.
        if last_four == 0 || distance < last_four {
            return true;
        }
        let number = self.first + at as u32;
        let back = number - self.heads[hash(&self.bytes[..], at + last_four)];
        back as usize + last_four <= at.min(WINDOW)
    }
}

/// The chain of the four bytes at a place.
#[inline]
fn hash(bytes: &[u8], at: usize) -> usize {
    // Go's hash takes the first byte as the highest.
    (spread(four(bytes, at).swap_bytes()) >> (32 - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One less than the shortest copy, or than the bytes that a place in a chain has.
    const LESS: usize = SHORTEST - 1;

    proptest! {
        #[test]
        fn knowing_sooner_that_there_is_no_longer_copy_makes_no_difference(
            pieces in prop::collection::vec((prop::collection::vec(0..4_u8, 1..9), 1..30_usize), 1..60),
            lengths in prop::collection::vec(LESS..40, 1..20),
        ) {
            let plain: Vec<u8> = pieces.iter().flat_map(|(piece, times)| piece.repeat(*times)).collect();
            let mut window = Window::new(0);
            window.fill(&plain);
            for (at, length) in (0..plain.len().saturating_sub(LESS)).zip(lengths.iter().cycle()) {
                let distance = window.insert(at);
                if plain.len() - at > *length {
                    let longest = |is_complete| window.longest(at, distance, *length, (9, 258), is_complete);
                    prop_assert_eq!(longest(true), longest(false));
                }
            }
        }
    }
}
