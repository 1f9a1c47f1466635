//! Reads zstd frames (RFC 8878, 3.1), one after another, and keeps all that they say.
//!
//! The input comes in pieces of any size. The reader holds one block of it; the plain bytes belong to its owner, who keeps the window.

use super::block::{self, Carried, Compressed};
use super::frame::{self, Frame, HEAD_LEAST, MAGIC, number};
use super::{BLOCK_MOST, InvalidZstd};

/// The first bytes of a skippable frame, but for the lowest four bits.
const SKIPPABLE: u32 = 0x184d_2a50;
/// What is between the heads of frames and blocks comes in pieces of this size at most.
const PIECE: usize = 64 << 10;
/// The length of a block's head.
pub(crate) const BLOCK_HEAD: usize = 3;

/// One thing that the stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A frame begins, with these bytes.
    Head(Vec<u8>),
    /// A block.
    Block(Block),
    /// These bytes are the checksum of a frame, or part of a skippable one.
    Other(Vec<u8>),
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Whether its frame ends with it.
    pub(crate) is_last: bool,
    /// How many plain bytes it holds.
    pub(crate) size: usize,
    /// What it says.
    pub(crate) body: Body,
}

/// What a block says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// The plain bytes as they are.
    Raw,
    /// All are the same byte.
    One,
    /// Literals and copies. With it the bytes of the block.
    Compressed(Box<Compressed>, Vec<u8>),
    /// The bytes of a compressed block that says what it says in a way that is not known, and what it leaves to the next one. The reader makes none.
    Verbatim(Vec<u8>, Box<Carried>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    Head,
    SkippableHead,
    Skippable(u64),
    BlockHead,
    Block { is_last: bool, kind: u32, size: usize },
    Checksum,
}

/// Reads frames.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    state: State,
    /// What was taken for the next step, and how many bytes that needs.
    unit: Vec<u8>,
    need: usize,
    frame: Frame,
    /// Plain bytes of the frame.
    position: u64,
    /// What the next block of the frame may repeat.
    pub(crate) carried: Carried,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            state: State::Begin,
            unit: Vec::new(),
            need: 4,
            frame: Frame::default(),
            position: 0,
            carried: Carried::default(),
        }
    }
}

impl Reader {
    /// The frame that has begun. The owner keeps as many plain bytes as its window has.
    pub(crate) fn frame(&self) -> Frame {
        self.frame
    }

    /// How many plain bytes of the frame there were.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Whether no frame has begun that has not ended.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.state == State::Begin && self.unit.is_empty()
    }

    /// Reads on: takes bytes off `input`, and appends to `plain`. Returns one item, or `None` if more input is needed.
    pub(crate) fn read(
        &mut self,
        input: &mut &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Option<Item>, InvalidZstd> {
        loop {
            if let State::Skippable(left) = self.state {
                self.need = usize::try_from(left)
                    .unwrap_or(PIECE)
                    .min(PIECE)
                    .min(input.len().max(1));
            }
            let (some, rest) = input.split_at(input.len().min(self.need - self.unit.len()));
            self.unit.extend_from_slice(some);
            *input = rest;
            if self.unit.len() < self.need {
                return Ok(None);
            }
            if let Some(item) = self.step(plain)? {
                return Ok(Some(item));
            }
        }
    }

    fn go_on(&mut self, state: State, need: usize) -> Vec<u8> {
        (self.state, self.need) = (state, need);
        std::mem::take(&mut self.unit)
    }

    /// The unit is whole.
    fn step(&mut self, plain: &mut Vec<u8>) -> Result<Option<Item>, InvalidZstd> {
        match self.state {
            State::Begin => self.begin(),
            State::Head => self.head(),
            State::SkippableHead => {
                let left = number(&self.unit[4..]);
                Ok(Some(Item::Other(self.skip(left))))
            }
            State::Skippable(left) => {
                let left = left - self.unit.len() as u64;
                Ok(Some(Item::Other(self.skip(left))))
            }
            State::BlockHead => self.block_head(),
            State::Block { is_last, kind, size } => {
                let body = self.body(kind, size, plain)?;
                if is_last {
                    let (state, need) = if self.frame.has_checksum {
                        (State::Checksum, 4)
                    } else {
                        (State::Begin, 4)
                    };
                    self.go_on(state, need);
                } else {
                    self.go_on(State::BlockHead, BLOCK_HEAD);
                }
                let (body, size) = body;
                self.position += size as u64;
                Ok(Some(Item::Block(Block { is_last, size, body })))
            }
            State::Checksum => Ok(Some(Item::Other(self.go_on(State::Begin, 4)))),
        }
    }

    fn begin(&mut self) -> Result<Option<Item>, InvalidZstd> {
        match number(&self.unit) as u32 {
            MAGIC => (self.state, self.need) = (State::Head, HEAD_LEAST),
            magic if magic & !15 == SKIPPABLE => (self.state, self.need) = (State::SkippableHead, 8),
            _ => return Err(InvalidZstd::Magic),
        }
        Ok(None)
    }

    /// Bytes of a skippable frame, after which so many are left.
    fn skip(&mut self, left: u64) -> Vec<u8> {
        if left == 0 {
            self.go_on(State::Begin, 4)
        } else {
            self.go_on(State::Skippable(left), 1)
        }
    }

    /// Magic, descriptor, and then the whole head.
    fn head(&mut self) -> Result<Option<Item>, InvalidZstd> {
        self.need = frame::head_length(self.unit[HEAD_LEAST - 1]);
        if self.unit.len() < self.need {
            return Ok(None);
        }
        self.frame = Frame::read(&self.unit)?;
        self.position = 0;
        self.carried = Carried::default();
        Ok(Some(Item::Head(self.go_on(State::BlockHead, BLOCK_HEAD))))
    }

    fn block_head(&mut self) -> Result<Option<Item>, InvalidZstd> {
        let head = number(&self.unit) as u32;
        let (is_last, kind, size) = (head & 1 == 1, head >> 1 & 3, (head >> 3) as usize);
        if kind == 3 {
            return Err(InvalidZstd::BlockKind);
        }
        if size > BLOCK_MOST {
            return Err(InvalidZstd::BlockSize);
        }
        let need = if kind == 1 { 1 } else { size };
        self.go_on(State::Block { is_last, kind, size }, need);
        Ok(None)
    }

    /// The body of a block, and how many plain bytes it has.
    fn body(&mut self, kind: u32, size: usize, plain: &mut Vec<u8>) -> Result<(Body, usize), InvalidZstd> {
        match kind {
            0 => {
                plain.extend_from_slice(&self.unit);
                Ok((Body::Raw, size))
            }
            1 => {
                plain.resize(plain.len() + size, self.unit[0]);
                Ok((Body::One, size))
            }
            _ => {
                let old = plain.len();
                let reach = self.position.min(self.frame.window).min(old as u64) as usize;
                // What the block itself adds may be reached, too, so the limit is by the frame's beginning where that is near.
                let window = old - reach;
                let compressed = block::read(&self.unit, &mut self.carried, plain, window, BLOCK_MOST)?;
                let body = Body::Compressed(Box::new(compressed), self.unit.clone());
                Ok((body, plain.len() - old))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::block::literals_of;
    use xebec_testkit::corpus;

    /// Made once: each case takes some of it.
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| corpus::bytes("text"));

    /// Reads all, in pieces of these sizes, and writes each block again.
    fn read_and_write(input: &[u8], pieces: &[usize]) -> Result<(Vec<u8>, Vec<u8>, usize), InvalidZstd> {
        let mut reader = Reader::default();
        let (mut plain, mut written, mut other) = (Vec::new(), Vec::new(), 0);
        let mut rest = input;
        let mut sizes = pieces.iter().cycle();
        let mut carried = Carried::default();
        while !rest.is_empty() {
            let (mut piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            rest = after;
            while let Some(item) = reader.read(&mut piece, &mut plain)? {
                match item {
                    Item::Head(bytes) => {
                        carried = Carried::default();
                        written.extend(bytes);
                    }
                    Item::Other(bytes) => written.extend(bytes),
                    Item::Block(block) => other += write(&block, &plain, &mut carried, &mut written),
                }
            }
            assert!(piece.is_empty());
        }
        if !reader.is_between_frames() {
            return Err(InvalidZstd::Truncated);
        }
        Ok((plain, written, other))
    }

    /// Writes a block, and returns how often it was not made as it was.
    fn write(block: &Block, plain: &[u8], carried: &mut Carried, output: &mut Vec<u8>) -> usize {
        let plain = &plain[plain.len() - block.size..];
        let (kind, body) = match &block.body {
            Body::Raw => (0, plain.to_vec()),
            Body::One => (1, plain[..1].to_vec()),
            Body::Verbatim(..) => return 1,
            Body::Compressed(compressed, bytes) => {
                let (mut literals, mut body) = (Vec::new(), Vec::new());
                literals_of(plain, &compressed.sequences, &mut literals);
                let is_told = compressed.write(&literals, carried, &mut body);
                if is_told.is_none() || body != *bytes {
                    return 1;
                }
                (2, body)
            }
        };
        let size = if kind == 1 { block.size } else { body.len() };
        let head = u32::from(block.is_last) | kind << 1 | (size as u32) << 3;
        output.extend_from_slice(&head.to_le_bytes()[..3]);
        output.extend(body);
        0
    }

    #[test]
    fn frames_of_libzstd_are_written_as_they_were_read() {
        for name in corpus::NAMES {
            let plain = corpus::bytes(name);
            let some = &plain[..plain.len().min(400_000)];
            for level in [-7, -1, 1, 2, 3, 4, 5, 7, 9, 12, 13, 16, 18, 19, 22] {
                let compressed = zstd::encode_all(some, level).unwrap();
                let (read, written, other) = read_and_write(&compressed, &[1_000, 70_000]).unwrap();
                assert!(
                    read == some && other == 0 && written == compressed,
                    "{name} {level}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(seed in any::<u64>(), sizes in prop::collection::vec(1..3000_usize, 1..20), level in -5..12) {
            let mut numbers = corpus::Numbers(seed);
            let text = &*TEXT;
            let plain: Vec<u8> = (0..20).flat_map(|_| {
                let from = numbers.below(text.len() - 5000);
                text[from..from + numbers.below(5000)].to_vec()
            }).collect();
            let mut compressed = zstd::encode_all(&plain[..], level).unwrap();
            compressed.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            compressed.extend(zstd::encode_all(&plain[..plain.len() / 2], level).unwrap());
            let (read, written, other) = read_and_write(&compressed, &sizes).unwrap();
            prop_assert_eq!(read, [&plain[..], &plain[..plain.len() / 2]].concat());
            prop_assert!(other == 0 && written == compressed);
        }

        #[test]
        fn damage_is_no_panic(seed in any::<u64>(), place in any::<usize>(), byte in any::<u8>(), end in any::<usize>()) {
            let mut numbers = corpus::Numbers(seed);
            let text = &*TEXT;
            let from = numbers.below(text.len() - 9000);
            let mut compressed = zstd::encode_all(&text[from..from + 9000], (seed % 20) as i32).unwrap();
            let place = place % compressed.len();
            compressed[place] = byte;
            compressed.truncate(compressed.len() - (end % 3) * (end % compressed.len()) / 2);
            let _ = read_and_write(&compressed, &[50]);
        }
    }
}
