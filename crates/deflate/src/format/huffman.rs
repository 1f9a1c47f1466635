//! Canonical Huffman codes of up to fifteen bits (RFC 1951, 3.2.2).

use super::token::{DISTANCES, LENGTHS, Token, distance_symbol, length_symbol};
use super::{END_OF_BLOCK, LITERAL_SYMBOLS};
use xebec_bitstream::{BitReader, BitWriter};

/// The longest code word.
pub const LONGEST: usize = 15;
/// Code words up to this length are found by one look-up.
const QUICK: usize = 10;

/// The code words of an alphabet, to write.
#[derive(Debug, Clone, Default)]
pub struct Code {
    /// Of each symbol: the word with its first bit lowest, and its length (0: the symbol has none).
    pub words: Vec<(u16, u8)>,
}

impl Code {
    /// The code whose words have these lengths, each of [`LONGEST`] bits at most. The lengths need not make a whole code.
    pub fn of_lengths(lengths: &[u8]) -> Code {
        let mut next = first_words(lengths);
        let words = lengths.iter().map(|&length| {
            let Some(word) = next.get_mut(usize::from(length)).filter(|_| length > 0) else {
                return (0, 0);
            };
            let reversed = (*word as u16).reverse_bits() >> (16 - u32::from(length));
            *word += 1;
            (reversed, length)
        });
        Code {
            words: words.collect(),
        }
    }

    /// Writes one symbol.
    #[inline]
    pub fn put(&self, symbol: usize, bits: &mut BitWriter) {
        let (word, length) = self.words[symbol];
        debug_assert!(length > 0, "symbol {symbol} has no code word");
        bits.put(u64::from(word), u32::from(length));
    }
}

/// The codes of a fixed block (RFC 1951, 3.2.6), literals and distances.
pub fn fixed_lengths() -> (Vec<u8>, Vec<u8>) {
    let literals = (0..288).map(|symbol| match symbol {
        0..=143 => 8,
        144..=255 => 9,
        256..=279 => 7,
        _ => 8,
    });
    (literals.collect(), vec![5; 30])
}

/// Writes a token by the two codes of its block.
#[inline]
pub fn put_token(token: Token, literals: &Code, distances: &Code, bits: &mut BitWriter) {
    let length = token.copy_length();
    if length == 0 {
        literals.put(usize::from(token.byte()), bits);
        return;
    }
    let symbol = length_symbol(length);
    literals.put(END_OF_BLOCK + 1 + symbol, bits);
    let (first, extra) = LENGTHS[symbol];
    bits.put((length - usize::from(first)) as u64, u32::from(extra));
    let distance = token.distance();
    let symbol = distance_symbol(distance);
    distances.put(symbol, bits);
    let (first, extra) = DISTANCES[symbol];
    bits.put((distance - usize::from(first)) as u64, u32::from(extra));
}

/// Of each length, the first code word of that length, first bit highest.
fn first_words(lengths: &[u8]) -> [u32; LONGEST + 1] {
    let mut counts = [0_u32; LONGEST + 1];
    for &length in lengths.iter().filter(|&&length| length > 0) {
        counts[usize::from(length)] += 1;
    }
    let mut words = [0; LONGEST + 1];
    for length in 1..=LONGEST {
        words[length] = (words[length - 1] + counts[length - 1]) << 1;
    }
    words
}

/// The code words of an alphabet, to read.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// By the next [`QUICK`] bits: symbol and length; length 0 where the word is longer or there is none.
    quick: Vec<(u16, u8)>,
    /// Symbols in the order of their words.
    sorted: Vec<u16>,
    /// Of each length: the first word, the number of words, the place of the first word's symbol in `sorted`.
    by_length: [(u32, u32, u32); LONGEST + 1],
}

impl Decoder {
    /// The reader of a code, or `None` if the lengths ask for more words than there are. A code that is not whole is taken: deflate allows a code of
    /// distances with one word, and writers differ in what they make of it. A word that does not exist is noticed when it comes.
    pub fn of_lengths(lengths: &[u8]) -> Option<Decoder> {
        let mut counts = [0_u32; LONGEST + 1];
        for &length in lengths.iter().filter(|&&length| length > 0) {
            counts[usize::from(length)] += 1;
        }
        let first = first_words(lengths);
        let mut by_length = [(0, 0, 0); LONGEST + 1];
        let mut place = 0;
        for length in 1..=LONGEST {
            if first[length] + counts[length] > 1 << length {
                return None;
            }
            by_length[length] = (first[length], counts[length], place);
            place += counts[length];
        }
        let mut sorted: Vec<u16> = (0..lengths.len() as u16)
            .filter(|&symbol| lengths[usize::from(symbol)] > 0)
            .collect();
        sorted.sort_by_key(|&symbol| (lengths[usize::from(symbol)], symbol));
        let mut quick = vec![(0, 0); 1 << QUICK];
        for (symbol, (word, length)) in Code::of_lengths(lengths).words.into_iter().enumerate() {
            if length > 0 && usize::from(length) <= QUICK {
                for entry in quick[usize::from(word)..].iter_mut().step_by(1 << length) {
                    *entry = (symbol as u16, length);
                }
            }
        }
        Some(Decoder {
            quick,
            sorted,
            by_length,
        })
    }

    /// The next symbol, or `None` if no word fits. Bits after the end of the input read as zero.
    #[inline]
    pub fn take(&self, bits: &mut BitReader<'_>) -> Option<usize> {
        let next = bits.peek();
        let (symbol, length) = self.quick[(next & ((1 << QUICK) - 1)) as usize];
        if length > 0 {
            bits.skip(u32::from(length));
            return Some(usize::from(symbol));
        }
        self.take_long(next, bits)
    }

    fn take_long(&self, next: u64, bits: &mut BitReader<'_>) -> Option<usize> {
        let mut word = 0;
        for length in 1..=LONGEST {
            word = word << 1 | (next >> (length - 1) & 1) as u32;
            let (first, count, place) = self.by_length[length];
            if word >= first && word - first < count {
                bits.skip(length as u32);
                return self
                    .sorted
                    .get((place + word - first) as usize)
                    .map(|&symbol| usize::from(symbol));
            }
        }
        None
    }
}

/// Whether a symbol of the code of literals and lengths may occur at all: a fixed block has words for two that may not.
pub fn is_literal_symbol(symbol: usize) -> bool {
    symbol < LITERAL_SYMBOLS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_specification_has_its_words() {
        let code = Code::of_lengths(&[3, 3, 3, 3, 3, 2, 4, 4]);
        let words: Vec<String> = code
            .words
            .iter()
            .map(|&(word, length)| {
                (0..length)
                    .map(|bit| if word >> bit & 1 == 1 { '1' } else { '0' })
                    .collect()
            })
            .collect();
        assert_eq!(words, ["010", "011", "100", "101", "110", "00", "1110", "1111"]);
    }

    #[test]
    fn more_words_than_there_are_is_no_code() {
        assert!(Decoder::of_lengths(&[1, 1, 1]).is_none());
        assert!(Decoder::of_lengths(&[1, 1]).is_some());
        assert!(Decoder::of_lengths(&[1]).is_some());
        assert!(Decoder::of_lengths(&[]).is_some());
    }

    proptest! {
        #[test]
        fn what_is_written_by_a_code_is_read_by_it(lengths in prop::collection::vec(0..=15_u8, 1..288), symbols in prop::collection::vec(any::<u16>(), 0..300)) {
            let Some(decoder) = Decoder::of_lengths(&lengths) else { return Ok(()) };
            let code = Code::of_lengths(&lengths);
            let with_words: Vec<usize> = (0..lengths.len()).filter(|&symbol| lengths[symbol] > 0).collect();
            prop_assume!(!with_words.is_empty());
            let symbols: Vec<usize> = symbols.into_iter().map(|number| with_words[usize::from(number) % with_words.len()]).collect();
            let mut writer = BitWriter::default();
            for &symbol in &symbols {
                code.put(symbol, &mut writer);
            }
            writer.align();
            let bytes = writer.take();
            let mut reader = BitReader::at(&bytes, 0);
            for &symbol in &symbols {
                prop_assert_eq!(decoder.take(&mut reader), Some(symbol));
            }
        }
    }
}
