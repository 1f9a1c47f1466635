//! What a block says: a literal byte, or a copy of earlier bytes (RFC 1951, 3.2.5).

use super::{COPY_LENGTHS, WINDOW};

/// A literal, or a copy of 3 to 258 bytes from 1 to 32,768 bytes back. Four bytes: the length in the upper half (0: a literal), the distance less
/// one or the byte in the lower one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(u32);

impl Token {
    /// A literal byte.
    #[inline]
    pub fn literal(byte: u8) -> Token {
        Token(u32::from(byte))
    }

    /// A copy of 3 to 258 bytes from 1 to 32,768 bytes back.
    #[inline]
    pub fn copy(length: usize, distance: usize) -> Token {
        debug_assert!(COPY_LENGTHS.contains(&length) && (1..=WINDOW).contains(&distance));
        Token((length as u32) << 16 | (distance as u32 - 1))
    }

    /// The length of the copy, or 0 for a literal.
    #[inline]
    pub fn copy_length(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// How many plain bytes this is.
    #[inline]
    pub fn plain_length(self) -> usize {
        self.copy_length().max(1)
    }

    /// How far back the copy is. Only of copies.
    #[inline]
    pub fn distance(self) -> usize {
        (self.0 & 0xffff) as usize + 1
    }

    /// The byte. Only of literals.
    #[inline]
    pub fn byte(self) -> u8 {
        self.0 as u8
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.copy_length() {
            0 => write!(formatter, "{:?}", char::from(self.byte())),
            length => write!(formatter, "({length} from {})", self.distance()),
        }
    }
}

/// The first length of each length symbol from 257 on, and how many extra bits follow the symbol.
pub const LENGTHS: [(u16, u8); 29] = [
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

/// The first distance of each distance symbol, and how many extra bits follow the symbol.
pub const DISTANCES: [(u16, u8); 30] = [
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

/// The symbol less 257 of each copy length less 3.
const LENGTH_SYMBOLS: [u8; 256] = {
    let mut symbols = [0; 256];
    let mut symbol = 0;
    while symbol < LENGTHS.len() {
        let mut length = LENGTHS[symbol].0 as usize - 3;
        while length < 256 {
            symbols[length] = symbol as u8;
            length += 1;
        }
        symbol += 1;
    }
    symbols
};

/// Of a copy length: the place of its symbol in [`LENGTHS`].
#[inline]
pub fn length_symbol(length: usize) -> usize {
    usize::from(LENGTH_SYMBOLS[length - 3])
}

/// Of a distance: the place of its symbol in [`DISTANCES`].
#[inline]
pub fn distance_symbol(distance: usize) -> usize {
    let less = distance - 1;
    if less < 4 {
        return less;
    }
    let top = less.ilog2() as usize;
    2 * top + (less >> (top - 1) & 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_and_distance_has_the_symbol_whose_range_holds_it() {
        for length in COPY_LENGTHS {
            let symbol = length_symbol(length);
            let (first, bits) = LENGTHS[symbol];
            let extra = length - usize::from(first);
            assert!(extra < 1 << bits, "{length}");
            assert_eq!(symbol == 28, length == 258);
        }
        for distance in 1..=WINDOW {
            let (first, bits) = DISTANCES[distance_symbol(distance)];
            assert!(
                distance >= usize::from(first) && distance - usize::from(first) < 1 << bits,
                "{distance}"
            );
        }
    }

    #[test]
    fn a_token_keeps_what_it_was_made_of() {
        assert_eq!(Token::literal(255).copy_length(), 0);
        assert_eq!(Token::literal(255).byte(), 255);
        let copy = Token::copy(258, WINDOW);
        assert_eq!(
            (copy.copy_length(), copy.distance(), copy.plain_length()),
            (258, WINDOW, 258)
        );
        assert_eq!(format!("{:?}", Token::copy(3, 1)), "(3 from 1)");
    }
}
