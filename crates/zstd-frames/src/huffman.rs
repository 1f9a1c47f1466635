//! Huffman codes of literals (RFC 8878, 4.2): how one is told, and literals in it.

use super::InvalidZstd;
use super::back_bits::{self, BackBits};
use super::fse::{self, Counts};
use xebec_bitstream::BitWriter;

/// The longest code word.
pub(crate) const LONGEST: u32 = 11;
/// The table of weights has two to this power of states at most.
pub(crate) const WEIGHTS_LOG_MOST: u32 = 6;
/// So many symbols fit between two looks at the bits.
const AT_ONCE: usize = 5;
/// The most weights that a description without a table has.
const DIRECT_MOST: usize = 128;

/// A code, and how it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The length of each symbol's code word, 0 if it has none. The last one has one.
    pub(crate) lengths: Vec<u8>,
    /// How the weights are told: by this table, or without one.
    pub(crate) table: Option<Counts>,
}

impl Tree {
    /// Reads a description at the beginning of `bytes`, and returns how many bytes it takes.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Tree, usize), InvalidZstd> {
        let (&head, rest) = bytes.split_first().ok_or(InvalidZstd::Truncated)?;
        if head >= 128 {
            let count = usize::from(head) - 127;
            let told = rest.get(..count.div_ceil(2)).ok_or(InvalidZstd::Truncated)?;
            let mut weights: Vec<u8> = told.iter().flat_map(|&two| [two >> 4, two & 15]).collect();
            weights.truncate(count);
            let lengths = lengths_of(weights).ok_or(InvalidZstd::Code)?;
            return Ok((Tree { lengths, table: None }, 1 + told.len()));
        }
        let told = rest.get(..usize::from(head)).ok_or(InvalidZstd::Truncated)?;
        let (table, length) = Counts::read(told, WEIGHTS_LOG_MOST, LONGEST as usize + 1)?;
        let weights = read_weights(&table, &told[length..]).ok_or(InvalidZstd::Code)?;
        let lengths = lengths_of(weights).ok_or(InvalidZstd::Code)?;
        let table = Some(table);
        Ok((Tree { lengths, table }, 1 + told.len()))
    }

    /// Appends the description, or returns `None` if the code cannot be told so.
    pub(crate) fn write(&self, output: &mut Vec<u8>) -> Option<()> {
        let longest = self.lengths.iter().copied().max()?;
        let told = self.lengths.len() - 1;
        let weight = |length: u8| if length == 0 { 0 } else { longest + 1 - length };
        let weights: Vec<u8> = self.lengths[..told]
            .iter()
            .map(|&length| weight(length))
            .collect();
        let Some(table) = &self.table else {
            if weights.is_empty() || weights.len() > DIRECT_MOST {
                return None;
            }
            output.push(127 + weights.len() as u8);
            output.extend(
                weights
                    .chunks(2)
                    .map(|two| two[0] << 4 | two.get(1).copied().unwrap_or(0)),
            );
            return Some(());
        };
        let head = output.len();
        output.push(0);
        table.write(output);
        write_weights(table, &weights, output)?;
        let length = output.len() - head - 1;
        output[head] = u8::try_from(length).ok().filter(|&length| length < 128)?;
        Some(())
    }
}

/// The lengths of a code by the weights of all its symbols but the last (RFC 8878, 4.2.1).
fn lengths_of(mut weights: Vec<u8>) -> Option<Vec<u8>> {
    let sum: u32 = weights.iter().map(|&weight| (1 << weight) >> 1).sum();
    let longest = sum.checked_ilog2()? + 1;
    let left = (1 << longest) - sum;
    if longest > LONGEST || !left.is_power_of_two() {
        return None;
    }
    weights.push(left.ilog2() as u8 + 1);
    if !weights.contains(&1) {
        return None;
    }
    let length = |weight: u8| {
        if weight == 0 {
            0
        } else {
            longest as u8 + 1 - weight
        }
    };
    Some(weights.into_iter().map(length).collect())
}

/// Two states take turns, and the one whose bits are missing says the last weight but one.
fn read_weights(table: &Counts, bytes: &[u8]) -> Option<Vec<u8>> {
    let decoder = fse::Decoder::new(table);
    let mut bits = BackBits::new(bytes)?;
    let mut states = [decoder.begin(&mut bits), decoder.begin(&mut bits)];
    let mut weights = Vec::new();
    while !bits.is_past_end() {
        let turn = weights.len() % 2;
        weights.push(decoder.symbol(states[turn]));
        states[turn] = decoder.next(states[turn], &mut bits);
        if weights.len() > 254 {
            return None;
        }
    }
    if weights.is_empty() {
        return None;
    }
    weights.push(decoder.symbol(states[weights.len() % 2]));
    Some(weights)
}

fn write_weights(table: &Counts, weights: &[u8], output: &mut Vec<u8>) -> Option<()> {
    if weights.len() < 2 || !weights.iter().all(|&weight| table.has(weight)) {
        return None;
    }
    let encoder = fse::Encoder::new(table);
    let mut bits = BitWriter::default();
    let mut states = [None; 2];
    for (place, &weight) in weights.iter().enumerate().rev() {
        let state = &mut states[place % 2];
        *state = Some(match *state {
            None => encoder.begin(weight),
            Some(before) => {
                let (next, value, width) = encoder.step(before, weight);
                bits.put(value, width);
                next
            }
        });
    }
    for state in states.into_iter().rev().flatten() {
        bits.put(encoder.end(state), encoder.log);
    }
    back_bits::close(&mut bits);
    output.extend_from_slice(bits.bytes());
    Some(())
}

/// Whether lengths make a whole code of two words or more.
pub(crate) fn is_whole(lengths: &[u8]) -> bool {
    let words = lengths.iter().filter(|&&length| length > 0);
    let sum: Option<u32> = words
        .map(|&length| {
            (1_u32 << LONGEST)
                .checked_shr(u32::from(length))
                .filter(|&part| part > 0)
        })
        .sum();
    sum == Some(1 << LONGEST)
        && lengths.len() <= 256
        && lengths.last().is_some_and(|&last| last > 0)
        && lengths.len() > 1
}

/// The code word of each symbol, and its length.
fn words(lengths: &[u8]) -> Vec<(u16, u8)> {
    let mut counts = [0_u16; LONGEST as usize + 1];
    for &length in lengths {
        counts[usize::from(length)] += 1;
    }
    let mut next = [0_u16; LONGEST as usize + 1];
    let mut word = 0;
    for length in (1..=LONGEST as usize).rev() {
        next[length] = word;
        word = (word + counts[length]) >> 1;
    }
    let words = lengths.iter().map(|&length| {
        if length == 0 {
            return (0, 0);
        }
        let word = &mut next[usize::from(length)];
        *word += 1;
        (*word - 1, length)
    });
    words.collect()
}

/// A code to read by.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// By the next [`LONGEST`] bits: the symbol, and the length of its word in the upper byte.
    quick: Vec<u16>,
}

impl Decoder {
    /// The reader of a whole code.
    pub(crate) fn new(lengths: &[u8]) -> Decoder {
        let mut quick = vec![0; 1 << LONGEST];
        for (symbol, (word, length)) in words(lengths)
            .into_iter()
            .enumerate()
            .filter(|(_, (_, length))| *length > 0)
        {
            let free = LONGEST - u32::from(length);
            let first = usize::from(word) << free;
            if let Some(entries) = quick.get_mut(first..first + (1 << free)) {
                entries.fill(u16::from(length) << 8 | symbol as u16);
            }
        }
        Decoder { quick }
    }

    /// Reads one stream, which fills `literals`.
    pub(crate) fn read(&self, bytes: &[u8], literals: &mut [u8]) -> Result<(), InvalidZstd> {
        let mut bits = BackBits::new(bytes).ok_or(InvalidZstd::Literals)?;
        for some in literals.chunks_mut(AT_ONCE) {
            let mut word = bits.peek();
            let mut taken = 0;
            for literal in some {
                let entry = self.quick[(word >> (64 - LONGEST)) as usize];
                *literal = entry as u8;
                word <<= entry >> 8;
                taken += u32::from(entry >> 8);
            }
            bits.skip(taken);
        }
        if bits.is_at_end() {
            Ok(())
        } else {
            Err(InvalidZstd::Literals)
        }
    }
}

/// A code to write by.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    words: Vec<(u16, u8)>,
}

impl Encoder {
    /// The writer of a whole code.
    pub(crate) fn new(lengths: &[u8]) -> Encoder {
        let mut words = words(lengths);
        words.resize(256, (0, 0));
        Encoder { words }
    }

    /// Appends one stream, or returns `None` if a literal has no word.
    pub(crate) fn write(&self, literals: &[u8], output: &mut Vec<u8>) -> Option<()> {
        let mut bits = BitWriter::default();
        let mut shortest = u8::MAX;
        for some in literals.rchunks(AT_ONCE) {
            let (mut value, mut width) = (0_u64, 0_u32);
            for &literal in some.iter().rev() {
                let (word, length) = self.words[usize::from(literal)];
                shortest = shortest.min(length);
                value |= u64::from(word) << width;
                width += u32::from(length);
            }
            bits.put(value, width);
        }
        back_bits::close(&mut bits);
        output.extend_from_slice(bits.bytes());
        (shortest > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whole codes: each split of a word makes one of two.
    fn codes() -> impl Strategy<Value = Vec<u8>> {
        (prop::collection::vec(any::<u16>(), 1..200), 0..40_usize).prop_map(|(splits, gap)| {
            let mut lengths = vec![0_u8];
            for split in splits {
                let place = usize::from(split) % lengths.len();
                if lengths[place] < LONGEST as u8 {
                    lengths[place] += 1;
                    lengths.insert(place, lengths[place]);
                }
            }
            let at = lengths.len() / 2;
            lengths.splice(at..at, std::iter::repeat_n(0, gap));
            lengths
        })
    }

    proptest! {
        #[test]
        fn literals_come_back(lengths in codes(), numbers in prop::collection::vec(any::<u16>(), 1..500)) {
            prop_assert!(is_whole(&lengths));
            let symbols: Vec<u8> = (0..lengths.len()).filter(|&symbol| lengths[symbol] > 0).map(|symbol| symbol as u8).collect();
            let literals: Vec<u8> = numbers.iter().map(|&number| symbols[usize::from(number) % symbols.len()]).collect();
            let mut bytes = Vec::new();
            Encoder::new(&lengths).write(&literals, &mut bytes).unwrap();
            let mut read = vec![0; literals.len()];
            Decoder::new(&lengths).read(&bytes, &mut read).unwrap();
            prop_assert_eq!(read, literals);
        }

        #[test]
        fn a_description_comes_back(lengths in codes()) {
            let tree = Tree { lengths, table: None };
            let mut bytes = Vec::new();
            prop_assert_eq!(tree.write(&mut bytes).is_some(), tree.lengths.len() <= 129);
            if !bytes.is_empty() {
                let length = bytes.len();
                bytes.push(7);
                prop_assert_eq!(Tree::read(&bytes), Ok((tree.clone(), length)));
            }
            let table = Counts { log: 6, counts: vec![20, 6, 6, 4, 4, 4, 4, 4, 4, 4, 2, 2] };
            let tree = Tree { lengths: tree.lengths, table: Some(table) };
            let mut bytes = Vec::new();
            if tree.write(&mut bytes).is_some() {
                let length = bytes.len();
                prop_assert_eq!(Tree::read(&bytes), Ok((tree, length)));
            }
        }

        #[test]
        fn no_description_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..150)) {
            if let Ok((tree, length)) = Tree::read(&bytes) {
                prop_assert!(length <= bytes.len() && is_whole(&tree.lengths));
            }
        }
    }

    #[test]
    fn lengths_that_are_no_code_are_known() {
        assert!(is_whole(&[1, 1]));
        assert!(!is_whole(&[1]));
        assert!(!is_whole(&[1, 2]));
        assert!(!is_whole(&[1, 1, 1]));
        assert!(!is_whole(&[1, 1, 0]));
        assert!(!is_whole(&[1, 12]));
    }
}
