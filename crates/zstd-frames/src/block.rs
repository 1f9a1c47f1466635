//! One compressed block (RFC 8878, 3.1.1.3): what it says, read and written.

use super::frame::number;
use super::huffman::{self, Tree};
use super::sequences::{self, Distances, Sequence, Tables, Told};
use super::{BLOCK_MOST, InvalidZstd};

/// What the blocks before leave to the next one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Carried {
    /// The last three distances.
    pub(crate) distances: Distances,
    /// The lengths of the last code of literals.
    pub(crate) code: Option<Vec<u8>>,
    /// The last tables of sequences.
    pub(crate) tables: Tables,
}

/// How a block tells its literals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LiteralsKind {
    /// As they are.
    Raw,
    /// All are the same byte.
    One,
    /// In a code of the block's own.
    Coded(Tree),
    /// In the code that a block before told.
    Repeat,
}

/// What a compressed block says beside its plain bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compressed {
    /// How it tells its literals.
    pub(crate) kind: LiteralsKind,
    /// The two bits that tell how long the literals' sizes are, and whether there are four streams. Of raw or equal literals: the bytes of the head.
    pub(crate) format: u8,
    /// The sequences.
    pub(crate) sequences: Vec<Sequence>,
    /// How it tells the tables of literal lengths, offsets and copy lengths.
    pub(crate) tables: [Told; 3],
}

/// The literals of a block whose bytes are these: how they are told, and how many bytes that takes.
fn read_literals(
    bytes: &[u8],
    code: &mut Option<Vec<u8>>,
    literals: &mut Vec<u8>,
) -> Result<(LiteralsKind, u8, usize), InvalidZstd> {
    let head = number(bytes);
    let (kind, format) = (head & 3, (head >> 2 & 3) as u8);
    if kind < 2 {
        let (width, shift) = match format {
            0 | 2 => (1, 3),
            1 => (2, 4),
            _ => (3, 4),
        };
        let size = ((head & ((1 << (8 * width)) - 1)) >> shift) as usize;
        let told = if kind == 0 { size } else { 1 };
        let there = bytes.get(width..width + told).ok_or(InvalidZstd::Truncated)?;
        if size > BLOCK_MOST {
            return Err(InvalidZstd::BlockSize);
        }
        if kind == 0 {
            literals.extend_from_slice(there);
            return Ok((LiteralsKind::Raw, width as u8, width + told));
        }
        literals.resize(size, there[0]);
        return Ok((LiteralsKind::One, width as u8, width + told));
    }
    let (width, size_bits) = coded_head(format);
    let mask = (1 << size_bits) - 1;
    let (size, length) = (
        (head >> 4 & mask) as usize,
        (head >> (4 + size_bits) & mask) as usize,
    );
    let mut there = bytes.get(width..width + length).ok_or(InvalidZstd::Truncated)?;
    if size > BLOCK_MOST {
        return Err(InvalidZstd::BlockSize);
    }
    let kind = if kind == 2 {
        let (tree, length) = Tree::read(there)?;
        there = &there[length..];
        *code = Some(tree.lengths.clone());
        LiteralsKind::Coded(tree)
    } else {
        LiteralsKind::Repeat
    };
    let decoder = huffman::Decoder::new(code.as_ref().ok_or(InvalidZstd::Repeat)?);
    literals.resize(size, 0);
    if format == 0 {
        decoder.read(there, literals)?;
    } else {
        read_four(&decoder, there, literals)?;
    }
    Ok((kind, format, width + length))
}

/// Of coded literals: how long their head is, and how many bits each of the two sizes has.
fn coded_head(format: u8) -> (usize, u32) {
    match format {
        0 | 1 => (3, 10),
        2 => (4, 14),
        _ => (5, 18),
    }
}

fn read_four(decoder: &huffman::Decoder, bytes: &[u8], literals: &mut [u8]) -> Result<(), InvalidZstd> {
    let (jumps, mut rest) = bytes.split_at_checked(6).ok_or(InvalidZstd::Literals)?;
    let quarter = literals.len().div_ceil(4);
    if 3 * quarter > literals.len() {
        return Err(InvalidZstd::Literals);
    }
    let mut left = literals;
    for jump in jumps.chunks(2) {
        let (stream, after) = rest
            .split_at_checked(number(jump) as usize)
            .ok_or(InvalidZstd::Literals)?;
        let (some, more) = std::mem::take(&mut left).split_at_mut(quarter);
        decoder.read(stream, some)?;
        (rest, left) = (after, more);
    }
    decoder.read(rest, left)
}

/// Reads a block of `bytes`, and appends what it says to `plain`. A copy reaches back to `window` of `plain` at most. `carried` goes on to the next
/// block; it is of no use after an error.
pub(crate) fn read(
    bytes: &[u8],
    carried: &mut Carried,
    plain: &mut Vec<u8>,
    window: usize,
    most: usize,
) -> Result<Compressed, InvalidZstd> {
    let mut literals = Vec::new();
    let (kind, format, length) = read_literals(bytes, &mut carried.code, &mut literals)?;
    let mut sequences = Vec::new();
    let tables = sequences::read(&bytes[length..], &mut carried.tables, &mut sequences)?;
    let first = plain.len();
    let mut rest = literals.as_slice();
    for &sequence in &sequences {
        let (some, after) = rest
            .split_at_checked(sequence.literals as usize)
            .ok_or(InvalidZstd::Sequences)?;
        plain.extend_from_slice(some);
        rest = after;
        let distance = carried.distances.take(sequence) as usize;
        let length = sequence.length as usize;
        let from = plain
            .len()
            .checked_sub(distance)
            .filter(|&from| from >= window && distance > 0);
        let from = from.ok_or(InvalidZstd::Distance)?;
        if plain.len() - first + length > most {
            return Err(InvalidZstd::BlockSize);
        }
        copy(plain, from, length);
    }
    plain.extend_from_slice(rest);
    if plain.len() - first > most {
        return Err(InvalidZstd::BlockSize);
    }
    Ok(Compressed {
        kind,
        format,
        sequences,
        tables,
    })
}

/// Appends a copy, which may run into what it appends.
fn copy(plain: &mut Vec<u8>, from: usize, length: usize) {
    let distance = plain.len() - from;
    if distance >= length {
        plain.extend_from_within(from..from + length);
        return;
    }
    // Each round doubles what there is to copy from.
    let mut left = length;
    while left > 0 {
        let some = left.min(plain.len() - from);
        plain.extend_from_within(from..from + some);
        left -= some;
    }
}

/// The literals of a block with these plain bytes.
pub(crate) fn literals_of(plain: &[u8], sequences: &[Sequence], literals: &mut Vec<u8>) {
    let mut place = 0;
    for sequence in sequences {
        let end = place + sequence.literals as usize;
        literals.extend_from_slice(plain.get(place..end).unwrap_or_default());
        place = end + sequence.length as usize;
    }
    literals.extend_from_slice(plain.get(place..).unwrap_or_default());
}

impl Compressed {
    /// Appends the block, or returns `None` if that cannot be told so. `carried` goes on to the next block, but for its distances.
    pub(crate) fn write(&self, literals: &[u8], carried: &mut Carried, output: &mut Vec<u8>) -> Option<()> {
        self.write_literals(literals, &mut carried.code, output)?;
        sequences::write(&self.sequences, &self.tables, &mut carried.tables, output)
    }

    fn write_literals(
        &self,
        literals: &[u8],
        code: &mut Option<Vec<u8>>,
        output: &mut Vec<u8>,
    ) -> Option<()> {
        let size = literals.len() as u64;
        if size > BLOCK_MOST as u64 {
            return None;
        }
        let kind = match self.kind {
            LiteralsKind::Raw | LiteralsKind::One => {
                let is_raw = self.kind == LiteralsKind::Raw;
                let (format, shift) =
                    *[(0, 3), (1, 4), (3, 4)].get(usize::from(self.format).checked_sub(1)?)?;
                let head = u64::from(!is_raw) | format << 2 | size << shift;
                if head >> (8 * self.format) != 0 {
                    return None;
                }
                output.extend_from_slice(&head.to_le_bytes()[..usize::from(self.format)]);
                output.extend_from_slice(if is_raw { literals } else { literals.get(..1)? });
                return Some(());
            }
            LiteralsKind::Coded(_) => 2,
            LiteralsKind::Repeat => 3,
        };
        let (width, size_bits) = coded_head(self.format);
        let begin = output.len();
        output.extend_from_slice(&[0; 8][..width]);
        if let LiteralsKind::Coded(tree) = &self.kind {
            tree.write(output)?;
            *code = Some(tree.lengths.clone());
        }
        let encoder = huffman::Encoder::new(code.as_ref()?);
        if self.format == 0 {
            encoder.write(literals, output)?;
        } else {
            write_four(&encoder, literals, output)?;
        }
        let length = (output.len() - begin - width) as u64;
        if size >> size_bits != 0 || length >> size_bits != 0 {
            return None;
        }
        let head = kind | u64::from(self.format) << 2 | size << 4 | length << (4 + size_bits);
        output[begin..begin + width].copy_from_slice(&head.to_le_bytes()[..width]);
        Some(())
    }
}

fn write_four(encoder: &huffman::Encoder, literals: &[u8], output: &mut Vec<u8>) -> Option<()> {
    let quarter = literals.len().div_ceil(4);
    if 3 * quarter > literals.len() {
        return None;
    }
    let jumps = output.len();
    output.extend_from_slice(&[0; 6]);
    for number in 0..4 {
        let begin = output.len();
        let end = if number == 3 {
            literals.len()
        } else {
            (number + 1) * quarter
        };
        encoder.write(&literals[number * quarter..end], output)?;
        if number < 3 {
            let length = u16::try_from(output.len() - begin).ok()?;
            output[jumps + 2 * number..jumps + 2 * number + 2].copy_from_slice(&length.to_le_bytes());
        }
    }
    Some(())
}
