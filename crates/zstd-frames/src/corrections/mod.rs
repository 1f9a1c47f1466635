//! Where the guesses about a stretch of frames are wrong.
//!
//! The code is the same on the writing and on the reading side of the [range coder](super::range_coder): each function is given what it is to say, and
//! returns it. On the reading side it is given nothing of meaning, and returns what was written. All that comes from there is checked before use.

pub(crate) mod damaged;
mod sequences;
mod tables;

use self::damaged::Damaged;
use super::BLOCK_MOST;
use super::block::{self, Carried, Compressed};
use super::entropy::Habits;
use super::frame::{Frame, HEAD_MOST};
use super::guess::profile::Profile;
use super::guess::{self, Guesser, Span};
use super::models::{Bytes, Symbol};
use super::range_coder::{Bit, Coder};
use super::reader::{BLOCK_HEAD, Block, Body, Item};
use super::sequences::Distances;

/// The most bytes that one item has between blocks.
const OTHER_MOST: usize = 64 << 10;

/// Contexts of what is not in blocks, and of the heads of blocks.
#[derive(Debug, Clone, Default)]
struct Heads {
    item: [Symbol<4>; 4],
    head: Vec<Bytes>,
    other: Bytes,
    is_last: [Bit; 2],
    kind: [Symbol<4>; 4],
    is_usual: [Bit; 2],
    is_multiple: Bit,
    multiple: Symbol<32>,
}

/// One side at work on a stretch.
pub(crate) struct Scribe<C: Coder> {
    /// The range coder.
    pub(crate) coder: C,
    heads: Heads,
    sequences: sequences::Contexts,
    tables: tables::Contexts,
    guesser: Box<dyn Guesser>,
    habits: Habits,
    place: Place,
    last_item: usize,
    last_kind: usize,
}

/// Where a stretch begins, and what is known there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The frame that has begun.
    pub(crate) frame: Frame,
    /// How many plain bytes of it are before.
    pub(crate) position: u64,
    /// What its next block may repeat.
    pub(crate) carried: Carried,
    /// How large its last block was that is not the last one.
    pub(crate) usual: usize,
}

impl Default for Place {
    fn default() -> Place {
        Place {
            frame: Frame::default(),
            position: 0,
            carried: Carried::default(),
            usual: BLOCK_MOST,
        }
    }
}

impl<C: Coder> Scribe<C> {
    /// Begins a stretch of `text` at `start`: says where it is, and makes the encoder known to what is before it.
    pub(crate) fn begin(
        coder: C,
        profile: Profile,
        place: &Place,
        text: &[u8],
        start: usize,
    ) -> Result<Scribe<C>, Damaged> {
        let mut scribe = Scribe {
            coder,
            heads: Heads::default(),
            sequences: sequences::Contexts::default(),
            tables: tables::Contexts::default(),
            guesser: profile.guesser().ok_or(Damaged::Profile)?,
            habits: profile.habits(),
            place: Place::default(),
            last_item: 1,
            last_kind: 2,
        };
        scribe.code_place(place)?;
        scribe.prime(text, start);
        Ok(scribe)
    }

    fn code_place(&mut self, place: &Place) -> Result<(), Damaged> {
        let coder = &mut self.coder;
        let mut number = |number: u64| {
            let high = coder.direct((number >> 32) as u32, 32);
            u64::from(high) << 32 | u64::from(coder.direct(number as u32, 32))
        };
        let position = number(place.position);
        let window = number(place.frame.window);
        let size = number(place.frame.size.map_or(0, |size| size.wrapping_add(1)));
        let usual = coder.direct(place.usual as u32, 18) as usize;
        if usual == 0 || usual > BLOCK_MOST {
            return Err(Damaged::Value);
        }
        self.place = Place {
            frame: Frame {
                window,
                size: size.checked_sub(1),
                has_checksum: false,
            },
            position,
            carried: Carried::default(),
            usual,
        };
        if position > 0 {
            self.place.carried = self.code_carried(&place.carried)?;
        }
        Ok(())
    }

    fn code_carried(&mut self, carried: &Carried) -> Result<Carried, Damaged> {
        let distances = carried
            .distances
            .0
            .map(|distance| self.coder.direct(distance, 32));
        let code = self
            .tables
            .carried_code(&mut self.coder, carried.code.as_deref())?;
        let mut tables = [None, None, None];
        for (kind, table) in tables.iter_mut().enumerate() {
            *table = self
                .tables
                .carried_table(&mut self.coder, kind, carried.tables[kind].as_ref())?;
        }
        Ok(Carried {
            distances: Distances(distances),
            code,
            tables,
        })
    }

    /// Lets the encoder run over the plain bytes before the stretch.
    fn prime(&mut self, text: &[u8], start: usize) {
        self.guesser.begin_frame(&self.place.frame);
        let history = start.min(usize::try_from(self.place.position).unwrap_or(usize::MAX));
        let frame = start - history;
        let usual = self.place.usual;
        let mut from = frame;
        while from < start {
            let left = start - from;
            let size = if left.is_multiple_of(usual) {
                usual
            } else {
                left % usual
            };
            let span = Span {
                start: from,
                end: from + size,
                frame,
                position: self.place.position - left as u64,
                distances: Distances::default(),
            };
            guess::run(self.guesser.as_mut(), text, &span);
            from += size;
        }
    }

    /// One item, or `None` for the end of the stretch. `start` is where the plain bytes of a block begin in the text; the reading side returns a
    /// compressed block without its bytes. `output` gets the bytes of the item.
    pub(crate) fn item(
        &mut self,
        text: &[u8],
        start: usize,
        given: Option<&Item>,
        output: &mut Vec<u8>,
    ) -> Result<Option<usize>, Damaged> {
        let kind = match given {
            Some(Item::Block(_)) => 0,
            Some(Item::Head(_)) => 1,
            Some(Item::Other(_)) => 2,
            None => 3,
        };
        self.last_item = self.heads.item[self.last_item].code(&mut self.coder, kind);
        match (self.last_item, given) {
            (0, Some(Item::Block(block))) => self.block(text, start, Some(block), output).map(Some),
            (0, _) => self.block(text, start, None, output).map(Some),
            (1, given) => {
                let bytes = if let Some(Item::Head(bytes)) = given {
                    bytes.as_slice()
                } else {
                    &[]
                };
                self.head(bytes, output)?;
                Ok(Some(0))
            }
            (2, given) => {
                let bytes = if let Some(Item::Other(bytes)) = given {
                    bytes.as_slice()
                } else {
                    &[]
                };
                let bytes = self.heads.other.code(&mut self.coder, bytes, OTHER_MOST);
                if bytes.len() > OTHER_MOST || bytes.is_empty() {
                    return Err(Damaged::Value);
                }
                output.extend(bytes);
                Ok(Some(0))
            }
            _ => Ok(None),
        }
    }

    fn head(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<(), Damaged> {
        let heads = &mut self.heads;
        heads.head.resize_with(HEAD_MOST, Bytes::default);
        let length = self.coder.direct(bytes.len() as u32, 5) as usize;
        if length > HEAD_MOST {
            return Err(Damaged::Value);
        }
        let mut head = Vec::with_capacity(length);
        for (place, contexts) in heads.head.iter_mut().take(length).enumerate() {
            head.push(contexts.code_byte(&mut self.coder, bytes.get(place).copied().unwrap_or(0)));
        }
        let frame = Frame::read(&head).map_err(|_| Damaged::Value)?;
        self.guesser.begin_frame(&frame);
        self.place = Place {
            frame,
            usual: self.place.usual,
            ..Place::default()
        };
        output.extend(head);
        Ok(())
    }

    /// A block; returns how many plain bytes it has.
    // One function, since both sides take these steps in this order.
    fn block(
        &mut self,
        text: &[u8],
        start: usize,
        given: Option<&Block>,
        output: &mut Vec<u8>,
    ) -> Result<usize, Damaged> {
        let size = self.size(given.map_or(0, |block| block.size))?;
        let end = start
            .checked_add(size)
            .filter(|&end| end <= text.len())
            .ok_or(Damaged::Value)?;
        let is_end = self.place.frame.size == Some(self.place.position + size as u64);
        let is_last = given.is_some_and(|block| block.is_last);
        let is_last = self
            .coder
            .bit(&mut self.heads.is_last[usize::from(is_end)], is_last);
        if !is_last {
            self.place.usual = size.max(1);
        }
        let kind = match given.map(|block| &block.body) {
            Some(Body::Raw) => 0,
            Some(Body::One) => 1,
            None | Some(Body::Compressed(..)) => 2,
            Some(Body::Verbatim(..)) => 3,
        };
        let kind = self.heads.kind[self.last_kind].code(&mut self.coder, kind);
        self.last_kind = kind;
        let span = Span {
            start,
            end,
            frame: start.saturating_sub(usize::try_from(self.place.position).unwrap_or(usize::MAX)),
            position: self.place.position,
            distances: self.place.carried.distances,
        };
        let head = output.len();
        output.extend_from_slice(&[0; BLOCK_HEAD]);
        let given = given.map(|block| &block.body);
        match kind {
            0 => output.extend_from_slice(&text[start..end]),
            1 => output.push(text.get(start).copied().unwrap_or(0)),
            2 => {
                let compressed = if let Some(Body::Compressed(compressed, _)) = given {
                    Some(&**compressed)
                } else {
                    None
                };
                self.compressed(text, &span, compressed, output)?;
            }
            _ => {
                let verbatim = if let Some(Body::Verbatim(bytes, carried)) = given {
                    Some((bytes, &**carried))
                } else {
                    None
                };
                self.verbatim(verbatim, output)?;
            }
        }
        if kind != 2 {
            guess::run(self.guesser.as_mut(), text, &span);
        }
        let told = if kind == 1 {
            size
        } else {
            output.len() - head - BLOCK_HEAD
        };
        let bits = u32::from(is_last) | (kind.min(2) as u32) << 1 | (told as u32) << 3;
        output[head..head + BLOCK_HEAD].copy_from_slice(&bits.to_le_bytes()[..BLOCK_HEAD]);
        self.place.position += size as u64;
        Ok(size)
    }

    /// How many plain bytes a block has.
    fn size(&mut self, size: usize) -> Result<usize, Damaged> {
        const MULTIPLE: usize = 8 << 10;
        let left = self
            .place
            .frame
            .size
            .map(|size| size.saturating_sub(self.place.position));
        let is_known = left.is_some();
        let likely = self.place.usual.min(
            left.and_then(|left| usize::try_from(left).ok())
                .unwrap_or(BLOCK_MOST),
        );
        let (coder, heads) = (&mut self.coder, &mut self.heads);
        if coder.bit(&mut heads.is_usual[usize::from(is_known)], size == likely) {
            return Ok(likely);
        }
        let size = if coder.bit(&mut heads.is_multiple, size.is_multiple_of(MULTIPLE)) {
            heads.multiple.code(coder, size / MULTIPLE) * MULTIPLE
        } else {
            coder.direct(size as u32, 18) as usize
        };
        if size > BLOCK_MOST {
            Err(Damaged::Value)
        } else {
            Ok(size)
        }
    }

    fn compressed(
        &mut self,
        text: &[u8],
        span: &Span,
        given: Option<&Compressed>,
        output: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let mut distances = span.distances;
        let sequences = self.sequences.code(
            &mut self.coder,
            self.guesser.as_mut(),
            text,
            span,
            given.map(|given| given.sequences.as_slice()),
            &mut distances,
        )?;
        let mut literals = Vec::new();
        block::literals_of(&text[span.start..span.end], &sequences, &mut literals);
        let (kind, format) = self.tables.literals(
            &mut self.coder,
            &literals,
            given.map(|given| (&given.kind, given.format)),
        )?;
        let tables = self.tables.tables(
            &mut self.coder,
            &self.habits,
            &sequences,
            given.map(|given| &given.tables),
        )?;
        self.place.carried.distances = distances;
        let compressed = Compressed {
            kind,
            format,
            sequences,
            tables,
        };
        compressed
            .write(&literals, &mut self.place.carried, output)
            .ok_or(Damaged::Value)
    }

    /// A block whose bytes are kept as they are, and what it leaves to the next one.
    fn verbatim(&mut self, given: Option<(&Vec<u8>, &Carried)>, output: &mut Vec<u8>) -> Result<(), Damaged> {
        let bytes = given.map_or(&[][..], |(bytes, _)| bytes);
        let bytes = self.heads.other.code(&mut self.coder, bytes, BLOCK_MOST);
        if bytes.len() > BLOCK_MOST {
            return Err(Damaged::Value);
        }
        output.extend(bytes);
        let none = Carried::default();
        self.place.carried = self.code_carried(given.map_or(&none, |(_, carried)| carried))?;
        Ok(())
    }
}
