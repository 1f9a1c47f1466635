//! One block in the making: its tokens, the counts of its symbols, and how it is written: stored, in the fixed code or in a code of its own.

use super::tree::word_lengths;
use crate::format::huffman::{Code, fixed_lengths};
use crate::format::token::{DISTANCES, LENGTHS, Token, distance_symbol, length_symbol};
use crate::format::{CODE_LENGTH_ORDER, DISTANCE_SYMBOLS, END_OF_BLOCK, LITERAL_SYMBOLS};
use xebec_bitstream::BitWriter;

/// The longest word of the code of code lengths.
const LONGEST_CODE_LENGTH_WORD: u8 = 7;
/// GNU gzip looks whether to end a block early each time that so many more tokens are there.
const EARLY_EVERY: usize = 4096;

/// When a block is full.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    /// Tokens of a full block.
    pub(super) tokens: usize,
    /// Whether a block ends early where it seems to compress well (GNU gzip from level 3 on).
    pub(super) may_end_early: bool,
}

/// Tokens that are not written yet.
#[derive(Debug, Clone)]
pub(super) struct Block {
    capacity: Capacity,
    tokens: Vec<Token>,
    copies: usize,
    literal_counts: [u32; LITERAL_SYMBOLS],
    distance_counts: [u32; DISTANCE_SYMBOLS],
    fixed: Codes,
}

/// The two codes of a block.
#[derive(Debug, Clone)]
struct Codes {
    literals: Vec<u8>,
    distances: Vec<u8>,
}

impl Block {
    pub(super) fn new(capacity: Capacity) -> Block {
        let (literals, distances) = fixed_lengths();
        let mut block = Block {
            capacity,
            tokens: Vec::with_capacity(capacity.tokens),
            copies: 0,
            literal_counts: [0; LITERAL_SYMBOLS],
            distance_counts: [0; DISTANCE_SYMBOLS],
            fixed: Codes { literals, distances },
        };
        block.clear();
        block
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.copies = 0;
        self.literal_counts.fill(0);
        self.literal_counts[END_OF_BLOCK] = 1;
        self.distance_counts.fill(0);
    }

    /// Appends a literal, and returns whether the block is full. `plain` is how far the matcher is from the beginning of the block.
    #[inline]
    pub(super) fn literal(&mut self, byte: u8, plain: usize) -> bool {
        self.tokens.push(Token::literal(byte));
        self.literal_counts[usize::from(byte)] += 1;
        self.is_full(plain)
    }

    /// Appends a copy, and returns whether the block is full.
    #[inline]
    pub(super) fn copy(&mut self, length: usize, distance: usize, plain: usize) -> bool {
        self.tokens.push(Token::copy(length, distance));
        self.copies += 1;
        self.literal_counts[END_OF_BLOCK + 1 + length_symbol(length)] += 1;
        self.distance_counts[distance_symbol(distance)] += 1;
        self.is_full(plain)
    }

    #[inline]
    fn is_full(&self, plain: usize) -> bool {
        self.tokens.len() == self.capacity.tokens
            || self.tokens.len().is_multiple_of(EARLY_EVERY)
                && self.capacity.may_end_early
                && self.compresses_well(plain)
    }

    /// Whether the block has few copies, and comes to less than half of its plain bytes if each token takes a byte, and each distance five bits and
    /// its extra bits beside.
    #[cold]
    fn compresses_well(&self, plain: usize) -> bool {
        let of_distances: usize = self
            .distance_counts
            .iter()
            .zip(DISTANCES)
            .map(|(&count, (_, extra))| count as usize * (5 + usize::from(extra)))
            .sum();
        let written = (8 * self.tokens.len() + of_distances) / 8;
        self.copies < self.tokens.len() / 2 && written < plain / 2
    }

    /// Writes the block in whichever way is shortest by whole bytes, and forgets its tokens. `plain` has its plain bytes, if the window still does.
    pub(super) fn write(&mut self, plain: Option<&[u8]>, is_last: bool, bits: &mut BitWriter) {
        let own = Codes {
            literals: word_lengths(&self.literal_counts, 15),
            distances: word_lengths(&self.distance_counts, 15),
        };
        let head = Head::new(&own);
        // Three bits more for the kind of block, rounded up to bytes.
        let own_bytes = (self.length_in(&own) + head.length() + 3).div_ceil(8);
        let fixed_bytes = (self.length_in(&self.fixed) + 3).div_ceil(8);
        let shortest = own_bytes.min(fixed_bytes);
        match plain.filter(|plain| plain.len() + 4 <= shortest) {
            Some(plain) => put_stored(plain, is_last, bits),
            None if fixed_bytes == shortest => {
                bits.put(0b010 | u64::from(is_last), 3);
                self.put_tokens(&self.fixed, bits);
            }
            None => {
                bits.put(0b100 | u64::from(is_last), 3);
                head.put(bits);
                self.put_tokens(&own, bits);
            }
        }
        self.clear();
    }

    /// How many bits the tokens take in these codes.
    fn length_in(&self, codes: &Codes) -> usize {
        let literals = self.literal_counts.iter().zip(&codes.literals).enumerate();
        let literals = literals.map(|(symbol, (&count, &length))| {
            let extra = symbol
                .checked_sub(END_OF_BLOCK + 1)
                .map_or(0, |symbol| LENGTHS[symbol].1);
            count as usize * usize::from(length + extra)
        });
        let distances = self.distance_counts.iter().zip(&codes.distances).zip(DISTANCES);
        let distances =
            distances.map(|((&count, &length), (_, extra))| count as usize * usize::from(length + extra));
        literals.sum::<usize>() + distances.sum::<usize>()
    }

    fn put_tokens(&self, codes: &Codes, bits: &mut BitWriter) {
        let words = Words::new(codes);
        // As many tokens at once as the writer takes.
        let (mut gathered, mut count) = (0_u64, 0);
        for &token in &self.tokens {
            let (word, length) = words.of(token);
            if count + length > BitWriter::MOST {
                bits.put(gathered, count);
                (gathered, count) = (0, 0);
            }
            gathered |= word << count;
            count += length;
        }
        bits.put(gathered, count);
        let (word, length) = words.literals.words[END_OF_BLOCK];
        bits.put(u64::from(word), u32::from(length));
    }
}

/// Writes a stored block. Its bytes are 65,535 at most.
pub(in crate::encoders) fn put_stored(plain: &[u8], is_last: bool, bits: &mut BitWriter) {
    debug_assert!(plain.len() <= usize::from(u16::MAX));
    bits.put(u64::from(is_last), 3);
    bits.align();
    let length = plain.len() as u16;
    bits.put_bytes(&length.to_le_bytes());
    bits.put_bytes(&(!length).to_le_bytes());
    bits.put_bytes(plain);
}

/// The words of a block's codes, extra bits included where that is one look-up.
struct Words {
    literals: Code,
    /// Of each copy length from 3 on: the word of its symbol and its extra bits behind it.
    lengths: Vec<(u32, u8)>,
    distances: Code,
}

impl Words {
    fn new(codes: &Codes) -> Words {
        let mut literals = Code::of_lengths(&codes.literals);
        literals.words.resize(LITERAL_SYMBOLS, (0, 0));
        let mut distances = Code::of_lengths(&codes.distances);
        distances.words.resize(DISTANCE_SYMBOLS, (0, 0));
        let lengths = (3..=258).map(|length| {
            let symbol = length_symbol(length);
            let (word, bits) = literals.words[END_OF_BLOCK + 1 + symbol];
            let (first, extra) = LENGTHS[symbol];
            let value = length as u32 - u32::from(first);
            (u32::from(word) | value << bits, bits + extra)
        });
        Words {
            lengths: lengths.collect(),
            literals,
            distances,
        }
    }

    /// The bits of a token, 48 at most.
    #[inline]
    fn of(&self, token: Token) -> (u64, u32) {
        let length = token.copy_length();
        if length == 0 {
            let (word, bits) = self.literals.words[usize::from(token.byte())];
            return (u64::from(word), u32::from(bits));
        }
        let (word, bits) = self.lengths[length - 3];
        let distance = token.distance();
        let symbol = distance_symbol(distance);
        let (distance_word, distance_bits) = self.distances.words[symbol];
        let (first, extra) = DISTANCES[symbol];
        let value = (distance - usize::from(first)) as u64;
        let both = u64::from(distance_word) | value << distance_bits;
        (
            u64::from(word) | both << bits,
            u32::from(bits) + u32::from(distance_bits) + u32::from(extra),
        )
    }
}

/// The codes of a dynamic block, as its head tells them (RFC 1951, 3.2.7).
struct Head {
    literals: usize,
    distances: usize,
    /// The symbols that tell the lengths, each with the value of its extra bits.
    symbols: Vec<(u8, u8)>,
    /// The lengths of the words of those symbols.
    code_lengths: Vec<u8>,
}

impl Head {
    fn new(codes: &Codes) -> Head {
        let mut symbols = Vec::with_capacity(LITERAL_SYMBOLS);
        tell_lengths(&codes.literals, &mut symbols);
        tell_lengths(&codes.distances, &mut symbols);
        let mut counts = [0; CODE_LENGTH_ORDER.len()];
        for &(symbol, _) in &symbols {
            counts[usize::from(symbol)] += 1;
        }
        let mut code_lengths = word_lengths(&counts, LONGEST_CODE_LENGTH_WORD);
        code_lengths.resize(CODE_LENGTH_ORDER.len(), 0);
        Head {
            literals: codes.literals.len(),
            distances: codes.distances.len(),
            symbols,
            code_lengths,
        }
    }

    /// How many lengths of code lengths are told: four, or up to the last that is not zero.
    fn told(&self) -> usize {
        let last = CODE_LENGTH_ORDER
            .iter()
            .rposition(|&symbol| self.code_lengths[symbol] > 0);
        last.map_or(4, |last| (last + 1).max(4))
    }

    /// How many bits it takes.
    fn length(&self) -> usize {
        let symbols = self.symbols.iter().map(|&(symbol, _)| {
            usize::from(self.code_lengths[usize::from(symbol)]) + extra_bits(symbol) as usize
        });
        5 + 5 + 4 + 3 * self.told() + symbols.sum::<usize>()
    }

    fn put(&self, bits: &mut BitWriter) {
        let told = self.told();
        bits.put(self.literals as u64 - 257, 5);
        bits.put(self.distances as u64 - 1, 5);
        bits.put(told as u64 - 4, 4);
        for &symbol in &CODE_LENGTH_ORDER[..told] {
            bits.put(u64::from(self.code_lengths[symbol]), 3);
        }
        let code = Code::of_lengths(&self.code_lengths);
        for &(symbol, value) in &self.symbols {
            code.put(usize::from(symbol), bits);
            bits.put(u64::from(value), extra_bits(symbol));
        }
    }
}

/// The extra bits of a symbol of the code of code lengths.
fn extra_bits(symbol: u8) -> u32 {
    match symbol {
        16 => 2,
        17 => 3,
        18 => 7,
        _ => 0,
    }
}

/// Appends the symbols that tell these lengths. Runs do not reach from one code to the other.
fn tell_lengths(lengths: &[u8], symbols: &mut Vec<(u8, u8)>) {
    for run in lengths.chunk_by(|a, b| a == b) {
        let (length, mut left) = (run[0], run.len());
        if length == 0 {
            while left > 0 {
                let count = left.min(138);
                match count {
                    ..3 => symbols.extend(std::iter::repeat_n((0, 0), count)),
                    3..=10 => symbols.push((17, count as u8 - 3)),
                    _ => symbols.push((18, count as u8 - 11)),
                }
                left -= count;
            }
            continue;
        }
        // The first piece of a run has the length itself and up to six repetitions, the others up to six repetitions.
        let mut is_first = true;
        while left > 0 {
            let count = left.min(if is_first { 7 } else { 6 });
            let repeated = count - usize::from(is_first);
            if repeated < 3 {
                symbols.extend(std::iter::repeat_n((length, 0), count));
            } else {
                symbols.extend(is_first.then_some((length, 0)));
                symbols.push((16, repeated as u8 - 3));
            }
            is_first = false;
            left -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_lengths_are_cut_where_the_original_cuts_them() {
        let told = |lengths: &[u8]| {
            let mut symbols = Vec::new();
            tell_lengths(lengths, &mut symbols);
            symbols
        };
        assert_eq!(told(&[5, 5, 5]), [(5, 0), (5, 0), (5, 0)]);
        assert_eq!(told(&[5; 4]), [(5, 0), (16, 0)]);
        assert_eq!(told(&[5; 9]), [(5, 0), (16, 3), (5, 0), (5, 0)]);
        assert_eq!(told(&[5; 13]), [(5, 0), (16, 3), (16, 3)]);
        assert_eq!(told(&[0, 0, 5, 0, 0, 0]), [(0, 0), (0, 0), (5, 0), (17, 0)]);
        assert_eq!(told(&[0; 140]), [(18, 127), (0, 0), (0, 0)]);
    }

    #[test]
    fn an_empty_block_is_written_in_the_fixed_code() {
        let mut bits = BitWriter::default();
        let capacity = Capacity {
            tokens: 10,
            may_end_early: false,
        };
        Block::new(capacity).write(Some(&[]), true, &mut bits);
        bits.align();
        assert_eq!(bits.take(), [3, 0]);
    }
}
