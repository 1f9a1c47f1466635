//! Codes of literal lengths, copy lengths and offsets (RFC 8878, 3.1.1.3.2.1.1), and the tables that blocks have without telling them.

use super::fse::Counts;

/// The shortest copy that can be told.
pub(crate) const COPY_LEAST: u32 = 3;
/// Codes of literal lengths.
pub(crate) const LITERAL_CODES: usize = 36;
/// Codes of copy lengths.
pub(crate) const COPY_CODES: usize = 53;
/// Codes of offsets that are read: more bits than that reach farther back than any window that is taken.
pub(crate) const OFFSET_CODES: usize = 32;

/// Of each code of literal lengths from 16 on: how many bits follow.
const LITERAL_BITS: [u8; 20] = [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
/// Of each code of copy lengths from 32 on: how many bits follow.
const COPY_BITS: [u8; 21] = [
    1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
];

/// First value and bits of each code of literal lengths.
pub(crate) const LITERALS: [(u32, u8); LITERAL_CODES] = ranges(&LITERAL_BITS, 0);
/// First value and bits of each code of copy lengths.
pub(crate) const COPIES: [(u32, u8); COPY_CODES] = ranges(&COPY_BITS, COPY_LEAST);

/// The ranges of codes, of which the last ones have bits.
const fn ranges<const CODES: usize>(bits: &[u8], least: u32) -> [(u32, u8); CODES] {
    let mut codes = [(0, 0); CODES];
    let (mut code, mut first) = (0, least);
    while code < CODES {
        let plain = CODES - bits.len();
        let width = if code < plain { 0 } else { bits[code - plain] };
        codes[code] = (first, width);
        first += 1 << width;
        code += 1;
    }
    codes
}

/// The code of each small value.
const fn small<const CODES: usize, const VALUES: usize>(codes: &[(u32, u8); CODES]) -> [u8; VALUES] {
    let mut table = [0; VALUES];
    let (mut code, mut value) = (0, 0);
    while value < VALUES {
        while code + 1 < CODES && codes[code + 1].0 - codes[0].0 <= value as u32 {
            code += 1;
        }
        table[value] = code as u8;
        value += 1;
    }
    table
}

const SMALL_LITERALS: [u8; 64] = small(&LITERALS);
const SMALL_COPIES: [u8; 128] = small(&COPIES);

/// The code of a literal length below 128 Ki.
#[inline]
pub(crate) fn literal_code(length: u32) -> u8 {
    match SMALL_LITERALS.get(length as usize) {
        Some(&code) => code,
        None => length.ilog2() as u8 + 19,
    }
}

/// The code of a copy length from 3 on.
#[inline]
pub(crate) fn copy_code(length: u32) -> u8 {
    match SMALL_COPIES.get((length - COPY_LEAST) as usize) {
        Some(&code) => code,
        None => (length - COPY_LEAST).ilog2() as u8 + 36,
    }
}

/// The tables of blocks that tell none: literal lengths, offsets, copy lengths.
pub(crate) fn predefined() -> [Counts; 3] {
    let literals = [
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1,
        -1, -1, -1,
    ];
    let offsets = [
        1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
    ];
    let copies = [
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ];
    let table = |log, counts: &[i16]| Counts {
        log,
        counts: counts.to_vec(),
    };
    [table(6, &literals), table(5, &offsets), table(6, &copies)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_the_code_whose_range_holds_it() {
        for length in 0..1 << 17 {
            let (first, bits) = LITERALS[usize::from(literal_code(length))];
            assert!(length >= first && length - first < 1 << bits, "{length}");
            let (first, bits) = COPIES[usize::from(copy_code(length + COPY_LEAST))];
            assert!(
                length + COPY_LEAST >= first && length + COPY_LEAST - first < 1 << bits,
                "{length}"
            );
        }
        assert_eq!((LITERALS[35], COPIES[52]), ((65536, 16), (65539, 16)));
    }

    #[test]
    fn the_tables_of_the_specification_are_whole() {
        assert!(predefined().iter().all(Counts::is_whole));
    }
}
