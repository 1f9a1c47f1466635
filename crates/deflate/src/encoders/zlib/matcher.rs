//! The window of plain bytes, and chains of places in it that have the same hash.

use crate::format::WINDOW;

/// Plain bytes that the window holds. When they are used up, the upper half moves to the lower one.
pub(super) const HELD: usize = 2 * WINDOW;
/// Bytes that the matcher wants ahead of it, but at the end: the longest copy, and what the hash after it needs.
pub(super) const AHEAD: usize = 258 + 3 + 1;
/// How far back a copy may reach.
pub(super) const REACH: usize = WINDOW - AHEAD;
/// The last place at which copies are searched for, since the bytes compared must be inside of the window.
const LAST_SEARCHED: usize = HELD - AHEAD;
/// Bytes compared at once go beyond the longest copy, to a whole number of words.
const COMPARED: usize = 264;
/// With bytes after the window, whose values never matter, so that reads need no check of their bounds.
const LENGTH: usize = HELD + 2 * COMPARED;

/// How much work a search may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// From this length of the copy at the place before on, the search follows a quarter of the chain.
    pub(super) good: usize,
    /// A copy of this length ends the search.
    pub(super) nice: usize,
    /// Places of a chain that are looked at.
    pub(super) chain: usize,
    /// Whether `nice` is no more than what is ahead, so that bytes after the end of the input decide nothing.
    pub(super) is_nice_within_input: bool,
}

/// The window and its chains. Places are offsets in the window. Place 0 begins no copy: it marks the end of a chain.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    bytes: Box<[u8; LENGTH]>,
    /// The first place that has no plain byte.
    pub(super) end: usize,
    hash_bits: u32,
    /// Of each hash: the last place that has it.
    heads: Box<[u16; 1 << 16]>,
    /// Of each place, by its lowest bits: the one before with the same hash.
    chains: Box<[u16; WINDOW]>,
}

impl Matcher {
    /// An empty window, with hashes of up to 16 bits.
    pub(super) fn new(hash_bits: u32) -> Matcher {
        Matcher {
            bytes: Box::new([0; LENGTH]),
            end: 0,
            hash_bits: hash_bits.min(16),
            heads: Box::new([0; 1 << 16]),
            chains: Box::new([0; WINDOW]),
        }
    }

    /// Begins again with plain bytes of which the last one is before place `end`.
    pub(super) fn reset(&mut self, plain: &[u8], end: usize) {
        self.end = end;
        self.bytes[end - plain.len()..end].copy_from_slice(plain);
    }

    /// Makes all chains empty.
    pub(super) fn forget_chains(&mut self) {
        self.heads[..1 << self.hash_bits].fill(0);
    }

    /// Takes plain bytes as far as there is room, and returns how many.
    pub(super) fn fill(&mut self, plain: &[u8]) -> usize {
        let taken = plain.len().min(HELD - self.end);
        self.bytes[self.end..self.end + taken].copy_from_slice(&plain[..taken]);
        self.end += taken;
        taken
    }

    /// The plain bytes of a block.
    pub(super) fn plain(&self, places: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[places]
    }

    /// The byte at a place.
    #[inline]
    pub(super) fn byte(&self, place: usize) -> u8 {
        self.bytes[place & (HELD - 1)]
    }

    /// Moves the upper half of the window to the lower one. The upper half keeps its bytes.
    pub(super) fn slide(&mut self) {
        self.bytes.copy_within(WINDOW..HELD, 0);
        self.end -= WINDOW;
        let heads = &mut self.heads[..1 << self.hash_bits];
        for place in heads.iter_mut().chain(self.chains.iter_mut()) {
            *place = place.saturating_sub(WINDOW as u16);
        }
    }

    /// Sets the bytes after the end to what sliding leaves there: those of one window before.
    pub(super) fn repeat_after_end(&mut self) {
        for place in self.end.max(WINDOW)..HELD {
            self.bytes[place] = self.bytes[place - WINDOW];
        }
    }

    /// Sets the two bytes after the end to zero.
    pub(super) fn zero_after_end(&mut self) {
        self.bytes[self.end..self.end + 2].fill(0);
    }

    /// Puts a place at the head of its chain, and returns the head before. There are three bytes from the place on.
    #[inline]
    pub(super) fn insert(&mut self, place: usize) -> usize {
        let place = place & (HELD - 1);
        let byte = |offset: usize| u32::from(self.bytes[place + offset]);
        let shift = self.hash_bits.div_ceil(3);
        let hash = (byte(0) << (2 * shift) ^ byte(1) << shift ^ byte(2)) & ((1 << self.hash_bits) - 1);
        let head = &mut self.heads[hash as usize & 0xffff];
        let before = std::mem::replace(head, place as u16);
        self.chains[place % WINDOW] = before;
        usize::from(before)
    }

    /// The length of the longest copy for a place, and its distance. Copies of `least` or fewer bytes are not found; then the length is `least`,
    /// and the distance has no meaning. `head` is what [`Matcher::insert`] returned; `least` is the length that was found for the place before, 2
    /// to 258.
    #[inline]
    pub(super) fn longest(&self, place: usize, head: usize, least: usize, effort: Effort) -> (usize, usize) {
        let ahead = self.end - place;
        let limit = place.saturating_sub(REACH);
        let nice = if effort.is_nice_within_input {
            effort.nice.min(ahead)
        } else {
            effort.nice
        };
        let mut chain = if least >= effort.good {
            effort.chain / 4
        } else {
            effort.chain
        };
        let (mut longest, mut distance) = (least, 0);
        let mut candidate = head & (HELD - 1);
        let here = place & (HELD - 1);
        // There is always such a chunk.
        while let Some(ends) = self.bytes[longest - 1..].first_chunk::<{ HELD + 1 }>() {
            // A longer copy has these two bytes, too.
            let wanted = [ends[here], ends[here + 1]];
            while [ends[candidate], ends[candidate + 1]] != wanted {
                candidate = usize::from(self.chains[candidate % WINDOW]);
                chain -= 1;
                if candidate <= limit || chain == 0 {
                    return (longest.min(ahead), distance);
                }
            }
            let length = self.common(here, candidate);
            if length > longest {
                (longest, distance) = (length, here - candidate);
                if length >= nice {
                    break;
                }
            }
            candidate = usize::from(self.chains[candidate % WINDOW]);
            chain -= 1;
            if candidate <= limit || chain == 0 {
                break;
            }
        }
        (longest.min(ahead), distance)
    }

    /// How many bytes at two places are the same, up to the longest copy.
    #[inline]
    fn common(&self, place: usize, other: usize) -> usize {
        let here = self.bytes[place & (HELD - 1)..].first_chunk::<COMPARED>();
        let there = self.bytes[other & (HELD - 1)..].first_chunk::<COMPARED>();
        let (Some(here), Some(there)) = (here, there) else {
            return 0;
        };
        let words = here.as_chunks::<8>().0.iter().zip(there.as_chunks::<8>().0);
        for (index, (here, there)) in words.enumerate() {
            let different = u64::from_le_bytes(*here) ^ u64::from_le_bytes(*there);
            if different != 0 {
                return (8 * index + different.trailing_zeros() as usize / 8).min(258);
            }
        }
        258
    }
}

/// Whether copies are searched for at a place, for which a chain has this head.
#[inline]
pub(super) fn is_searched(place: usize, head: usize) -> bool {
    head != 0 && place - head <= REACH && place <= LAST_SEARCHED
}
