//! The head of a dynamic block (RFC 1951, 3.2.7): how it tells the lengths of its two codes.

use super::lengths::code_lengths;
use crate::format::CODE_LENGTH_ORDER;
use crate::format::huffman::Code;
use xebec_bitstream::BitWriter;

/// The symbol that repeats the length before it.
const REPEAT: u8 = 16;
/// The symbol of up to ten zeros.
const ZEROS: u8 = 17;
/// The symbol of more zeros.
const MANY_ZEROS: u8 = 18;
/// The longest word of the code of code lengths.
const LONGEST: usize = 7;

/// A head, after the kind of its block.
#[derive(Debug, Clone)]
pub(super) struct Header {
    /// How many lengths of literals and of distances it tells.
    counts: (usize, usize),
    /// Symbols, each with the value of its extra bits.
    symbols: Vec<(u8, u8)>,
    /// The lengths of the code of code lengths, by symbol.
    lengths: [u8; CODE_LENGTH_ORDER.len()],
    /// How many of them are told.
    told: usize,
}

impl Header {
    /// The head that tells these lengths, of which there are one or more of each kind.
    pub(super) fn of(literals: &[u8], distances: &[u8]) -> Header {
        let symbols = symbols_of(literals, distances);
        let mut frequencies = [0_u16; CODE_LENGTH_ORDER.len()];
        for &(symbol, _) in &symbols {
            frequencies[usize::from(symbol)] += 1;
        }
        let mut lengths = [0; CODE_LENGTH_ORDER.len()];
        code_lengths(&frequencies, LONGEST, &mut lengths);
        let last = CODE_LENGTH_ORDER
            .iter()
            .rposition(|&symbol| frequencies[symbol] > 0);
        Header {
            counts: (literals.len(), distances.len()),
            symbols,
            lengths,
            told: last.map_or(4, |last| (last + 1).max(4)),
        }
    }

    /// How many bits the head has, with the three bits of the block's kind.
    pub(super) fn size(&self) -> usize {
        let symbols = self
            .symbols
            .iter()
            .map(|&(symbol, _)| usize::from(self.lengths[usize::from(symbol)]) + extra_bits(symbol) as usize);
        3 + 5 + 5 + 4 + 3 * self.told + symbols.sum::<usize>()
    }

    /// Writes the head of a block that is not the last one.
    pub(super) fn put(&self, bits: &mut BitWriter) {
        bits.put(2 << 1, 3);
        bits.put(self.counts.0 as u64 - 257, 5);
        bits.put(self.counts.1 as u64 - 1, 5);
        bits.put(self.told as u64 - 4, 4);
        for &symbol in &CODE_LENGTH_ORDER[..self.told] {
            bits.put(u64::from(self.lengths[symbol]), 3);
        }
        let code = Code::of_lengths(&self.lengths);
        for &(symbol, extra) in &self.symbols {
            code.put(usize::from(symbol), bits);
            bits.put(u64::from(extra), extra_bits(symbol));
        }
    }
}

fn extra_bits(symbol: u8) -> u32 {
    match symbol {
        REPEAT => 2,
        ZEROS => 3,
        MANY_ZEROS => 7,
        _ => 0,
    }
}

/// Tells lengths by runs. A run may go on from the literals to the distances.
fn symbols_of(literals: &[u8], distances: &[u8]) -> Vec<(u8, u8)> {
    let all: Vec<u8> = literals.iter().chain(distances).copied().collect();
    let mut symbols = Vec::with_capacity(all.len());
    for run in all.chunk_by(|one, next| one == next) {
        let mut left = run.len();
        let length = run[0];
        if length == 0 {
            while left >= 11 {
                let part = left.min(138);
                symbols.push((MANY_ZEROS, (part - 11) as u8));
                left -= part;
            }
            if left >= 3 {
                symbols.push((ZEROS, (left - 3) as u8));
                left = 0;
            }
        } else {
            symbols.push((length, 0));
            left -= 1;
            while left >= 3 {
                let part = left.min(6);
                symbols.push((REPEAT, (part - 3) as u8));
                left -= part;
            }
        }
        symbols.extend(std::iter::repeat_n((length, 0), left));
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_by_the_longest_symbols() {
        let literals = [[8; 10].as_slice(), &[0; 150]].concat();
        assert_eq!(
            symbols_of(&literals, &[5, 5, 5]),
            [
                (8, 0),
                (16, 3),
                (16, 0),
                (18, 127),
                (18, 1),
                (5, 0),
                (5, 0),
                (5, 0)
            ]
        );
    }

    #[test]
    fn a_run_goes_on_into_the_distances() {
        assert_eq!(symbols_of(&[7, 0, 0], &[0, 0]), [(7, 0), (17, 1)]);
    }

    #[test]
    fn the_size_is_that_of_the_bits() {
        let mut literals = vec![0; 257];
        literals[b'a' as usize] = 1;
        literals[256] = 1;
        let header = Header::of(&literals, &[1]);
        let mut bits = BitWriter::default();
        header.put(&mut bits);
        assert_eq!(bits.position(), header.size() as u64);
    }
}
