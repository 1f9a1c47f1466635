//! The window of levels 7 to 9, and the chains by which earlier bytes are found in it.
//!
//! The window holds 64 KiB. When it is full and read up, its second half moves to the front. A chain leads from each place to the one before it whose
//! four bytes have the same hash.

use super::window::common;
use crate::format::WINDOW;
use crate::format::token::{DISTANCES, LENGTHS, distance_symbol, length_symbol};

/// The bytes of the window.
pub(super) const SIZE: usize = 2 * WINDOW;
/// The shortest copy that is looked for.
pub(super) const SHORTEST: usize = 4;
/// The longest copy.
pub(super) const LONGEST: usize = 258;
/// Bytes that the matcher wants to have before it.
pub(super) const AHEAD: usize = SHORTEST + LONGEST;
const HASH_BITS: u32 = 17;
const FIRST_SHIFT: u32 = 1;
/// Entries are counted anew when the shift is larger. Tests reach it.
const LAST_SHIFT: u32 = if cfg!(test) { 1 << 20 } else { 1 << 28 };
/// A copy must spare more bits than these to be one at all.
const LEAST_GAIN: i32 = 4;
/// The bits that a copy is taken to cost before its extra bits.
const BASE_COST: i32 = 3;

/// How far a level searches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// A copy of this length is good enough.
    pub(super) nice: usize,
    /// How many places of a chain are tried.
    pub(super) chain: usize,
}

/// A copy: its length, and how far back it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) length: usize,
    pub(super) distance: usize,
}

impl Copy {
    /// No copy: shorter than each one.
    pub(super) const NONE: Copy = Copy {
        length: SHORTEST - 1,
        distance: 0,
    };
}

/// The window and its chains.
#[derive(Debug, Clone)]
pub(super) struct Chains {
    bytes: Vec<u8>,
    /// By hash: the last place, as its index and the shift then. Zero: none.
    heads: Vec<u32>,
    /// By the index of a place in a window: the place before it.
    before: Vec<u32>,
    shift: u32,
    /// Of each index from the one on at which [`Chains::measure`] began: the bits that the literals before it take.
    costs: Vec<i32>,
}

impl Chains {
    pub(super) fn new() -> Chains {
        Chains {
            bytes: Vec::with_capacity(SIZE),
            heads: vec![0; 1 << HASH_BITS],
            before: vec![0; WINDOW],
            shift: FIRST_SHIFT,
            costs: Vec::new(),
        }
    }

    pub(super) fn restart(&mut self) {
        self.bytes.clear();
        self.heads.fill(0);
        self.before.fill(0);
        self.shift = FIRST_SHIFT;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The index after the last byte.
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Takes as many bytes as there is room for, and returns how many.
    pub(super) fn fill(&mut self, plain: &[u8]) -> usize {
        let taken = plain.len().min(SIZE - self.bytes.len());
        self.bytes.extend_from_slice(&plain[..taken]);
        taken
    }

    /// Moves the second half of a full window to the front.
    pub(super) fn shift(&mut self) {
        self.bytes.drain(..WINDOW);
        self.shift += WINDOW as u32;
        if self.shift > LAST_SHIFT {
            let less = self.shift - FIRST_SHIFT;
            self.shift = FIRST_SHIFT;
            for place in self.heads.iter_mut().chain(&mut self.before) {
                *place = place.saturating_sub(less);
            }
        }
    }

    /// Where four bytes with the hash of those here were last, if not before the window. The four bytes are there.
    #[inline]
    fn last_like(&self, at: usize) -> (usize, i32) {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        let four = bytes.map_or(0, |four| u32::from_le_bytes(*four));
        let hash = (four.wrapping_mul(2_654_435_761) >> (32 - HASH_BITS)) as usize;
        (hash, self.heads[hash].wrapping_sub(self.shift) as i32)
    }

    /// The index of the last four bytes that are like those here, about; negative if they lie before the window.
    #[inline]
    pub(super) fn like(&self, at: usize) -> i32 {
        self.last_like(at).1
    }

    /// Adds a place to its chain. Returns the index of the place before it, negative if that lies before the window.
    #[inline]
    pub(super) fn insert(&mut self, at: usize) -> i32 {
        let (hash, last) = self.last_like(at);
        self.before[at % WINDOW] = self.heads[hash];
        self.heads[hash] = at as u32 + self.shift;
        last
    }

    /// Adds places to their chains.
    pub(super) fn insert_all(&mut self, places: std::ops::Range<usize>) {
        for at in places {
            self.insert(at);
        }
    }

    /// Prepares for searches that weigh a copy against literals: takes the cost of a literal from so many bytes after `at`.
    pub(super) fn measure(
        &mut self,
        at: usize,
        counted: usize,
        lengths_of: impl FnOnce(&[u16; 256]) -> [u8; 256],
    ) {
        let mut frequencies = [0_u16; 256];
        for &byte in self.bytes[at..].iter().take(counted) {
            let count = &mut frequencies[usize::from(byte)];
            *count = count.wrapping_add(1);
        }
        let lengths = lengths_of(&frequencies);
        self.costs.clear();
        self.costs.resize(at, 0);
        let mut sum = 0;
        self.costs.push(sum);
        self.costs.extend(self.bytes[at..].iter().map(|&byte| {
            sum += i32::from(lengths[usize::from(byte)]);
            sum
        }));
    }

    /// The best copy to an index, along the chain that begins at `from`, of no more bytes than there are. `None`: there is none.
    ///
    /// The longest is best, or, if `by_gain`, one that is longer than those before it and spares more.
    pub(super) fn search(&self, at: usize, from: i32, effort: Effort, by_gain: bool) -> Option<Copy> {
        let most = LONGEST.min(self.end() - at);
        let here = &self.bytes[at..at + most];
        let nice = effort.nice.min(most);
        let nearest = at.saturating_sub(WINDOW);
        let mut best = Copy::NONE;
        let mut gain = LEAST_GAIN;
        let mut from = usize::try_from(from).ok()?;
        for _ in 0..effort.chain {
            let there = self.bytes.get(from..from + most)?;
            if there[best.length] == here[best.length] {
                let length = common(here, there) as usize;
                if length > best.length {
                    let distance = at - from;
                    let new_gain = if by_gain {
                        self.gain(at, length, distance)
                    } else {
                        gain + 1
                    };
                    if new_gain > gain {
                        best = Copy { length, distance };
                        gain = if by_gain { new_gain } else { gain };
                        if length >= nice {
                            break;
                        }
                    }
                }
            }
            if from <= nearest {
                break;
            }
            let next = self.before[from % WINDOW].wrapping_sub(self.shift) as i32;
            match usize::try_from(next) {
                Ok(next) if next >= nearest => from = next,
                _ => break,
            }
        }
        (best != Copy::NONE).then_some(best)
    }

    /// The bits that a copy spares.
    fn gain(&self, at: usize, length: usize, distance: usize) -> i32 {
        let literals = self.costs[at + length] - self.costs[at];
        // The encoder takes the distance for one more than it is, and the largest for a small one.
        let symbol = if distance < WINDOW {
            distance_symbol(distance + 1)
        } else {
            14
        };
        let extra = DISTANCES[symbol].1 + LENGTHS[length_symbol(length)].1;
        literals - BASE_COST - i32::from(extra)
    }
}
