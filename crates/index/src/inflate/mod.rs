//! Raw deflate (RFC 1951), decoded so that the layer can later be entered in the middle.
//!
//! Why a decoder of our own: an index needs to know at which *bit* each deflate block starts, how many plain
//! bytes came before, and which bytes of the history before that point later output refers to. No maintained
//! decoder in Rust tells all three, zlib tells the first two only one block at a time, and both need `unsafe`
//! to bind to, which is forbidden outside `kernel`. This one is safe Rust throughout.
//!
//! How it works: a 64-bit bit buffer refilled eight bytes at a time, one table look-up per symbol (`huffman`),
//! and output into a caller's slice in which history precedes what is written, so that a match is a plain copy.
//! [`Decoder::run`] goes until it has something to say ([`Stop`]): a block ended, output is full, input is short.
//!
//! Promises: it never reads or writes outside the given slices, and never trusts a length. It accepts exactly what
//! zlib accepts, and refuses every other stream by name ([`InflateError`]). The result does not depend on how input
//! and output are cut.

mod codes;
mod error;
mod huffman;

use huffman::{DISTANCE_ROOM, LITLEN_ROOM, PRECODE_BITS, PRECODE_ROOM, SPECIAL};

pub use error::{Alphabet, InflateError};

/// How far back a match can reach: deflate's window, in bytes.
pub const HISTORY: usize = 32 << 10;

/// Bytes that must lie in [`Output::bytes`] behind `limit`: the longest match (258) and what copying in fixed
/// steps writes beyond its end.
pub const OUTPUT_SLACK: usize = 258 + 32;

/// Bytes that the longest block header takes: 17 bits, 19 lengths of 3 bits, 316 codes of at most 14 bits.
const HEADER_BYTES: usize = 570;

/// Input below which [`Decoder::run`] asks for more unless there is no more; callers keep at least this.
pub const INPUT_LOW: usize = HEADER_BYTES + 8;

/// Compressed bytes to read from.
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Index of the next byte to read; advanced by [`Decoder::run`].
    pub position: usize,
    /// Whether nothing follows these bytes.
    pub last: bool,
}

impl Input<'_> {
    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }
}

/// Where plain bytes go.
pub struct Output<'a> {
    /// History and room for output in one; at least [`OUTPUT_SLACK`] longer than `limit`.
    pub bytes: &'a mut [u8],
    /// Index of the next byte to write; advanced by [`Decoder::run`].
    pub position: usize,
    /// Index of the oldest byte that a match may refer to.
    pub history: usize,
    /// [`Decoder::run`] stops once `position` is here or (by less than a match) beyond.
    pub limit: usize,
    /// If set, takes note of references to what lies before an access point.
    pub references: Option<&'a mut References>,
}

/// Which bytes of the history before an access point are referred to by what follows it.
#[derive(Clone)]
pub struct References {
    /// The access point as an index into [`Output::bytes`].
    pub origin: usize,
    /// One flag for each byte of history; the last one is the byte just before the access point.
    pub used: Box<[bool]>,
}

impl References {
    /// No references yet to what lies before `origin`.
    pub fn new(origin: usize) -> Self {
        Self {
            origin,
            used: vec![false; HISTORY].into(),
        }
    }

    /// Takes note of a match of `length` bytes from `distance` before `position`.
    fn note(&mut self, position: usize, distance: usize, length: usize) {
        let back = distance
            .saturating_sub(position.saturating_sub(self.origin))
            .min(HISTORY);
        let first = HISTORY - back;
        self.used[first..first + length.min(back)].fill(true);
    }
}

/// Why [`Decoder::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// More input is needed; what is not yet read must be given again, with more behind it.
    Input,
    /// `limit` is reached; there may be more.
    Output,
    /// A block ended and another follows: an access point can be here (see [`Decoder::unread_bits`]).
    Block,
    /// The last block ended; the input's position is the first byte after the stream.
    End,
}

/// The part of a block that the decoder is in.
#[derive(Clone, Copy)]
enum Block {
    Header,
    Stored { left: usize },
    Codes,
    Done,
}

struct Tables {
    litlen: [u32; LITLEN_ROOM],
    distance: [u32; DISTANCE_ROOM],
    /// Whether these are the tables of the fixed code, which then need not be built again.
    fixed: bool,
}

/// The state of decoding between two calls of [`Decoder::run`].
pub struct Decoder {
    /// Bits taken from the input and not yet used, the next one lowest. Between calls below 8 of them.
    bits: u64,
    bit_count: u32,
    block: Block,
    last_block: bool,
    tables: Box<Tables>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        let tables = Tables {
            litlen: [SPECIAL; LITLEN_ROOM],
            distance: [SPECIAL; DISTANCE_ROOM],
            fixed: false,
        };
        Self {
            bits: 0,
            bit_count: 0,
            block: Block::Header,
            last_block: false,
            tables: Box::new(tables),
        }
    }

    /// Forgets everything but its memory, to start at another stream.
    pub fn reset(&mut self) {
        (self.bits, self.bit_count, self.block, self.last_block) = (0, 0, Block::Header, false);
    }

    /// Starts at a block that begins `bit_offset` bits (0 to 7) into the input's next byte.
    pub fn enter(&mut self, input: &mut Input<'_>, bit_offset: u8) -> Result<(), InflateError> {
        self.reset();
        if bit_offset > 0 {
            let &byte = input.bytes.get(input.position).ok_or(InflateError::Truncated)?;
            input.position += 1;
            self.bits = u64::from(byte) >> (bit_offset & 7);
            self.bit_count = 8 - u32::from(bit_offset & 7);
        }
        Ok(())
    }

    /// How many bits (0 to 7) of the byte before the input's position are not yet used.
    pub fn unread_bits(&self) -> u32 {
        self.bit_count
    }

    /// Decodes until there is something to say.
    pub fn run(&mut self, input: &mut Input<'_>, output: &mut Output<'_>) -> Result<Stop, InflateError> {
        output.limit = output.limit.min(output.bytes.len().saturating_sub(OUTPUT_SLACK));
        loop {
            let stop = match self.block {
                Block::Header if input.left() < INPUT_LOW && !input.last => Some(Stop::Input),
                Block::Header => {
                    self.read_header(input)?;
                    continue;
                }
                Block::Stored { left } => self.copy_stored(left, input, output)?,
                Block::Codes => self.decode_codes(input, output)?,
                Block::Done => Some(Stop::End),
            };
            if let Some(stop) = stop {
                return Ok(stop);
            }
            if !self.last_block {
                self.block = Block::Header;
                return Ok(Stop::Block);
            }
            self.block = Block::Done;
            (self.bits, self.bit_count) = (0, 0);
        }
    }

    /// Reads a block's header and leaves the decoder inside the block.
    fn read_header(&mut self, input: &mut Input<'_>) -> Result<(), InflateError> {
        self.last_block = self.take(input, 1)? == 1;
        match self.take(input, 2)? {
            0 => self.read_stored_header(input)?,
            1 => {
                self.fixed_tables()?;
                self.block = Block::Codes;
            }
            2 => {
                self.dynamic_tables(input)?;
                self.block = Block::Codes;
            }
            _ => return Err(InflateError::BlockType),
        }
        self.give_back(input);
        Ok(())
    }

    fn read_stored_header(&mut self, input: &mut Input<'_>) -> Result<(), InflateError> {
        self.give_back(input);
        (self.bits, self.bit_count) = (0, 0);
        let length = self.take(input, 16)? as u16;
        let complement = self.take(input, 16)? as u16;
        if length != !complement {
            return Err(InflateError::StoredLength { length, complement });
        }
        self.block = Block::Stored {
            left: usize::from(length),
        };
        Ok(())
    }

    fn fixed_tables(&mut self) -> Result<(), InflateError> {
        if !self.tables.fixed {
            huffman::build(
                Alphabet::LiteralsAndLengths,
                &huffman::fixed_litlen(),
                &mut self.tables.litlen,
            )?;
            huffman::build(Alphabet::Distances, &[5; 32], &mut self.tables.distance)?;
            self.tables.fixed = true;
        }
        Ok(())
    }

    fn dynamic_tables(&mut self, input: &mut Input<'_>) -> Result<(), InflateError> {
        self.tables.fixed = false;
        let litlen = self.take(input, 5)? as usize + 257;
        let distance = self.take(input, 5)? as usize + 1;
        let precodes = self.take(input, 4)? as usize + 4;
        if litlen > 286 || distance > 30 {
            return Err(InflateError::TooManyCodes { litlen, distance });
        }
        let mut precode_lengths = [0u8; 19];
        for &symbol in &PRECODE_ORDER[..precodes] {
            precode_lengths[symbol] = self.take(input, 3)? as u8;
        }
        let mut precode = [0; PRECODE_ROOM];
        huffman::build(Alphabet::CodeLengths, &precode_lengths, &mut precode)?;
        let mut lengths = [0u8; 286 + 30];
        let lengths = &mut lengths[..litlen + distance];
        self.read_lengths(input, &precode, lengths)?;
        if lengths[256] == 0 {
            return Err(InflateError::NoEndOfBlock);
        }
        let (litlen, distance) = lengths.split_at(litlen);
        huffman::build(Alphabet::LiteralsAndLengths, litlen, &mut self.tables.litlen)?;
        huffman::build(Alphabet::Distances, distance, &mut self.tables.distance)
    }

    /// Reads the code lengths of both codes, which are one sequence (RFC 1951, 3.2.7).
    fn read_lengths(
        &mut self,
        input: &mut Input<'_>,
        precode: &[u32; PRECODE_ROOM],
        lengths: &mut [u8],
    ) -> Result<(), InflateError> {
        let mut filled = 0;
        while filled < lengths.len() {
            self.refill(input);
            let entry = precode[self.bits as usize & ((1 << PRECODE_BITS) - 1)];
            if entry & SPECIAL != 0 {
                return Err(InflateError::NotASymbol);
            }
            self.take(input, entry & 31)?;
            let (length, repeat) = match entry >> 16 {
                16 if filled == 0 => return Err(InflateError::BadRepeat),
                16 => (lengths[filled - 1], 3 + self.take(input, 2)?),
                17 => (0, 3 + self.take(input, 3)?),
                18 => (0, 11 + self.take(input, 7)?),
                length => (length as u8, 1),
            };
            let end = filled + repeat as usize;
            lengths
                .get_mut(filled..end)
                .ok_or(InflateError::BadRepeat)?
                .fill(length);
            filled = end;
        }
        Ok(())
    }

    fn copy_stored(
        &mut self,
        left: usize,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<Option<Stop>, InflateError> {
        let room = output.limit.saturating_sub(output.position);
        let length = left.min(room).min(input.left());
        let from = &input.bytes[input.position..input.position + length];
        output.bytes[output.position..output.position + length].copy_from_slice(from);
        input.position += length;
        output.position += length;
        self.block = Block::Stored { left: left - length };
        match left - length {
            0 => Ok(None),
            _ if length == room => Ok(Some(Stop::Output)),
            _ if input.last => Err(InflateError::Truncated),
            _ => Ok(Some(Stop::Input)),
        }
    }

    /// Takes whole bytes from the input until there are at least 56 bits or no more input.
    fn refill(&mut self, input: &mut Input<'_>) {
        while self.bit_count < 56 {
            let Some(&byte) = input.bytes.get(input.position) else {
                return;
            };
            self.bits |= u64::from(byte) << self.bit_count;
            self.bit_count += 8;
            input.position += 1;
        }
    }

    /// The next `count` bits (at most 16).
    fn take(&mut self, input: &mut Input<'_>, count: u32) -> Result<u32, InflateError> {
        if self.bit_count < count {
            self.refill(input);
            if self.bit_count < count {
                return Err(InflateError::Truncated);
            }
        }
        let value = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.bit_count -= count;
        Ok(value as u32)
    }

    /// Gives whole bytes that were taken but not used back to the input.
    fn give_back(&mut self, input: &mut Input<'_>) {
        input.position -= (self.bit_count / 8) as usize;
        self.bit_count %= 8;
        self.bits &= (1 << self.bit_count) - 1;
    }
}

/// The order in which a block's header lists the lengths of the code lengths' own codes (RFC 1951, 3.2.7).
const PRECODE_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
