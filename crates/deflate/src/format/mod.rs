//! The deflate format (RFC 1951): its symbols, its codes, and a reader that keeps what a stream says beside the plain bytes.

pub mod huffman;
pub mod inflate;
pub mod token;

/// The bytes that a copy may reach back.
pub const WINDOW: usize = 32 << 10;
/// The shortest and the longest copy.
pub const COPY_LENGTHS: std::ops::RangeInclusive<usize> = 3..=258;
/// Symbols of the code of literals and lengths: 256 literals, the end of the block, 29 lengths.
pub const LITERAL_SYMBOLS: usize = 286;
/// Symbols of the code of distances.
pub const DISTANCE_SYMBOLS: usize = 30;
/// The symbol that ends a block.
pub const END_OF_BLOCK: usize = 256;
/// The order in which a dynamic block tells the lengths of the code of code lengths (RFC 1951, 3.2.7).
pub const CODE_LENGTH_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
