//! The codes of a block, and the ways in which a batch can be written.

use super::header::Header;
use super::lengths::code_lengths;
use super::tokens::Frequencies;
use crate::format::huffman::{Code, fixed_lengths};
use crate::format::token::{DISTANCES, LENGTHS, Token, distance_symbol, length_symbol};
use crate::format::{DISTANCE_SYMBOLS, END_OF_BLOCK, LITERAL_SYMBOLS};
use xebec_bitstream::BitWriter;

/// The longest code word.
const LONGEST: usize = 15;
/// A distance to tell where there are none.
const ONE_DISTANCE: [u8; 1] = [1];

/// The two codes of a block.
#[derive(Debug, Clone)]
pub(super) struct Codes {
    literal_lengths: [u8; LITERAL_SYMBOLS],
    distance_lengths: [u8; DISTANCE_SYMBOLS],
    literals: Code,
    distances: Code,
}

impl Codes {
    fn of_lengths(literal_lengths: [u8; LITERAL_SYMBOLS], distance_lengths: [u8; DISTANCE_SYMBOLS]) -> Codes {
        Codes {
            literals: Code::of_lengths(&literal_lengths),
            distances: Code::of_lengths(&distance_lengths),
            literal_lengths,
            distance_lengths,
        }
    }

    /// The codes of the specification.
    pub(super) fn fixed() -> Codes {
        let (literals, distances) = fixed_lengths();
        let mut lengths = ([0; LITERAL_SYMBOLS], [0; DISTANCE_SYMBOLS]);
        lengths.0.copy_from_slice(&literals[..LITERAL_SYMBOLS]);
        lengths.1.copy_from_slice(&distances);
        // The specification has words for two symbols more, so its words are not those of these lengths alone.
        Codes {
            literals: Code::of_lengths(&literals),
            distances: Code::of_lengths(&distances),
            literal_lengths: lengths.0,
            distance_lengths: lengths.1,
        }
    }

    /// The bits that the symbols take.
    pub(super) fn bits_of(&self, frequencies: &Frequencies) -> usize {
        self.bits_of_literals(&frequencies.literals)
            + sum_of_bits(&frequencies.distances, &self.distance_lengths)
    }

    /// The bits that the first symbols of the code of literals take.
    pub(super) fn bits_of_literals(&self, frequencies: &[u16]) -> usize {
        sum_of_bits(frequencies, &self.literal_lengths)
    }

    /// The bits of the end of a block.
    pub(super) fn bits_of_end(&self) -> usize {
        usize::from(self.literal_lengths[END_OF_BLOCK])
    }

    /// Whether each symbol that occurs has a word.
    pub(super) fn cover(&self, frequencies: &Frequencies) -> bool {
        self.cover_literals(&frequencies.literals) && covers(&frequencies.distances, &self.distance_lengths)
    }

    /// Whether each of the first symbols of the code of literals has a word, if it occurs.
    pub(super) fn cover_literals(&self, frequencies: &[u16]) -> bool {
        covers(frequencies, &self.literal_lengths)
    }

    pub(super) fn put_end(&self, bits: &mut BitWriter) {
        self.literals.put(END_OF_BLOCK, bits);
    }

    /// Writes tokens. Several go into one word before it is put: a copy needs 48 bits at most, a literal fifteen.
    pub(super) fn put_tokens(&self, tokens: &[Token], bits: &mut BitWriter) {
        let (mut word, mut count) = (0_u64, 0_u32);
        for &token in tokens {
            let length = token.copy_length();
            if length == 0 {
                if count + 15 > BitWriter::MOST {
                    bits.put(word, count);
                    (word, count) = (0, 0);
                }
                let (code, bits_of_code) = self.literals.words[usize::from(token.byte())];
                word |= u64::from(code) << count;
                count += u32::from(bits_of_code);
                continue;
            }
            if count + 48 > BitWriter::MOST {
                bits.put(word, count);
                (word, count) = (0, 0);
            }
            let symbol = length_symbol(length);
            let (code, bits_of_code) = self.literals.words[END_OF_BLOCK + 1 + symbol];
            word |= u64::from(code) << count;
            count += u32::from(bits_of_code);
            let (first, extra) = LENGTHS[symbol];
            word |= ((length - usize::from(first)) as u64) << count;
            count += u32::from(extra);
            let distance = token.distance();
            let symbol = distance_symbol(distance);
            let (code, bits_of_code) = self.distances.words[symbol];
            word |= u64::from(code) << count;
            count += u32::from(bits_of_code);
            let (first, extra) = DISTANCES[symbol];
            word |= ((distance - usize::from(first)) as u64) << count;
            count += u32::from(extra);
        }
        bits.put(word, count);
    }

    /// Writes bytes as literals.
    pub(super) fn put_literals(&self, plain: &[u8], bits: &mut BitWriter) {
        for three in plain.chunks(3) {
            let (mut word, mut count) = (0_u64, 0_u32);
            for &byte in three {
                let (code, bits_of_code) = self.literals.words[usize::from(byte)];
                word |= u64::from(code) << count;
                count += u32::from(bits_of_code);
            }
            bits.put(word, count);
        }
    }
}

fn sum_of_bits(frequencies: &[u16], lengths: &[u8]) -> usize {
    let both = frequencies.iter().zip(lengths);
    both.map(|(&count, &length)| usize::from(count) * usize::from(length))
        .sum()
}

fn covers(frequencies: &[u16], lengths: &[u8]) -> bool {
    let mut both = frequencies.iter().zip(lengths);
    both.all(|(&count, &length)| count == 0 || length > 0)
}

/// How a batch is written.
pub(super) enum Choice {
    /// By the codes before it, in the same block.
    GoOn,
    /// In a block with codes of its own.
    New(Box<Codes>, Header),
    /// In a block with the codes of the specification.
    Fixed,
    /// As plain bytes.
    Stored,
}

impl Choice {
    /// Codes for the frequencies of a batch, and the head that tells them, or all lengths that there are.
    pub(super) fn new(frequencies: &Frequencies, tells_all: bool) -> Choice {
        let mut lengths = ([0; LITERAL_SYMBOLS], [0; DISTANCE_SYMBOLS]);
        code_lengths(&frequencies.literals, LONGEST, &mut lengths.0);
        code_lengths(&frequencies.distances, LONGEST, &mut lengths.1);
        let used = |lengths: &[u8]| {
            lengths
                .iter()
                .rposition(|&length| length > 0)
                .map_or(1, |last| last + 1)
        };
        let (literals, distances) = if tells_all {
            (LITERAL_SYMBOLS, DISTANCE_SYMBOLS)
        } else {
            (used(&lengths.0), used(&lengths.1))
        };
        let header = Header::of(&lengths.0[..literals], &lengths.1[..distances]);
        Choice::New(Box::new(Codes::of_lengths(lengths.0, lengths.1)), header)
    }

    /// A code for the frequencies of bytes and of the end of the block.
    pub(super) fn new_for_literals(frequencies: &[u16; END_OF_BLOCK + 1]) -> Choice {
        let mut lengths = [0; LITERAL_SYMBOLS];
        code_lengths(frequencies, LONGEST, &mut lengths);
        let header = Header::of(&lengths[..=END_OF_BLOCK], &ONE_DISTANCE);
        Choice::New(
            Box::new(Codes::of_lengths(lengths, [0; DISTANCE_SYMBOLS])),
            header,
        )
    }

    /// The number of the choice in a cut. 0: the batch after the cut chooses by itself.
    pub(super) fn number(&self) -> u64 {
        match self {
            Choice::GoOn => 0,
            Choice::New(..) => Choice::NEW,
            Choice::Fixed => Choice::FIXED,
            Choice::Stored => 3,
        }
    }

    /// The number of new codes in a cut.
    pub(super) const NEW: u64 = 1;
    /// The number of the codes of the specification in a cut.
    pub(super) const FIXED: u64 = 2;
}

/// The block that the stream is in.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) codes: Codes,
    /// The bits of its head.
    pub(super) header: usize,
    /// Whether it has words for literals only.
    pub(super) is_literal: bool,
}

/// How large the head of a block of literals is taken to be when there was none before.
pub(super) const GUESSED_HEADER: usize = 70 * 8;

/// The bits of a stored block, at most.
pub(super) fn stored_size(plain: usize) -> usize {
    8 * (plain + 5)
}

/// How often each byte occurs, and a place for the end of the block.
pub(super) fn frequencies_of(plain: &[u8]) -> [u16; END_OF_BLOCK + 1] {
    let mut frequencies = [0; END_OF_BLOCK + 1];
    for &byte in plain {
        frequencies[usize::from(byte)] += 1;
    }
    frequencies
}
