//! Writes blocks: chooses between stored, fixed and dynamic ones, and makes the codes of the latter.

use super::code::{self, Told};
use crate::format::huffman::{self, Code, LONGEST};
use crate::format::token::{DISTANCES, LENGTHS, Token, distance_symbol, length_symbol};
use crate::format::{CODE_LENGTH_ORDER, DISTANCE_SYMBOLS, END_OF_BLOCK, LITERAL_SYMBOLS};
use xebec_bitstream::BitWriter;

/// The most bytes of a stored block.
pub(super) const STORED_MOST: usize = 65_535;
/// The longest word of the code that tells code lengths.
const LONGEST_TOLD: usize = 7;

/// The bits of a block's kind, without that of the last block.
const STORED: u64 = 0;
const FIXED: u64 = 1;
const DYNAMIC: u64 = 2;

/// The code words of a block.
struct Codes {
    literals: Code,
    distances: Code,
}

impl Codes {
    fn of_lengths(literals: &[u8], distances: &[u8]) -> Codes {
        Codes {
            literals: Code::of_lengths(literals),
            distances: Code::of_lengths(distances),
        }
    }
}

/// The head of a dynamic block.
struct Head {
    /// How many lengths of literals, of distances, and of the code that tells them the head has.
    literals: usize,
    distances: usize,
    code_lengths: usize,
    /// Bits of the head.
    size: usize,
}

/// Writes blocks. Nothing is kept from one block to the next.
pub(super) struct BlockWriter {
    literal_counts: [u32; LITERAL_SYMBOLS],
    distance_counts: [u32; DISTANCE_SYMBOLS],
    literal_lengths: [u8; LITERAL_SYMBOLS],
    distance_lengths: [u8; DISTANCE_SYMBOLS],
    told: Told,
    told_counts: [u32; CODE_LENGTH_ORDER.len()],
    told_lengths: [u8; CODE_LENGTH_ORDER.len()],
    fixed_literal_lengths: Vec<u8>,
    fixed_distance_lengths: Vec<u8>,
}

impl BlockWriter {
    pub(super) fn new() -> BlockWriter {
        let (fixed_literal_lengths, fixed_distance_lengths) = huffman::fixed_lengths();
        BlockWriter {
            literal_counts: [0; _],
            distance_counts: [0; _],
            literal_lengths: [0; _],
            distance_lengths: [0; _],
            told: Told::new(),
            told_counts: [0; _],
            told_lengths: [0; _],
            fixed_literal_lengths,
            fixed_distance_lengths,
        }
    }

    /// Writes tokens in the smallest of the three ways (levels 2 to 9). `plain` are the bytes of the tokens, `None` if the encoder has lost them:
    /// then the block cannot be stored.
    pub(super) fn smallest(&mut self, tokens: &[Token], plain: Option<&[u8]>, bits: &mut BitWriter) {
        self.count(tokens);
        let head = self.make_codes();
        let extra = self.extra_bits();
        let dynamic = head.size + self.size(&self.literal_lengths, &self.distance_lengths) + extra;
        let fixed = 3 + self.size(&self.fixed_literal_lengths, &self.fixed_distance_lengths) + extra;
        if let Some(plain) = plain.filter(|plain| plain.len() <= STORED_MOST)
            && stored_size(plain) < fixed.min(dynamic)
        {
            return stored(plain, false, bits);
        }
        let codes = if dynamic < fixed {
            self.put_head(&head, bits);
            Codes::of_lengths(&self.literal_lengths, &self.distance_lengths)
        } else {
            bits.put(FIXED << 1, 3);
            Codes::of_lengths(&self.fixed_literal_lengths, &self.fixed_distance_lengths)
        };
        put_tokens(tokens, &codes, bits);
    }

    /// Writes tokens in a dynamic block, or stores their bytes if that block would hardly be a sixteenth smaller (level 1).
    pub(super) fn dynamic(&mut self, tokens: &[Token], plain: &[u8], bits: &mut BitWriter) {
        self.count(tokens);
        if let Some(codes) = self.worthwhile(plain, bits) {
            put_tokens(tokens, &codes, bits);
        }
    }

    /// Writes bytes as literals of a dynamic block, or stores them if that block would hardly be a sixteenth smaller (level -2, and level 1 where
    /// copies do not help).
    pub(super) fn literals(&mut self, plain: &[u8], bits: &mut BitWriter) {
        self.literal_counts.fill(0);
        self.distance_counts.fill(0);
        self.literal_counts[END_OF_BLOCK] = 1;
        for &byte in plain {
            self.literal_counts[usize::from(byte)] += 1;
        }
        if let Some(codes) = self.worthwhile(plain, bits) {
            put_literals(plain, &codes.literals, bits);
        }
    }

    /// Writes the head of a dynamic block for what was counted, or the bytes if that does not save enough. The size that is compared leaves out the
    /// extra bits of copies.
    fn worthwhile(&mut self, plain: &[u8], bits: &mut BitWriter) -> Option<Codes> {
        let head = self.make_codes();
        let size = head.size + self.size(&self.literal_lengths, &self.distance_lengths);
        if stored_size(plain) < size + size / 16 {
            stored(plain, false, bits);
            return None;
        }
        self.put_head(&head, bits);
        Some(Codes::of_lengths(&self.literal_lengths, &self.distance_lengths))
    }

    fn count(&mut self, tokens: &[Token]) {
        self.literal_counts.fill(0);
        self.distance_counts.fill(0);
        self.literal_counts[END_OF_BLOCK] = 1;
        for &token in tokens {
            let length = token.copy_length();
            if length == 0 {
                self.literal_counts[usize::from(token.byte())] += 1;
            } else {
                self.literal_counts[END_OF_BLOCK + 1 + length_symbol(length)] += 1;
                self.distance_counts[distance_symbol(token.distance())] += 1;
            }
        }
    }

    /// Makes the codes for what was counted.
    fn make_codes(&mut self) -> Head {
        let literals = used(&self.literal_counts);
        let mut distances = used(&self.distance_counts);
        if distances == 0 {
            // The code of distances may not be empty. The symbol counts in all sizes, though it does not occur.
            self.distance_counts[0] = 1;
            distances = 1;
        }
        code::set_lengths(&self.literal_counts, LONGEST, &mut self.literal_lengths);
        code::set_lengths(&self.distance_counts, LONGEST, &mut self.distance_lengths);
        let mut lengths = [0; LITERAL_SYMBOLS + DISTANCE_SYMBOLS];
        lengths[..literals].copy_from_slice(&self.literal_lengths[..literals]);
        lengths[literals..literals + distances].copy_from_slice(&self.distance_lengths[..distances]);
        self.told.clear();
        code::tell(&lengths[..literals + distances], &mut self.told);
        self.told_counts.fill(0);
        let mut size = 0;
        for &(symbol, _) in &self.told {
            self.told_counts[usize::from(symbol)] += 1;
            size += code::extra_bits(symbol) as usize;
        }
        code::set_lengths(&self.told_counts, LONGEST_TOLD, &mut self.told_lengths);
        let mut code_lengths = CODE_LENGTH_ORDER.len();
        while code_lengths > 4 && self.told_lengths[CODE_LENGTH_ORDER[code_lengths - 1]] == 0 {
            code_lengths -= 1;
        }
        size += 3 + 5 + 5 + 4 + 3 * code_lengths + weighted(&self.told_counts, &self.told_lengths);
        Head {
            literals,
            distances,
            code_lengths,
            size,
        }
    }

    /// Bits of what was counted, without extra bits.
    fn size(&self, literals: &[u8], distances: &[u8]) -> usize {
        weighted(&self.literal_counts, literals) + weighted(&self.distance_counts, distances)
    }

    /// Extra bits of the copies that were counted.
    fn extra_bits(&self) -> usize {
        let of = |counts: &[u32], extra: &[(u16, u8)]| -> usize {
            counts
                .iter()
                .zip(extra)
                .map(|(&count, &(_, bits))| count as usize * usize::from(bits))
                .sum()
        };
        of(&self.literal_counts[END_OF_BLOCK + 1..], &LENGTHS) + of(&self.distance_counts, &DISTANCES)
    }

    fn put_head(&self, head: &Head, bits: &mut BitWriter) {
        bits.put(DYNAMIC << 1, 3);
        bits.put(head.literals as u64 - 257, 5);
        bits.put(head.distances as u64 - 1, 5);
        bits.put(head.code_lengths as u64 - 4, 4);
        for &symbol in &CODE_LENGTH_ORDER[..head.code_lengths] {
            bits.put(u64::from(self.told_lengths[symbol]), 3);
        }
        let code = Code::of_lengths(&self.told_lengths);
        for &(symbol, extra) in &self.told {
            code.put(usize::from(symbol), bits);
            bits.put(u64::from(extra), code::extra_bits(symbol));
        }
    }
}

/// Writes a stored block, [`STORED_MOST`] bytes at most.
pub(super) fn stored(plain: &[u8], is_last: bool, bits: &mut BitWriter) {
    debug_assert!(plain.len() <= STORED_MOST);
    bits.put(STORED << 1 | u64::from(is_last), 3);
    bits.align();
    let length = plain.len() as u16;
    bits.put(u64::from(length) | u64::from(!length) << 16, 32);
    bits.put_bytes(plain);
}

/// Bits of a stored block, as Go counts them: five bytes for the head.
fn stored_size(plain: &[u8]) -> usize {
    8 * (plain.len() + 5)
}

/// How many symbols there are up to the last one that occurs.
fn used(counts: &[u32]) -> usize {
    counts
        .iter()
        .rposition(|&count| count > 0)
        .map_or(0, |last| last + 1)
}

fn weighted(counts: &[u32], lengths: &[u8]) -> usize {
    counts
        .iter()
        .zip(lengths)
        .map(|(&count, &length)| count as usize * usize::from(length))
        .sum()
}

/// Holds back bits, so that several symbols are written at once.
struct Gathered<'a> {
    bits: &'a mut BitWriter,
    value: u64,
    count: u32,
}

impl Gathered<'_> {
    #[inline]
    fn put(&mut self, value: u64, count: u32) {
        if self.count + count > BitWriter::MOST {
            self.write();
        }
        self.value |= value << self.count;
        self.count += count;
    }

    fn write(&mut self) {
        self.bits.put(self.value, self.count);
        (self.value, self.count) = (0, 0);
    }

    fn end(mut self, literals: &Code) {
        let (word, length) = literals.words[END_OF_BLOCK];
        self.put(u64::from(word), u32::from(length));
        self.write();
    }
}

fn put_literals(plain: &[u8], literals: &Code, bits: &mut BitWriter) {
    let mut gathered = Gathered {
        bits,
        value: 0,
        count: 0,
    };
    let mut words = [(0, 0); 256];
    words.copy_from_slice(&literals.words[..256]);
    for &byte in plain {
        let (word, length) = words[usize::from(byte)];
        gathered.put(u64::from(word), u32::from(length));
    }
    gathered.end(literals);
}

fn put_tokens(tokens: &[Token], codes: &Codes, bits: &mut BitWriter) {
    let mut gathered = Gathered {
        bits,
        value: 0,
        count: 0,
    };
    let (literals, distances) = (&codes.literals.words[..], &codes.distances.words[..]);
    for &token in tokens {
        let length = token.copy_length();
        if length == 0 {
            let (word, bits) = literals[usize::from(token.byte())];
            gathered.put(u64::from(word), u32::from(bits));
            continue;
        }
        let symbol = length_symbol(length);
        let (word, bits) = literals[END_OF_BLOCK + 1 + symbol];
        let (first, extra) = LENGTHS[symbol];
        let mut value = u64::from(word) | (length as u64 - u64::from(first)) << bits;
        let mut count = bits + extra;
        let distance = token.distance();
        let symbol = distance_symbol(distance);
        let (word, bits) = distances[symbol];
        let (first, extra) = DISTANCES[symbol];
        value |= (u64::from(word) | (distance as u64 - u64::from(first)) << bits) << count;
        count += bits + extra;
        gathered.put(value, u32::from(count));
    }
    gathered.end(&codes.literals);
}
