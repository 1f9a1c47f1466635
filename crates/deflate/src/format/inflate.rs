//! Reads a raw deflate stream (RFC 1951) and keeps what it says: its blocks, their codes and tokens, and where each lies.
//!
//! The reader takes its input in pieces of any size. It holds the last [`WINDOW`] plain bytes and nothing of the input: where a piece ends in the
//! middle of a symbol, the caller gives the rest of that piece again, with more behind it.

use super::huffman::{self, Decoder};
use super::token::{DISTANCES, LENGTHS, Token};
use super::{CODE_LENGTH_ORDER, DISTANCE_SYMBOLS, END_OF_BLOCK, LITERAL_SYMBOLS, WINDOW};
use xebec_bitstream::BitReader;

/// Plain bytes of one call, roughly: it ends when there are more.
const PIECE: usize = 64 << 10;
/// Plain bytes that the reader keeps before it moves the window to the front.
const KEPT: usize = WINDOW + (256 << 10);

/// The head of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// Where the head begins: bits from the beginning of the deflate stream.
    pub bit: u64,
    /// How many plain bytes come before the block.
    pub plain: u64,
    /// Whether the stream ends with this block.
    pub is_last: bool,
    /// The rest of the head.
    pub kind: BlockKind,
}

/// What kind of block it is, with all that its head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockKind {
    /// Plain bytes as they are.
    Stored {
        /// How many.
        length: u16,
        /// The bits that fill the byte before the length.
        padding: u8,
    },
    /// Tokens in the code of the specification.
    Fixed,
    /// Tokens in a code of the block's own.
    Dynamic(Box<CodeTables>),
}

/// How a dynamic block tells its codes (RFC 1951, 3.2.7).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CodeTables {
    /// The lengths of the code of code lengths, in the order of the stream, 4 to 19 of them.
    pub code_lengths: Vec<u8>,
    /// The symbols by which the lengths of the two codes are told, each with the value of its extra bits.
    pub symbols: Vec<(u8, u8)>,
    /// The lengths of the code of literals and lengths, 257 to 286.
    pub literals: Vec<u8>,
    /// The lengths of the code of distances, 1 to 30.
    pub distances: Vec<u8>,
}

/// One thing that the stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A block begins.
    Block(BlockHead),
    /// Tokens of the block. A block of many tokens has them in several items.
    Tokens(Vec<Token>),
    /// The block ends. Of a stored block this comes after its plain bytes.
    EndOfBlock {
        /// Bits from the beginning of the deflate stream.
        bit: u64,
        /// How many plain bytes there are up to here.
        plain: u64,
    },
}

/// Why a stream is no deflate stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeflate {
    /// A block of the kind that does not exist.
    #[error("a block is of kind 3, which does not exist")]
    BlockKind,
    /// A stored block whose length and its complement differ.
    #[error("a stored block tells two lengths")]
    StoredLength,
    /// Lengths of code words that are no code.
    #[error("a block's code is none")]
    Code,
    /// Bits that are no code word.
    #[error("a code word has no meaning")]
    CodeWord,
    /// A copy of 258 bytes by the symbol of 227 to 257. Readers take it, and no writer that is known makes it.
    #[error("a copy of 258 bytes is told by the symbol of shorter ones")]
    LongLength,
    /// A copy from before the beginning.
    #[error("a copy begins before the plain bytes")]
    Distance,
    /// The input ends in the middle.
    #[error("the stream ends too soon")]
    Truncated,
}

/// Why a step did not come to its end.
enum Stop {
    /// The input ends within it.
    MoreInput,
    Invalid(InvalidDeflate),
}

impl From<InvalidDeflate> for Stop {
    fn from(invalid: InvalidDeflate) -> Stop {
        Stop::Invalid(invalid)
    }
}

#[derive(Debug, Clone)]
enum State {
    BetweenBlocks,
    Stored {
        left: usize,
    },
    Coded {
        literals: Box<Decoder>,
        distances: Box<Decoder>,
    },
    Ended,
}

/// Reads one deflate stream.
#[derive(Debug, Clone)]
pub struct Inflater {
    /// Plain bytes: the last ones of earlier calls, and those of this call.
    plain: Vec<u8>,
    /// How many plain bytes came before `plain`.
    plain_before: u64,
    /// Bits that were read.
    bit: u64,
    is_last: bool,
    state: State,
}

impl Default for Inflater {
    fn default() -> Inflater {
        Inflater {
            plain: Vec::new(),
            plain_before: 0,
            bit: 0,
            is_last: false,
            state: State::BetweenBlocks,
        }
    }
}

impl Inflater {
    /// Whether the last block has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// How many bits of the stream were read.
    pub fn position(&self) -> u64 {
        self.bit
    }

    /// How many plain bytes there were.
    pub fn plain_position(&self) -> u64 {
        self.plain_before + self.plain.len() as u64
    }

    /// Reads on. `input` begins with the byte that has the next bit (`position() / 8`); with `is_end`, nothing comes after it. Appends to `items`, and
    /// returns the plain bytes that came: 64 KiB or a little more, fewer where the input ends, none if more input is needed or the stream has ended.
    ///
    /// # Errors
    ///
    /// [`InvalidDeflate`], also if the stream goes on after the end of the input.
    pub fn read(
        &mut self,
        input: &[u8],
        is_end: bool,
        items: &mut Vec<Item>,
    ) -> Result<&[u8], InvalidDeflate> {
        if self.plain.len() > KEPT {
            let gone = self.plain.len() - WINDOW;
            self.plain.drain(..gone);
            self.plain_before += gone as u64;
        }
        let old = self.plain.len();
        let first_bit = self.bit / 8 * 8;
        let mut bits = BitReader::at(input, (self.bit % 8) as usize);
        while self.plain.len() - old < PIECE && !self.has_ended() {
            let stop = self.step(&mut bits, first_bit, old + PIECE, items);
            self.bit = first_bit + bits.bit as u64;
            match stop {
                Ok(()) => {}
                Err(Stop::MoreInput) if is_end => return Err(InvalidDeflate::Truncated),
                Err(Stop::MoreInput) => break,
                Err(Stop::Invalid(invalid)) => return Err(invalid),
            }
        }
        Ok(&self.plain[old..])
    }

    /// One head of a block, or bytes or tokens of it until `enough` plain bytes are there. Where the input ends, `bits` stands after what was taken whole.
    fn step(
        &mut self,
        bits: &mut BitReader<'_>,
        first_bit: u64,
        enough: usize,
        items: &mut Vec<Item>,
    ) -> Result<(), Stop> {
        match &mut self.state {
            State::Ended => Ok(()),
            State::BetweenBlocks => {
                let mut ahead = *bits;
                let head = read_head(&mut ahead);
                if ahead.is_past_end() {
                    return Err(Stop::MoreInput);
                }
                let (is_last, kind) = head?;
                let state = state_of(&kind)?;
                items.push(Item::Block(BlockHead {
                    bit: first_bit + bits.bit as u64,
                    plain: self.plain_position(),
                    is_last,
                    kind,
                }));
                (self.is_last, self.state) = (is_last, state);
                *bits = ahead;
                Ok(())
            }
            State::Stored { left } => {
                let there = bits.rest();
                let taken = there.len().min(*left).min(enough - self.plain.len());
                self.plain.extend_from_slice(&there[..taken]);
                *left -= taken;
                let is_over = *left == 0;
                bits.skip(8 * taken as u32);
                if is_over {
                    self.end_block(first_bit + bits.bit as u64, items);
                } else if taken == there.len() {
                    return Err(Stop::MoreInput);
                }
                Ok(())
            }
            State::Coded { literals, distances } => {
                let mut tokens = Vec::new();
                let outcome = read_tokens(literals, distances, bits, &mut self.plain, enough, &mut tokens);
                if !tokens.is_empty() {
                    items.push(Item::Tokens(tokens));
                }
                if outcome? {
                    self.end_block(first_bit + bits.bit as u64, items);
                }
                Ok(())
            }
        }
    }

    fn end_block(&mut self, bit: u64, items: &mut Vec<Item>) {
        items.push(Item::EndOfBlock {
            bit,
            plain: self.plain_position(),
        });
        self.state = if self.is_last {
            State::Ended
        } else {
            State::BetweenBlocks
        };
    }
}

/// Reads tokens until the block ends (true) or `plain` has `enough` bytes (false).
fn read_tokens(
    literals: &Decoder,
    distances: &Decoder,
    bits: &mut BitReader<'_>,
    plain: &mut Vec<u8>,
    enough: usize,
    tokens: &mut Vec<Token>,
) -> Result<bool, Stop> {
    while plain.len() < enough {
        let mut ahead = *bits;
        let token = read_token(literals, distances, &mut ahead);
        if ahead.is_past_end() {
            return Err(Stop::MoreInput);
        }
        // Past the end bits read as zero, so what they say counts only now.
        let token = token?;
        *bits = ahead;
        let Some(token) = token else { return Ok(true) };
        match token.copy_length() {
            0 => plain.push(token.byte()),
            length => copy(plain, length, token.distance())?,
        }
        tokens.push(token);
    }
    Ok(false)
}

/// One token, or `None` for the end of the block.
#[inline]
fn read_token(
    literals: &Decoder,
    distances: &Decoder,
    bits: &mut BitReader<'_>,
) -> Result<Option<Token>, InvalidDeflate> {
    let symbol = literals.take(bits).ok_or(InvalidDeflate::CodeWord)?;
    if symbol < END_OF_BLOCK {
        return Ok(Some(Token::literal(symbol as u8)));
    }
    if symbol == END_OF_BLOCK {
        return Ok(None);
    }
    let &(first, extra) = LENGTHS
        .get(symbol - END_OF_BLOCK - 1)
        .ok_or(InvalidDeflate::CodeWord)?;
    let length = usize::from(first) + bits.take(u32::from(extra)) as usize;
    // The last symbol but one has room for 258 (227 and 31), which has a symbol of its own. A token cannot tell which of the two it was.
    if length == 258 && extra > 0 {
        return Err(InvalidDeflate::LongLength);
    }
    let symbol = distances.take(bits).ok_or(InvalidDeflate::CodeWord)?;
    let &(first, extra) = DISTANCES.get(symbol).ok_or(InvalidDeflate::CodeWord)?;
    let distance = usize::from(first) + bits.take(u32::from(extra)) as usize;
    Ok(Some(Token::copy(length, distance)))
}

/// Appends a copy of earlier bytes, which may run into what it appends.
fn copy(plain: &mut Vec<u8>, length: usize, distance: usize) -> Result<(), InvalidDeflate> {
    let from = plain
        .len()
        .checked_sub(distance)
        .ok_or(InvalidDeflate::Distance)?;
    if distance >= length {
        plain.extend_from_within(from..from + length);
    } else {
        for place in from..from + length {
            plain.push(plain[place]);
        }
    }
    Ok(())
}

fn state_of(kind: &BlockKind) -> Result<State, InvalidDeflate> {
    let (literals, distances) = match kind {
        BlockKind::Stored { length, .. } => {
            return Ok(State::Stored {
                left: usize::from(*length),
            });
        }
        BlockKind::Fixed => huffman::fixed_lengths(),
        BlockKind::Dynamic(tables) => (tables.literals.clone(), tables.distances.clone()),
    };
    let decoder = |lengths: &[u8]| {
        Decoder::of_lengths(lengths)
            .map(Box::new)
            .ok_or(InvalidDeflate::Code)
    };
    Ok(State::Coded {
        literals: decoder(&literals)?,
        distances: decoder(&distances)?,
    })
}

/// The head of a block. What it says counts only if the reader is not past the end then.
fn read_head(bits: &mut BitReader<'_>) -> Result<(bool, BlockKind), InvalidDeflate> {
    let is_last = bits.take(1) == 1;
    let kind = match bits.take(2) {
        0 => {
            let filling = (8 - bits.bit % 8) % 8;
            let padding = bits.take(filling as u32) as u8;
            let (length, complement) = (bits.take(16) as u16, bits.take(16) as u16);
            if length != !complement {
                return Err(InvalidDeflate::StoredLength);
            }
            BlockKind::Stored { length, padding }
        }
        1 => BlockKind::Fixed,
        2 => BlockKind::Dynamic(Box::new(read_tables(bits)?)),
        _ => return Err(InvalidDeflate::BlockKind),
    };
    Ok((is_last, kind))
}

fn read_tables(bits: &mut BitReader<'_>) -> Result<CodeTables, InvalidDeflate> {
    let literals = 257 + bits.take(5) as usize;
    let distances = 1 + bits.take(5) as usize;
    let told = 4 + bits.take(4) as usize;
    if literals > LITERAL_SYMBOLS || distances > DISTANCE_SYMBOLS {
        return Err(InvalidDeflate::Code);
    }
    let code_lengths: Vec<u8> = (0..told).map(|_| bits.take(3) as u8).collect();
    let mut by_symbol = [0; CODE_LENGTH_ORDER.len()];
    for (&symbol, &length) in CODE_LENGTH_ORDER.iter().zip(&code_lengths) {
        by_symbol[symbol] = length;
    }
    let decoder = Decoder::of_lengths(&by_symbol).ok_or(InvalidDeflate::Code)?;
    let mut symbols = Vec::new();
    let mut lengths: Vec<u8> = Vec::with_capacity(literals + distances);
    while lengths.len() < literals + distances {
        let symbol = decoder.take(bits).ok_or(InvalidDeflate::CodeWord)?;
        let (extra, repeated, first) = match symbol {
            16 => (2, lengths.last().copied().ok_or(InvalidDeflate::Code)?, 3),
            17 => (3, 0, 3),
            18 => (7, 0, 11),
            length => (0, length as u8, 1),
        };
        let more = bits.take(extra) as usize;
        symbols.push((symbol as u8, more as u8));
        lengths.resize(lengths.len() + first + more, repeated);
    }
    if lengths.len() > literals + distances {
        return Err(InvalidDeflate::Code);
    }
    let distances = lengths.split_off(literals);
    Ok(CodeTables {
        code_lengths,
        symbols,
        literals: lengths,
        distances,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn deflate(plain: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    /// Reads a stream that comes in pieces of this size.
    fn read(stream: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<Item>), InvalidDeflate> {
        let (mut plain, mut items) = (Vec::new(), Vec::new());
        let mut inflater = Inflater::default();
        let mut there = 0;
        while !inflater.has_ended() {
            let before = inflater.position();
            let input = &stream[(before / 8) as usize..there];
            plain.extend_from_slice(inflater.read(input, there == stream.len(), &mut items)?);
            if inflater.position() == before {
                there = stream.len().min(there + piece);
            }
        }
        Ok((plain, items))
    }

    #[test]
    fn invalid_streams_have_their_errors() {
        let cases: [(&[u8], InvalidDeflate); 6] = [
            (&[], InvalidDeflate::Truncated),
            (&[0b111], InvalidDeflate::BlockKind),
            (&[1, 1, 0, 1, 0], InvalidDeflate::StoredLength),
            // A fixed block that begins with a copy: length 3, distance 1.
            (&[0b0000_0011, 0b0000_0010, 0, 0], InvalidDeflate::Distance),
            // A dynamic block with 286 + 1 literals.
            (
                &[0b1111_0101, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                InvalidDeflate::Code,
            ),
            (&[1, 4, 0, 0xfb, 0xff, 7], InvalidDeflate::Truncated),
        ];
        for (stream, wanted) in cases {
            assert_eq!(read(stream, 100).err(), Some(wanted), "{stream:x?}");
        }
    }

    #[test]
    fn a_copy_of_258_bytes_by_the_long_way_is_refused() {
        let mut bits = xebec_bitstream::BitWriter::default();
        let (literals, distances) = huffman::fixed_lengths();
        let (literals, distances) = (
            huffman::Code::of_lengths(&literals),
            huffman::Code::of_lengths(&distances),
        );
        bits.put(0b011, 3);
        literals.put(usize::from(b'x'), &mut bits);
        literals.put(END_OF_BLOCK + 28, &mut bits);
        bits.put(31, 5);
        distances.put(0, &mut bits);
        literals.put(END_OF_BLOCK, &mut bits);
        bits.align();
        assert_eq!(read(&bits.take(), 100).err(), Some(InvalidDeflate::LongLength));
    }

    proptest! {
        #[test]
        fn plain_bytes_come_out_and_blocks_follow_each_other(
            seed in any::<u64>(), length in 0..300_000_usize, letters in 1..=255_u8, level in 0..=9_u32, piece in 1..100_000_usize,
        ) {
            let mut numbers = xebec_testkit::corpus::Numbers(seed);
            let plain: Vec<u8> = (0..length).map(|_| numbers.next() as u8 % letters).collect();
            let stream = deflate(&plain, level);
            let (read, items) = read(&stream, piece.max(stream.len() / 500)).unwrap();
            prop_assert!(read == plain);
            let (mut bit_end, mut plain_end, mut is_open, mut of_tokens) = (0, 0, false, 0);
            for item in items {
                match item {
                    Item::Block(head) => {
                        prop_assert_eq!((head.bit, head.plain, is_open), (bit_end, plain_end, false));
                        is_open = true;
                        of_tokens = if let BlockKind::Stored { length, .. } = head.kind { u64::from(length) } else { 0 };
                    }
                    Item::Tokens(tokens) => of_tokens += tokens.iter().map(|token| token.plain_length() as u64).sum::<u64>(),
                    Item::EndOfBlock { bit, plain } => {
                        prop_assert!(is_open && bit > bit_end);
                        prop_assert_eq!(plain, plain_end + of_tokens);
                        (bit_end, plain_end, is_open) = (bit, plain, false);
                    }
                }
            }
            prop_assert_eq!(bit_end.div_ceil(8), stream.len() as u64);
        }
    }
}
