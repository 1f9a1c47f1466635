//! Finite state entropy (RFC 8878, 4.1): how a table is told, and the states by which symbols are read and written.

use super::InvalidZstd;
use super::back_bits::BackBits;
use xebec_bitstream::{BitReader, BitWriter};

/// The smallest logarithm of a table's size that a description can tell.
const LOG_LEAST: u32 = 5;

/// A table, told by how many of its states each symbol has: -1 is one state, for a symbol of less than that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The table has two to this power of states.
    pub(crate) log: u32,
    /// By symbol. The last one is not zero.
    pub(crate) counts: Vec<i16>,
}

impl Counts {
    /// The table of one symbol, which takes no bits.
    pub(crate) fn of_one(symbol: u8) -> Counts {
        let mut counts = vec![0; usize::from(symbol) + 1];
        counts[usize::from(symbol)] = 1;
        Counts { log: 0, counts }
    }

    /// Whether the counts make up the whole table.
    pub(crate) fn is_whole(&self) -> bool {
        let states: i64 = self.counts.iter().map(|&count| i64::from(count).abs()).sum();
        states == 1 << self.log
            && self.counts.iter().all(|&count| count >= -1)
            && self.counts.last().is_some_and(|&count| count != 0)
    }

    /// Whether a symbol can be written.
    pub(crate) fn has(&self, symbol: u8) -> bool {
        self.counts
            .get(usize::from(symbol))
            .is_some_and(|&count| count != 0)
    }

    /// Reads a description at the beginning of `bytes`, and returns how many bytes it takes.
    pub(crate) fn read(
        bytes: &[u8],
        log_most: u32,
        symbols_most: usize,
    ) -> Result<(Counts, usize), InvalidZstd> {
        let mut bits = BitReader::at(bytes, 0);
        let log = bits.take(4) as u32 + LOG_LEAST;
        if log > log_most {
            return Err(InvalidZstd::Table);
        }
        let mut counts = Vec::new();
        let mut left = 1_i32 << log;
        while left > 0 {
            let (width, short) = told_width(left);
            let lower = (1 << (width - 1)) - 1;
            let value = (bits.peek() & ((1 << width) - 1)) as i32;
            let count = if value & lower < short {
                bits.skip(width - 1);
                value & lower
            } else {
                bits.skip(width);
                if value > lower { value - short } else { value }
            } - 1;
            left -= count.abs();
            counts.push(count as i16);
            if count == 0 {
                loop {
                    let more = bits.take(2) as usize;
                    counts.resize(counts.len() + more, 0);
                    if more < 3 || counts.len() > symbols_most {
                        break;
                    }
                }
            }
            if counts.len() > symbols_most || bits.is_past_end() {
                return Err(InvalidZstd::Table);
            }
        }
        let table = Counts { log, counts };
        if table.is_whole() {
            Ok((table, bits.bit.div_ceil(8)))
        } else {
            Err(InvalidZstd::Table)
        }
    }

    /// Appends the description.
    pub(crate) fn write(&self, output: &mut Vec<u8>) {
        let mut bits = BitWriter::default();
        bits.put(u64::from(self.log - LOG_LEAST), 4);
        let mut left = 1_i32 << self.log;
        let mut symbol = 0;
        while left > 0 && symbol < self.counts.len() {
            let count = i32::from(self.counts[symbol]);
            symbol += 1;
            let (width, short) = told_width(left);
            let value = count + 1;
            if value < short {
                bits.put(value as u64, width - 1);
            } else if value < 1 << (width - 1) {
                bits.put(value as u64, width);
            } else {
                bits.put((value + short) as u64, width);
            }
            left -= count.abs();
            if count == 0 {
                let mut zeros = self.counts[symbol..]
                    .iter()
                    .take_while(|&&count| count == 0)
                    .count();
                symbol += zeros;
                while zeros >= 3 {
                    bits.put(3, 2);
                    zeros -= 3;
                }
                bits.put(zeros as u64, 2);
            }
        }
        bits.align();
        output.extend_from_slice(bits.bytes());
    }

    /// The symbol of each state.
    fn spread(&self) -> Vec<u8> {
        let size = 1_usize << self.log;
        let mut states = vec![0; size];
        let mut high = size;
        for (symbol, _) in self.counts.iter().enumerate().filter(|&(_, &count)| count == -1) {
            high -= 1;
            states[high] = symbol as u8;
        }
        let (step, mask) = ((size >> 1) + (size >> 3) + 3, size - 1);
        let mut place = 0;
        for (symbol, &count) in self.counts.iter().enumerate() {
            for _ in 0..count.max(0) {
                states[place] = symbol as u8;
                place = (place + step) & mask;
                while place >= high {
                    place = (place + step) & mask;
                }
            }
        }
        states
    }
}

/// How many bits the next count has at most, and below which value it has one less.
fn told_width(left: i32) -> (u32, i32) {
    let width = (left + 1).ilog2() + 1;
    (width, (1 << width) - 2 - left)
}

/// A table to read by.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// The logarithm of its size.
    pub(crate) log: u32,
    /// Of each state: the symbol, how many bits lead to the next state, and the next state if they are zero.
    states: Vec<(u8, u8, u16)>,
}

impl Decoder {
    /// The reader of a whole table.
    pub(crate) fn new(table: &Counts) -> Decoder {
        let mut next: Vec<u32> = table
            .counts
            .iter()
            .map(|&count| u32::from(count.unsigned_abs()))
            .collect();
        let size = 1_u32 << table.log;
        let states = table.spread().into_iter().map(|symbol| {
            let place = &mut next[usize::from(symbol)];
            let number = (*place).max(1);
            *place += 1;
            let bits = table.log - number.ilog2().min(table.log);
            (
                symbol,
                bits as u8,
                ((number << bits) - size.min(number << bits)) as u16,
            )
        });
        Decoder {
            log: table.log,
            states: states.collect(),
        }
    }

    /// The first state.
    #[inline]
    pub(crate) fn begin(&self, bits: &mut BackBits<'_>) -> usize {
        bits.take(self.log) as usize
    }

    /// The symbol of a state.
    #[inline]
    pub(crate) fn symbol(&self, state: usize) -> u8 {
        self.states[state].0
    }

    /// The state after a state.
    #[inline]
    pub(crate) fn next(&self, state: usize, bits: &mut BackBits<'_>) -> usize {
        let (_, width, base) = self.states[state];
        usize::from(base) + bits.take(u32::from(width)) as usize
    }
}

/// A table to write by.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    /// The logarithm of its size.
    pub(crate) log: u32,
    /// The states of each symbol after those of the one before, each with the table's size added.
    states: Vec<u16>,
    /// Of each symbol: a number that tells the width of what is written by a state, and where in `states` the next one is.
    symbols: Vec<(u32, i32)>,
}

impl Encoder {
    /// The writer of a whole table.
    pub(crate) fn new(table: &Counts) -> Encoder {
        let size = 1_u32 << table.log;
        let mut first = 0_i32;
        let mut places = Vec::with_capacity(table.counts.len());
        let mut symbols = Vec::with_capacity(table.counts.len());
        for &count in &table.counts {
            let number = u32::from(count.unsigned_abs());
            places.push(first as usize);
            symbols.push(match number {
                0 => (0, 0),
                1 => ((table.log << 16).wrapping_sub(size), first - 1),
                _ => {
                    let width = table.log - (number - 1).ilog2();
                    ((width << 16).wrapping_sub(number << width), first - number as i32)
                }
            });
            first += number as i32;
        }
        let mut states = vec![0; size as usize];
        for (state, symbol) in table.spread().into_iter().enumerate() {
            let place = &mut places[usize::from(symbol)];
            states[*place] = (size as usize + state) as u16;
            *place += 1;
        }
        Encoder {
            log: table.log,
            states,
            symbols,
        }
    }

    /// The state whose symbol is read last.
    #[inline]
    pub(crate) fn begin(&self, symbol: u8) -> u32 {
        let (bits, find) = self.symbols[usize::from(symbol)];
        let width = bits.wrapping_add(1 << 15) >> 16;
        let state = (width << 16).wrapping_sub(bits);
        u32::from(self.states[((state >> width) as i32 + find) as usize])
    }

    /// The state whose symbol is read before that of `state`; the bits that lead from one to the other, and how many.
    #[inline]
    pub(crate) fn step(&self, state: u32, symbol: u8) -> (u32, u64, u32) {
        let (bits, find) = self.symbols[usize::from(symbol)];
        let width = state.wrapping_add(bits) >> 16;
        let next = u32::from(self.states[((state >> width) as i32 + find) as usize]);
        (next, u64::from(state & ((1 << width) - 1)), width)
    }

    /// The bits of a state, from which reading begins.
    #[inline]
    pub(crate) fn end(&self, state: u32) -> u64 {
        u64::from(state & ((1 << self.log) - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::back_bits;

    /// Whole tables, some with symbols of less than one state.
    pub(super) fn tables() -> impl Strategy<Value = Counts> {
        (5..=9_u32, prop::collection::vec(0..40_u32, 2..50), any::<u64>()).prop_map(|(log, weights, seed)| {
            let size = 1_i32 << log;
            let mut counts: Vec<i16> = weights
                .iter()
                .enumerate()
                .map(|(symbol, &weight)| match weight {
                    0..10 => 0,
                    _ if seed >> symbol & 1 == 1 => -1,
                    _ => 1,
                })
                .collect();
            counts.truncate(size as usize / 2);
            counts.push(1);
            let used: i32 = counts.iter().map(|&count| i32::from(count).abs()).sum();
            let place = (seed as usize % counts.len()).min(counts.len() - 1);
            if counts[place] == -1 {
                counts[place] = 1;
            }
            counts[place] += (size - used) as i16;
            Counts { log, counts }
        })
    }

    proptest! {
        #[test]
        fn a_description_comes_back(table in tables()) {
            prop_assert!(table.is_whole());
            let mut bytes = Vec::new();
            table.write(&mut bytes);
            let length = bytes.len();
            bytes.push(0xaa);
            prop_assert_eq!(Counts::read(&bytes, 9, 60), Ok((table, length)));
        }

        #[test]
        fn symbols_come_back(table in tables(), numbers in prop::collection::vec(any::<u16>(), 1..300)) {
            let symbols: Vec<u8> = (0..table.counts.len() as u8).filter(|&symbol| table.has(symbol)).collect();
            let message: Vec<u8> = numbers.iter().map(|&number| symbols[usize::from(number) % symbols.len()]).collect();
            let encoder = Encoder::new(&table);
            let mut bits = BitWriter::default();
            let mut state = encoder.begin(*message.last().unwrap());
            for &symbol in message.iter().rev().skip(1) {
                let (next, value, width) = encoder.step(state, symbol);
                bits.put(value, width);
                state = next;
            }
            bits.put(encoder.end(state), encoder.log);
            back_bits::close(&mut bits);
            let bytes = bits.take();
            let mut back = BackBits::new(&bytes).unwrap();
            let decoder = Decoder::new(&table);
            let mut state = decoder.begin(&mut back);
            for (place, &symbol) in message.iter().enumerate() {
                prop_assert_eq!(decoder.symbol(state), symbol);
                if place + 1 < message.len() {
                    state = decoder.next(state, &mut back);
                }
            }
            prop_assert!(back.is_at_end());
        }

        #[test]
        fn no_description_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((table, length)) = Counts::read(&bytes, 9, 53) {
                prop_assert!(length <= bytes.len() && table.is_whole());
                Decoder::new(&table);
                Encoder::new(&table);
            }
        }
    }

    #[test]
    fn a_table_of_one_symbol_takes_no_bits() {
        let table = Counts::of_one(9);
        assert_eq!((table.log, table.counts.len()), (0, 10));
        let encoder = Encoder::new(&table);
        let state = encoder.begin(9);
        assert_eq!(encoder.step(state, 9), (state, 0, 0));
        let bytes = [1];
        let mut back = BackBits::new(&bytes).unwrap();
        let decoder = Decoder::new(&table);
        let state = decoder.begin(&mut back);
        assert_eq!((decoder.symbol(state), decoder.next(state, &mut back)), (9, 0));
        assert!(back.is_at_end());
    }
}
