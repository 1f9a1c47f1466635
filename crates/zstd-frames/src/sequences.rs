//! The sequences of a block (RFC 8878, 3.1.1.3.2): how many, their three tables, and the stream of bits.

use super::InvalidZstd;
use super::back_bits::{self, BackBits};
use super::codes::{self, COPIES, COPY_CODES, LITERAL_CODES, LITERALS, OFFSET_CODES};
use super::fse::{self, Counts};
use xebec_bitstream::BitWriter;

/// From so many sequences on their number takes two bytes, and three.
const TWO_BYTES: usize = 128;
const THREE_BYTES: usize = 0x7f00;

/// The largest logarithms of the tables of literal lengths, offsets and copy lengths.
pub(crate) const LOGS_MOST: [u32; 3] = [9, 8, 9];
/// How many codes each has.
pub(crate) const CODES: [usize; 3] = [LITERAL_CODES, OFFSET_CODES, COPY_CODES];

/// Literals, and a copy after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sequence {
    /// How many literals.
    pub(crate) literals: u32,
    /// How long the copy is.
    pub(crate) length: u32,
    /// How far back it is, as the block tells it: 1 to 3 for one of the last distances, else 3 more than the distance.
    pub(crate) offset: u32,
}

/// The last three distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Distances(pub(crate) [u32; 3]);

impl Default for Distances {
    fn default() -> Distances {
        Distances([1, 4, 8])
    }
}

impl Distances {
    /// The distance that `offset` tells after `literals` literals: 0 if it is none.
    #[inline]
    pub(crate) fn told(&self, offset: u32, literals: u32) -> u32 {
        let [first, second, third] = self.0;
        match (offset, literals) {
            (0, _) => 0,
            (1, 0) | (2, 1..) => second,
            (1, _) => first,
            (2, 0) | (3, 1..) => third,
            (3, 0) => first.wrapping_sub(1),
            _ => offset - 3,
        }
    }

    /// Goes on after a sequence, and returns its distance.
    #[inline]
    pub(crate) fn take(&mut self, sequence: Sequence) -> u32 {
        let distance = self.told(sequence.offset, sequence.literals);
        let [first, second, third] = self.0;
        let place = sequence.offset + u32::from(sequence.literals == 0);
        self.0 = match (sequence.offset, place) {
            (1..=3, 1) => [first, second, third],
            (1..=3, 2) => [distance, first, third],
            _ => [distance, first, second],
        };
        distance
    }
}

/// How a block tells a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// The one of the specification.
    Predefined,
    /// A single symbol.
    One(u8),
    /// By its counts.
    Counts(Counts),
    /// The one that the block before had.
    Repeat,
}

/// The tables of the blocks before: literal lengths, offsets, copy lengths.
pub(crate) type Tables = [Option<Counts>; 3];

/// Reads all of `bytes`. Appends to `sequences`, and leaves the tables for the next block.
pub(crate) fn read(
    bytes: &[u8],
    tables: &mut Tables,
    sequences: &mut Vec<Sequence>,
) -> Result<[Told; 3], InvalidZstd> {
    let (count, head) = match *bytes {
        [] => return Err(InvalidZstd::Truncated),
        [count @ 0..128, ..] => (usize::from(count), 1),
        [high @ 128..=254, low, ..] => ((usize::from(high) - 128) << 8 | usize::from(low), 2),
        [255, low, high, ..] => (usize::from(low) + (usize::from(high) << 8) + THREE_BYTES, 3),
        _ => return Err(InvalidZstd::Truncated),
    };
    if count == 0 {
        let is_over = bytes.len() == head;
        let none = [Told::Predefined, Told::Predefined, Told::Predefined];
        return if is_over {
            Ok(none)
        } else {
            Err(InvalidZstd::Sequences)
        };
    }
    let modes = *bytes.get(head).ok_or(InvalidZstd::Truncated)?;
    if modes & 3 != 0 {
        return Err(InvalidZstd::Sequences);
    }
    let mut rest = &bytes[head + 1..];
    let mut told = [Told::Repeat, Told::Repeat, Told::Repeat];
    for (place, (told, predefined)) in told.iter_mut().zip(codes::predefined()).enumerate() {
        *told = match modes >> (6 - 2 * place) & 3 {
            0 => Told::Predefined,
            1 => {
                let (&symbol, after) = rest.split_first().ok_or(InvalidZstd::Truncated)?;
                rest = after;
                Told::One(symbol)
            }
            2 => {
                let (counts, length) = Counts::read(rest, LOGS_MOST[place], CODES[place])?;
                rest = &rest[length..];
                Told::Counts(counts)
            }
            _ => Told::Repeat,
        };
        carry(told, predefined, CODES[place], &mut tables[place])?;
    }
    read_bits(rest, count, tables, sequences)?;
    Ok(told)
}

/// Leaves the table of a block for the next one.
fn carry(
    told: &Told,
    predefined: Counts,
    codes: usize,
    table: &mut Option<Counts>,
) -> Result<(), InvalidZstd> {
    match told {
        Told::Repeat if table.is_none() => return Err(InvalidZstd::Repeat),
        Told::Repeat => {}
        Told::Predefined => *table = Some(predefined),
        Told::One(symbol) if usize::from(*symbol) >= codes => return Err(InvalidZstd::Table),
        Told::One(symbol) => *table = Some(Counts::of_one(*symbol)),
        Told::Counts(counts) if counts.counts.len() > codes => return Err(InvalidZstd::Table),
        Told::Counts(counts) => *table = Some(counts.clone()),
    }
    Ok(())
}

fn read_bits(
    bytes: &[u8],
    count: usize,
    tables: &Tables,
    sequences: &mut Vec<Sequence>,
) -> Result<(), InvalidZstd> {
    let [Some(literals), Some(offsets), Some(copies)] = tables else {
        return Err(InvalidZstd::Repeat);
    };
    let [literals, offsets, copies] = [literals, offsets, copies].map(fse::Decoder::new);
    let mut bits = BackBits::new(bytes).ok_or(InvalidZstd::Sequences)?;
    let mut literal = literals.begin(&mut bits);
    let mut offset = offsets.begin(&mut bits);
    let mut copy = copies.begin(&mut bits);
    sequences.reserve(count.min(super::BLOCK_MOST / 3));
    for left in (0..count).rev() {
        let width = u32::from(offsets.symbol(offset));
        let distance = (1 << width) | bits.take(width) as u32;
        let (first, width) = COPIES[usize::from(copies.symbol(copy))];
        let length = first + bits.take(u32::from(width)) as u32;
        let (first, width) = LITERALS[usize::from(literals.symbol(literal))];
        let before = first + bits.take(u32::from(width)) as u32;
        sequences.push(Sequence {
            literals: before,
            length,
            offset: distance,
        });
        if left > 0 {
            literal = literals.next(literal, &mut bits);
            copy = copies.next(copy, &mut bits);
            offset = offsets.next(offset, &mut bits);
        }
        if bits.is_past_end() {
            break;
        }
    }
    if bits.is_at_end() {
        Ok(())
    } else {
        Err(InvalidZstd::Sequences)
    }
}

/// Appends what [`read`] reads, or returns `None` if that cannot be told so.
pub(crate) fn write(
    sequences: &[Sequence],
    told: &[Told; 3],
    tables: &mut Tables,
    output: &mut Vec<u8>,
) -> Option<()> {
    let count = sequences.len();
    match count {
        0..TWO_BYTES => output.push(count as u8),
        TWO_BYTES..THREE_BYTES => output.extend([(count >> 8) as u8 + 128, count as u8]),
        _ => {
            let [low, high, 0, 0] = u32::try_from(count - THREE_BYTES).ok()?.to_le_bytes() else {
                return None;
            };
            output.extend([255, low, high]);
        }
    }
    if count == 0 {
        return Some(());
    }
    let modes = output.len();
    output.push(0);
    for (place, (told, predefined)) in told.iter().zip(codes::predefined()).enumerate() {
        let mode = match told {
            Told::Predefined => 0,
            Told::One(symbol) => {
                output.push(*symbol);
                1
            }
            Told::Counts(counts) => {
                counts.write(output);
                2
            }
            Told::Repeat => 3,
        };
        output[modes] |= mode << (6 - 2 * place);
        carry(told, predefined, CODES[place], &mut tables[place]).ok()?;
    }
    write_bits(sequences, tables, output)
}

/// The codes of a sequence: literal length, offset, copy length.
#[inline]
pub(crate) fn codes_of(sequence: Sequence) -> [u8; 3] {
    [
        codes::literal_code(sequence.literals),
        sequence.offset.ilog2() as u8,
        codes::copy_code(sequence.length),
    ]
}

/// What follows the codes of a sequence, in two parts.
#[inline]
fn extra_bits(sequence: Sequence, codes: [u8; 3]) -> [(u64, u32); 2] {
    let (first, width) = LITERALS[usize::from(codes[0])];
    let (first_copy, width_copy) = COPIES[usize::from(codes[2])];
    let lengths = u64::from(sequence.literals - first) | u64::from(sequence.length - first_copy) << width;
    let offset = sequence.offset ^ (1 << codes[1]);
    [
        (lengths, u32::from(width + width_copy)),
        (u64::from(offset), u32::from(codes[1])),
    ]
}

fn write_bits(sequences: &[Sequence], tables: &Tables, output: &mut Vec<u8>) -> Option<()> {
    let [Some(literals), Some(offsets), Some(copies)] = tables else {
        return None;
    };
    let can = sequences.iter().all(|&sequence| {
        let [literal, offset, copy] = codes_of(sequence);
        literals.has(literal) && offsets.has(offset) && copies.has(copy)
    });
    if !can {
        return None;
    }
    let [literals, offsets, copies] = [literals, offsets, copies].map(fse::Encoder::new);
    let (&last, before) = sequences.split_last()?;
    let mut bits = BitWriter::default();
    let codes = codes_of(last);
    let [mut literal, mut offset, mut copy] = [
        literals.begin(codes[0]),
        offsets.begin(codes[1]),
        copies.begin(codes[2]),
    ];
    for (value, width) in extra_bits(last, codes) {
        bits.put(value, width);
    }
    for &sequence in before.iter().rev() {
        let codes = codes_of(sequence);
        let (next_offset, offset_bits, offset_width) = offsets.step(offset, codes[1]);
        let (next_copy, copy_bits, copy_width) = copies.step(copy, codes[2]);
        let (next_literal, literal_bits, literal_width) = literals.step(literal, codes[0]);
        (offset, copy, literal) = (next_offset, next_copy, next_literal);
        let states = offset_bits | copy_bits << offset_width | literal_bits << (offset_width + copy_width);
        bits.put(states, offset_width + copy_width + literal_width);
        for (value, width) in extra_bits(sequence, codes) {
            bits.put(value, width);
        }
    }
    bits.put(copies.end(copy), copies.log);
    bits.put(offsets.end(offset), offsets.log);
    bits.put(literals.end(literal), literals.log);
    back_bits::close(&mut bits);
    output.extend_from_slice(bits.bytes());
    Some(())
}
