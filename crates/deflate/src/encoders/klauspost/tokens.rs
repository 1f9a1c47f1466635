//! The tokens of a block, and how often each symbol occurs in them.

use super::generation::Generation;
use crate::format::token::{DISTANCES, LENGTHS, Token, distance_symbol, length_symbol};
use crate::format::{DISTANCE_SYMBOLS, END_OF_BLOCK, LITERAL_SYMBOLS};

/// The longest copy.
const LONGEST: usize = 258;
/// The shortest copy.
const SHORTEST: usize = 3;

/// How often each symbol occurs. The sixteen bits are the encoder's own: no block has more tokens.
#[derive(Debug, Clone)]
pub(super) struct Frequencies {
    pub(super) literals: [u16; LITERAL_SYMBOLS],
    pub(super) distances: [u16; DISTANCE_SYMBOLS],
}

impl Frequencies {
    /// The bits that follow symbols of copies.
    pub(super) fn extra_bits(&self) -> usize {
        let lengths = self.literals[END_OF_BLOCK + 1..].iter().zip(&LENGTHS);
        let distances = self.distances.iter().zip(&DISTANCES);
        lengths
            .chain(distances)
            .map(|(&count, &(_, extra))| usize::from(count) * usize::from(extra))
            .sum()
    }

    /// Lets one distance occur where there is none, so that there is a code of distances.
    pub(super) fn have_distance(&mut self) {
        if self.distances.iter().all(|&count| count == 0) {
            self.distances[0] = 1;
        }
    }

    /// How many bits optimal codes would need, about, if there are so many literals and lengths. A symbol costs what is within the bounds.
    ///
    /// The order of the additions and their precision are the encoder's: the result decides on blocks.
    pub(super) fn estimated_bits(&self, count: usize, bounds: (f32, f32)) -> usize {
        let part = 1.0 / count as f32;
        let (literals, lengths) = self.literals.split_at(END_OF_BLOCK);
        let mut bits = sum_of_symbols(0.0, literals, part, bounds);
        // The end of the block.
        bits += 15.0;
        let lengths = &lengths[1..];
        bits = sum_of_symbols(bits, lengths, part, bounds);
        let copies: usize = lengths.iter().map(|&count| usize::from(count)).sum();
        if copies > 0 {
            bits = sum_of_symbols(bits, &self.distances, 1.0 / copies as f32, bounds);
            bits as usize + self.extra_bits()
        } else {
            bits as usize
        }
    }
}

/// How many bits an optimal code would need for bytes, about, if they are `count` in all. Each costs one bit or more.
pub(super) fn estimated_bits_of(literals: &[u16], count: usize) -> f32 {
    sum_of_symbols(0.0, literals, 1.0 / count as f32, (1.0, f32::INFINITY))
}

/// Adds the bits of symbols, one after the other.
fn sum_of_symbols(bits: f32, frequencies: &[u16], part: f32, bounds: (f32, f32)) -> f32 {
    let used = frequencies.iter().filter(|&&count| count > 0);
    used.fold(bits, |bits, &count| {
        let count = f32::from(count);
        bits + (-logarithm(count * part)).clamp(bounds.0, bounds.1) * count
    })
}

/// Tokens that are not written yet.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    list: Vec<Token>,
    frequencies: Frequencies,
    /// The copies into which longer ones are cut, as long as more is left than one and the shortest.
    part: usize,
}

impl Tokens {
    pub(super) fn new(generation: Generation) -> Tokens {
        Tokens {
            part: if generation < Generation::V1_15_1 {
                LONGEST - SHORTEST
            } else {
                LONGEST
            },
            list: Vec::new(),
            frequencies: Frequencies {
                literals: [0; LITERAL_SYMBOLS],
                distances: [0; DISTANCE_SYMBOLS],
            },
        }
    }

    pub(super) fn list(&self) -> &[Token] {
        &self.list
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How often each symbol occurs. The end of the block is not among them.
    pub(super) fn frequencies(&self) -> &Frequencies {
        &self.frequencies
    }

    pub(super) fn clear(&mut self) {
        if !self.list.is_empty() {
            self.list.clear();
            self.frequencies.literals.fill(0);
            self.frequencies.distances.fill(0);
        }
    }

    #[inline]
    pub(super) fn push_literal(&mut self, byte: u8) {
        self.list.push(Token::literal(byte));
        self.frequencies.literals[usize::from(byte)] += 1;
    }

    #[inline]
    pub(super) fn push_literals(&mut self, bytes: &[u8]) {
        self.list.extend(bytes.iter().map(|&byte| Token::literal(byte)));
        for &byte in bytes {
            self.frequencies.literals[usize::from(byte)] += 1;
        }
    }

    /// Adds a copy of 258 bytes at most.
    #[inline]
    pub(super) fn push_copy(&mut self, length: usize, distance: usize) {
        self.list.push(Token::copy(length, distance));
        self.frequencies.literals[END_OF_BLOCK + 1 + length_symbol(length)] += 1;
        self.frequencies.distances[distance_symbol(distance)] += 1;
    }

    /// Adds a copy of any length from 3 on, as several tokens if need be, none of which is shorter than 3.
    #[inline]
    pub(super) fn push_long_copy(&mut self, mut length: usize, distance: usize) {
        while length > LONGEST {
            let part = if length > LONGEST + SHORTEST {
                self.part
            } else {
                LONGEST - SHORTEST
            };
            self.push_copy(part, distance);
            length -= part;
        }
        if length > 0 {
            self.push_copy(length, distance);
        }
    }
}

/// The binary logarithm, about: the exponent, and a parabola over the mantissa.
fn logarithm(value: f32) -> f32 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 128;
    let mantissa = f32::from_bits((bits & !0x7f80_0000).wrapping_add(127 << 23));
    exponent as f32 + ((-0.344_848_43 * mantissa + 2.024_665_8) * mantissa - 0.674_877_6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_are_cut_into_copies_that_exist() {
        for length in 3..4_000 {
            let generations = [Generation::V1_14_4, Generation::V1_15_1];
            let mut tokens = Tokens::new(generations[length % 2]);
            tokens.push_long_copy(length, 7);
            let lengths: Vec<usize> = tokens.list().iter().map(|token| token.copy_length()).collect();
            assert_eq!(lengths.iter().sum::<usize>(), length);
            assert!(lengths.iter().all(|part| (3..=258).contains(part)), "{lengths:?}");
        }
    }

    #[test]
    fn the_logarithm_is_about_right() {
        for value in [0.000_02_f32, 0.01, 0.3, 0.5, 0.99] {
            assert!((logarithm(value) - value.log2()).abs() < 0.02, "{value}");
        }
    }
}
