//! Hash chains: for a place, the earlier places whose first bytes are likely the same, the nearest first.

use super::profile::{Hash, Profile};
use super::window::{Window, common};
use xebec_deflate::format::{COPY_LENGTHS, WINDOW};

/// Steps along chains that each plain byte allows, whatever the profile. Long chains are walked by what short ones leave, so a stream can make a
/// predictor slow only by a factor.
const STEPS_PER_BYTE: u32 = 512;
/// How many steps may be saved.
const SAVED: u32 = 1 << 22;
/// How many steps a search may take at least.
const LEAST_STEPS: u32 = 16;
const HEADS: usize = 1 << 18;

/// A copy that could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Candidate {
    pub(super) length: u32,
    pub(super) distance: u32,
}

/// What a search looks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Longer than this.
    pub(super) longer: u32,
    pub(super) depth: u32,
    pub(super) nice: u32,
    /// The longest copy that the bytes there are allow.
    pub(super) most: u32,
}

/// Which places begin with the same bytes.
#[derive(Debug, Clone)]
pub(super) struct Chains {
    hash: Hash,
    /// Of each hash: the last place.
    heads: Vec<u32>,
    /// Of each place: the one before it with the same hash.
    before: Box<[u32; WINDOW]>,
    /// Of each hash of three bytes: the last place. Empty if the profile has none.
    threes: Vec<u32>,
    window: u32,
    gives_up: bool,
    steps: u32,
}

impl Chains {
    pub(super) fn new(profile: &Profile) -> Chains {
        let bits = match profile.hash {
            Hash::Shifted(shift) => 3 * shift,
            Hash::ShiftedFour => 15,
            Hash::Product(_, bits)
            | Hash::Reversed(_, bits)
            | Hash::Castagnoli(bits)
            | Hash::CastagnoliThree(bits) => bits,
        };
        debug_assert!(1 << bits <= HEADS);
        Chains {
            hash: profile.hash,
            heads: vec![0; 1 << bits],
            before: Box::new([0; WINDOW]),
            threes: vec![0; if profile.has_threes { 1 << 15 } else { 0 }],
            window: profile.window,
            gives_up: profile.gives_up,
            steps: SAVED,
        }
    }

    /// Of the bytes at an index, if there are enough.
    #[inline]
    fn slot(&self, bytes: &[u8], at: usize) -> Option<usize> {
        if let Hash::Shifted(shift) = self.hash {
            let &[a, b, c] = bytes.get(at..at + 3)? else {
                return None;
            };
            let hash = (u32::from(a) << (2 * shift)) ^ (u32::from(b) << shift) ^ u32::from(c);
            return Some(hash as usize & (self.heads.len() - 1));
        }
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        let hash = match self.hash {
            Hash::Product(factor, bits) => u32::from_le_bytes(four).wrapping_mul(factor) >> (32 - bits),
            Hash::Reversed(factor, bits) => u32::from_be_bytes(four).wrapping_mul(factor) >> (32 - bits),
            Hash::ShiftedFour => u32::from_le_bytes(four).wrapping_mul(66521).wrapping_add(66521) >> 16,
            Hash::CastagnoliThree(_) => castagnoli([four[0], four[1], four[2], 0]),
            Hash::Castagnoli(_) | Hash::Shifted(_) => castagnoli(four),
        };
        Some(hash as usize & (self.heads.len() - 1))
    }

    #[inline]
    fn three(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let &[a, b, c] = bytes.get(at..at + 3)? else {
            return None;
        };
        Some((u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x1e35_a7bd) >> 17) as usize)
    }

    /// Enters a place.
    #[inline]
    pub(super) fn enter(&mut self, window: &Window, place: u64) {
        let (bytes, at) = window.at(place);
        if !self.threes.is_empty()
            && let Some(slot) = self.three(bytes, at)
        {
            self.threes[slot] = place as u32;
        }
        if let Some(slot) = self.slot(bytes, at) {
            self.before[place as usize % WINDOW] = self.heads[slot];
            self.heads[slot] = place as u32;
        }
    }

    /// Grants the steps of some plain bytes.
    #[inline]
    pub(super) fn grant(&mut self, bytes: u32) {
        self.steps = (self.steps + bytes * STEPS_PER_BYTE).min(SAVED);
    }

    /// The longest copy at a place, the nearest of those of its length.
    #[inline]
    pub(super) fn longest(&mut self, window: &Window, place: u64, wanted: Wanted) -> Option<Candidate> {
        let mut found = None;
        self.walk(window, place, wanted, |candidate| found = Some(candidate));
        found
    }

    /// Tells the distances of the places of a chain, until it has heard enough (false).
    #[inline]
    pub(super) fn each(
        &mut self,
        window: &Window,
        place: u64,
        depth: u32,
        mut tell: impl FnMut(u32) -> bool,
    ) {
        let (bytes, at) = window.at(place);
        let Some(slot) = self.slot(bytes, at) else { return };
        let farthest = self.window.min(at as u32);
        let mut next = self.heads[slot];
        let granted = depth.min(self.steps.max(LEAST_STEPS));
        let mut left = granted;
        while left > 0 {
            left -= 1;
            let distance = (place as u32).wrapping_sub(next);
            next = self.before[next as usize % WINDOW];
            if distance == 0 {
                continue;
            }
            if distance > farthest || !tell(distance) {
                break;
            }
        }
        self.steps = self.steps.saturating_sub(granted - left);
    }

    /// Walks a chain and tells each candidate that is longer than those before it. The steps that it takes are those of `grant`.
    // One function, since the search keeps its best copy, its steps and its place from one end to the other.
    #[inline]
    pub(super) fn walk(
        &mut self,
        window: &Window,
        place: u64,
        wanted: Wanted,
        mut tell: impl FnMut(Candidate),
    ) {
        let (bytes, at) = window.at(place);
        let mut longest = wanted.longer.max(2);
        if longest >= wanted.most {
            return;
        }
        let Some(slot) = self.slot(bytes, at) else { return };
        let farthest = self.window.min(at as u32);
        if farthest == 0 {
            return;
        }
        if longest < 3 && !self.threes.is_empty() {
            let Some(three) = self.three(bytes, at) else {
                return;
            };
            let distance = (place as u32).wrapping_sub(self.threes[three]);
            if distance == 0 || distance > farthest {
                return;
            }
            let from = at - distance as usize;
            if bytes[from..from + 3] == bytes[at..at + 3] {
                longest = 3;
                tell(Candidate { length: 3, distance });
                if longest >= wanted.most {
                    return;
                }
            }
        }
        let mut next = self.heads[slot];
        let mut left = wanted.depth.min(self.steps.max(LEAST_STEPS));
        let mut ahead = 2 * *COPY_LENGTHS.end() as u32;
        let granted = left;
        let most = wanted.most as usize;
        let ends = |index: usize, longest: u32| {
            u16::from_le_bytes([
                bytes[index + longest as usize - 1],
                bytes[index + longest as usize],
            ])
        };
        let mut wanted_end = ends(at, longest);
        while left > 0 {
            let distance = (place as u32).wrapping_sub(next);
            // The place itself and some later ones may have been entered.
            if distance.wrapping_sub(1) > farthest - 1 {
                if distance.wrapping_neg() > ahead {
                    break;
                }
                ahead -= 1;
                next = self.before[next as usize % WINDOW];
                continue;
            }
            next = self.before[next as usize % WINDOW];
            left -= 1;
            let from = at - distance as usize;
            if ends(from, longest) != wanted_end {
                continue;
            }
            let length = common(bytes, from, at, most) as u32;
            if length > longest {
                longest = length;
                tell(Candidate { length, distance });
                if length >= wanted.nice || length >= wanted.most {
                    break;
                }
                wanted_end = ends(at, longest);
            } else if self.gives_up && seems_longer(bytes, from, at, longest as usize) {
                break;
            }
        }
        self.steps = self.steps.saturating_sub(granted - left);
    }
}

/// Whether the first and the last bytes of a copy longer than `longest` are there, as many as zlib-ng compares.
fn seems_longer(bytes: &[u8], from: usize, at: usize, longest: usize) -> bool {
    let width = match longest {
        0..4 => 2,
        4..8 => 4,
        _ => 8,
    };
    let (begin, end) = (0..width, longest + 1 - width..longest + 1);
    let same = |range: std::ops::Range<usize>| {
        bytes[from + range.start..from + range.end] == bytes[at + range.start..at + range.end]
    };
    same(end) && same(begin)
}

/// CRC-32C of four bytes, from zero, as the processor's instruction has it: neither inverted before nor after.
fn castagnoli(four: [u8; 4]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut value = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                value = value >> 1 ^ if value & 1 == 1 { 0x82f6_3b78 } else { 0 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };
    four.iter().fold(0, |value, byte| {
        value >> 8 ^ TABLE[((value ^ u32::from(*byte)) & 0xff) as usize]
    })
}
