//! Decoding tables for deflate's Huffman codes (RFC 1951, 3.2.2).
//!
//! A table is indexed by the next bits of the stream. Codes longer than the main table's index continue in
//! subtables behind it. An entry says all that is needed to use a symbol: how many bits to consume with its
//! extra bits included, and its base value, so that the hot loop looks nothing else up.
//!
//! Layout of an entry: bits 0–4 total bits to consume (code and extra bits); bits 8–11 bits of the code alone;
//! bits 13–15 and 31 flags; bits 16–30 a literal, a base length, a base distance or the start of a subtable.

use super::{Alphabet, InflateError};

/// Longest code in bits.
const LONGEST: usize = 15;
/// Index width of the main table for literals and lengths: most codes of real streams fit.
pub(super) const LITLEN_BITS: u32 = 11;
/// Index width of the main table for distances.
pub(super) const DISTANCE_BITS: u32 = 8;
/// Index width of the table for code lengths, which has no longer codes.
pub(super) const PRECODE_BITS: u32 = 7;

/// The entry is a literal (bits 16–23).
pub(super) const LITERAL: u32 = 1 << 31;
/// The entry is neither literal nor length nor distance: one of the next two flags, or else not a code at all.
pub(super) const SPECIAL: u32 = 1 << 15;
/// The entry points to a subtable: start in bits 16–30, index width in bits 8–11.
pub(super) const SUBTABLE: u32 = 1 << 14;
/// The entry ends the block.
pub(super) const END: u32 = 1 << 13;

/// Room for every table of 288 symbols: the worst complete code with an 11-bit main table takes 2,342 entries;
/// a power of two lets a masked index need no bounds check.
pub(super) const LITLEN_ROOM: usize = 4096;
/// Room for every table of 32 symbols with an 8-bit main table (at most 402 entries).
pub(super) const DISTANCE_ROOM: usize = 512;
/// Room for the table of code lengths.
pub(super) const PRECODE_ROOM: usize = 128;

/// Base lengths and their extra bits for symbols 257 to 285 (RFC 1951, 3.2.5).
const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// Base distances and their extra bits for symbols 0 to 29 (RFC 1951, 3.2.5).
const DISTANCES: [(u16, u8); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

impl Alphabet {
    fn main_bits(self) -> u32 {
        match self {
            Self::CodeLengths => PRECODE_BITS,
            Self::LiteralsAndLengths => LITLEN_BITS,
            Self::Distances => DISTANCE_BITS,
        }
    }

    /// The entry for `symbol` without the length of its code; `SPECIAL` alone for symbols that must not occur.
    fn entry(self, symbol: usize) -> u32 {
        match self {
            Self::CodeLengths => (symbol as u32) << 16,
            Self::LiteralsAndLengths if symbol < 256 => LITERAL | (symbol as u32) << 16,
            Self::LiteralsAndLengths if symbol == 256 => SPECIAL | END,
            Self::LiteralsAndLengths => base_entry(LENGTHS.get(symbol - 257)),
            Self::Distances => base_entry(DISTANCES.get(symbol)),
        }
    }
}

fn base_entry(base: Option<&(u16, u8)>) -> u32 {
    base.map_or(SPECIAL, |&(base, extra)| u32::from(base) << 16 | u32::from(extra))
}

/// Fills `table` for the code with these `lengths` (one per symbol, 0 for unused).
///
/// Accepts what zlib accepts: complete codes, a single one-bit code, and no code at all (any use of which is an
/// error), the first two only outside code lengths.
pub(super) fn build(alphabet: Alphabet, lengths: &[u8], table: &mut [u32]) -> Result<(), InflateError> {
    let mut counts = [0u16; LONGEST + 1];
    for &length in lengths {
        counts[usize::from(length & 15)] += 1;
    }
    counts[0] = 0;
    check_complete(alphabet, &counts)?;

    // First canonical code and first place in the sorted symbols, for each length.
    let mut next_code = [0u32; LONGEST + 2];
    let mut places = [0usize; LONGEST + 2];
    for length in 1..=LONGEST {
        next_code[length + 1] = (next_code[length] + u32::from(counts[length])) << 1;
        places[length + 1] = places[length] + usize::from(counts[length]);
    }
    let main_bits = alphabet.main_bits();
    table[..1 << main_bits].fill(SPECIAL);
    let mut long = LongCodes::new();
    for (symbol, &length) in lengths.iter().enumerate().filter(|&(_, &length)| length > 0) {
        let length = usize::from(length & 15);
        let code = next_code[length];
        next_code[length] += 1;
        let bits = length as u32;
        if bits > main_bits {
            long.put(places[length], code, bits, symbol);
            places[length] += 1;
            continue;
        }
        let entry = alphabet.entry(symbol) + (bits << 8 | bits);
        let first = reversed(code, bits) as usize;
        table[first..1 << main_bits]
            .iter_mut()
            .step_by(1 << bits)
            .for_each(|slot| *slot = entry);
    }
    let short = (1..=main_bits as usize)
        .map(|length| usize::from(counts[length]))
        .sum();
    long.build(alphabet, short, table)
}

/// Refuses codes with more or fewer codes than the bits can tell apart.
fn check_complete(alphabet: Alphabet, counts: &[u16; LONGEST + 1]) -> Result<(), InflateError> {
    let mut free = 1i32;
    for &count in &counts[1..] {
        free = (free << 1) - i32::from(count);
        if free < 0 {
            return Err(InflateError::OversubscribedCode(alphabet));
        }
    }
    let used: u16 = counts.iter().sum();
    let lone = used == 0 || (used == 1 && counts[1] == 1);
    if free > 0 && (alphabet == Alphabet::CodeLengths || !lone) {
        return Err(InflateError::IncompleteCode(alphabet));
    }
    Ok(())
}

/// The codes that do not fit the main table, in canonical order: codes with the same first bits are neighbours.
struct LongCodes {
    /// Code, its length and its symbol, by place in canonical order.
    codes: [(u16, u8, u16); 320],
    end: usize,
}

impl LongCodes {
    fn new() -> Self {
        Self {
            codes: [(0, 0, 0); 320],
            end: 0,
        }
    }

    fn put(&mut self, place: usize, code: u32, bits: u32, symbol: usize) {
        if let Some(slot) = self.codes.get_mut(place) {
            *slot = (code as u16, bits as u8, symbol as u16);
            self.end = self.end.max(place + 1);
        }
    }

    /// Appends a subtable for each prefix, wide enough for the longest code that starts with it.
    fn build(&self, alphabet: Alphabet, from: usize, table: &mut [u32]) -> Result<(), InflateError> {
        let main_bits = alphabet.main_bits();
        let prefix = |&(code, bits, _): &(u16, u8, u16)| u32::from(code) >> (u32::from(bits) - main_bits);
        let mut start = 1usize << main_bits;
        let codes = self.codes.get(from..self.end).unwrap_or_default();
        for group in codes.chunk_by(|a, b| prefix(a) == prefix(b)) {
            let [.., longest] = group else { continue };
            let width = u32::from(longest.1) - main_bits;
            let size = 1usize << width;
            let Some(subtable) = table.get_mut(start..start + size) else {
                return Err(InflateError::OversubscribedCode(alphabet));
            };
            for &(code, bits, symbol) in group {
                let rest = u32::from(bits) - main_bits;
                let entry = alphabet.entry(usize::from(symbol)) + (rest << 8 | rest);
                let first = reversed(u32::from(code) & ((1 << rest) - 1), rest) as usize;
                subtable[first..]
                    .iter_mut()
                    .step_by(1 << rest)
                    .for_each(|slot| *slot = entry);
            }
            let pointer = (start as u32) << 16 | SPECIAL | SUBTABLE | width << 8 | main_bits;
            table[reversed(prefix(longest), main_bits) as usize] = pointer;
            start += size;
        }
        Ok(())
    }
}

/// Deflate sends the highest bit of a code first; the tables are indexed by the lowest bits first.
fn reversed(code: u32, bits: u32) -> u32 {
    code.reverse_bits() >> (32 - bits)
}

/// Code lengths of the fixed code for literals and lengths (RFC 1951, 3.2.6).
pub(super) fn fixed_litlen() -> [u8; 288] {
    let mut lengths = [8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    lengths
}
