//! Adaptive models of bits and of small numbers, built on [`Coder`].
//!
//! All arithmetic is in whole numbers, so what one machine writes every other one reads.

use super::range::{Coder, ONE};

/// How likely a bit is set, learned from the bits before it. Early bits count much, later ones less, down to one part in [`Bit::SLOWEST`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Bit {
    /// The upper 22 bits are the probability, the lower ten are how many bits there were.
    state: u32,
}

impl Default for Bit {
    fn default() -> Bit {
        Bit { state: 1 << 31 }
    }
}

/// 65,536 divided by a count and a half, for the pace at which a [`Bit`] learns.
const PACE: [u32; Bit::SLOWEST as usize + 1] = {
    let mut pace = [0; Bit::SLOWEST as usize + 1];
    let mut count = 0;
    while count < pace.len() {
        pace[count] = (65_536 * 2 / (2 * count + 3)) as u32;
        count += 1;
    }
    pace
};

impl Bit {
    const SLOWEST: u32 = 255;
    const COUNT: u32 = 0x3ff;

    /// A bit that is set once in `1 << zeros` times, as far as is known before any came.
    pub(super) fn rare(zeros: u32) -> Bit {
        Bit {
            state: (1 << (32 - zeros)) & !Self::COUNT | 2,
        }
    }

    /// The probability, of [`ONE`].
    #[inline]
    pub(super) fn probability(self) -> u32 {
        (self.state >> 16).clamp(1, ONE - 1)
    }

    /// Learns from a bit.
    #[inline]
    pub(super) fn learn(&mut self, bit: bool, slowest: u32) {
        let count = self.state & Self::COUNT;
        let probability = self.state >> 10;
        let pace = u64::from(PACE[count.min(Self::SLOWEST) as usize]);
        let probability = if bit {
            probability + ((u64::from((1 << 22) - 1 - probability) * pace) >> 16) as u32
        } else {
            probability - ((u64::from(probability) * pace) >> 16) as u32
        };
        self.state = probability << 10 | (count + u32::from(count < slowest));
    }

    /// Codes a bit and learns from it.
    #[inline]
    pub(super) fn code(&mut self, coder: &mut impl Coder, bit: bool) -> bool {
        let bit = coder.code(bit, self.probability());
        self.learn(bit, Self::SLOWEST);
        bit
    }
}

/// A number of `WIDTH` bits, the highest first, each in the context of those before it. `SIZE` is 1 << `WIDTH`.
#[derive(Debug, Clone)]
pub(super) struct Tree<const SIZE: usize> {
    bits: [Bit; SIZE],
}

impl<const SIZE: usize> Default for Tree<SIZE> {
    fn default() -> Self {
        Tree {
            bits: [Bit::default(); SIZE],
        }
    }
}

impl<const SIZE: usize> Tree<SIZE> {
    /// Codes a number below `SIZE`.
    #[inline]
    pub(super) fn code(&mut self, coder: &mut impl Coder, value: usize) -> usize {
        let mut node = 1;
        for place in (0..SIZE.ilog2()).rev() {
            let bit = self.bits[node].code(coder, value >> place & 1 == 1);
            node = node << 1 | usize::from(bit);
        }
        node - SIZE
    }
}

/// A number of any size up to 32 bits: how many bits it has, the first ones after the top, then the rest, of which only the lowest three are learned.
#[derive(Debug, Clone)]
pub(super) struct Number {
    width: Tree<64>,
    upper: Box<[Tree<8>; 33]>,
    lower: Box<[Tree<8>; 33]>,
}

impl Default for Number {
    fn default() -> Number {
        Number {
            width: Tree::default(),
            upper: Box::new(std::array::from_fn(|_| Tree::default())),
            lower: Box::new(std::array::from_fn(|_| Tree::default())),
        }
    }
}

impl Number {
    /// Codes a number.
    pub(super) fn code(&mut self, coder: &mut impl Coder, value: u32) -> u32 {
        let width = self
            .width
            .code(coder, (32 - value.leading_zeros()) as usize)
            .min(32);
        if width < 2 {
            return width as u32;
        }
        // After the top bit: three bits of their own, bits of equal chances, three bits of their own again.
        let mut left = width as u32 - 1;
        let mut read = 1_u32;
        let mut tree = &mut self.upper[width];
        loop {
            let taken = left.min(3);
            left -= taken;
            let part = (value >> left & 7) as usize;
            let kept = if taken == 3 {
                part
            } else {
                part & ((1 << taken) - 1)
            };
            read = read << taken | tree.code(coder, kept) as u32 & ((1 << taken) - 1);
            while left > 3 {
                let even = (left - 3).min(16);
                left -= even;
                read = read << even | coder.code_even(value >> left & ((1 << even) - 1), even);
            }
            if left == 0 {
                return read;
            }
            tree = &mut self.lower[width];
        }
    }
}
