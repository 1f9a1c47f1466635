//! A description in bytes: `docs/formats/recompression.md`.
//!
//! Reading checks all that later steps rely on; what it accepts may still describe another stream than the plain bytes make, which digests tell.

use crate::description::{Description, MOST_HISTORY, Making, Part, Slice};
use crate::method::Method;

/// With this a description begins.
pub(crate) const MAGIC: [u8; 8] = *b"XBRECOMP";
/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;
/// Versions of the two kinds of corrections that are written, and the only ones that are read: what a predictor guesses is part of what its corrections
/// mean. A predictor that guesses otherwise is another version, and the one before stays for what it has described.
const VERSION_OF_CORRECTIONS: u8 = 1;
const VERSION_OF_FRAMES: u8 = 1;

const BYTES: u8 = 0;
const ENCODER: u8 = 1;
const CORRECTIONS: u8 = 2;
const FRAMES: u8 = 3;
/// Flags of a slice, above the kind.
const IS_LAST: u8 = 1 << 4;
const IS_RESUMED: u8 = 1 << 5;
/// Plain bytes of a description, and bits of its stream, at most.
const MOST: u64 = 1 << 60;
/// Numbers in the state of a cut, at most.
const MOST_STATE: u64 = 64;
/// Plain bytes of a slice of zstd frames, at most.
const MOST_OF_FRAMES: u64 = 64 << 20;
/// Plain bytes after a slice that it may want, at most.
const MOST_LOOKAHEAD: u64 = 64 << 20;

/// Why bytes are no description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDescription {
    /// They begin otherwise.
    #[error("this is no description of a compressed stream")]
    Magic,
    /// A version that this program does not know.
    #[error("the description has version {0}, and this program knows version 1")]
    Version(u32),
    /// Corrections of a version that this program does not know.
    #[error("the description has corrections of version {0}, and this program knows version 1")]
    Corrections(u8),
    /// They end in the middle, or go on after the end.
    #[error("the description has a wrong length")]
    Length,
    /// An encoder that this program does not know.
    #[error("the description names an encoder that is not known")]
    Method,
    /// A number that cannot be.
    #[error("the description has a number that cannot be")]
    Number,
    /// It would take more memory than this.
    #[error("the description takes more than {0} bytes of memory")]
    Memory(u64),
}

impl Description {
    /// The description in bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        put(self.parts.len() as u64, &mut bytes);
        for part in &self.parts {
            match part {
                Part::Bytes(own) => {
                    bytes.push(BYTES);
                    put_bytes(own, &mut bytes);
                }
                Part::Slice(slice) => put_slice(slice, &mut bytes),
            }
        }
        bytes
    }

    /// The description that these bytes are. Takes memory in proportion to them: up to fifty times as much.
    ///
    /// # Errors
    ///
    /// [`InvalidDescription`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Description, InvalidDescription> {
        Description::from_bytes_within(bytes, u64::MAX)
    }

    /// The same, if it takes so many bytes of memory at most while a stream is made by it.
    ///
    /// # Errors
    ///
    /// [`InvalidDescription`].
    pub fn from_bytes_within(bytes: &[u8], memory: u64) -> Result<Description, InvalidDescription> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(InvalidDescription::Magic)?;
        let (version, rest) = rest.split_first_chunk().ok_or(InvalidDescription::Length)?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(InvalidDescription::Version(other)),
        }
        let mut reader = Reader(rest);
        let count = reader.number()?;
        let mut parts = Vec::new();
        let (mut plain, mut bits, mut taken) = (0_u64, 0_u64, 0_u64);
        for _ in 0..count {
            let part = reader.part()?;
            taken = taken.saturating_add(part.memory());
            if taken > memory {
                return Err(InvalidDescription::Memory(memory));
            }
            if let Part::Slice(slice) = &part {
                // Each is at most as much, so the sums do not overflow before they are refused.
                (plain, bits) = (plain + slice.plain, bits + slice.bits);
                if plain.max(bits) > MOST {
                    return Err(InvalidDescription::Number);
                }
            }
            parts.push(part);
        }
        if !reader.0.is_empty() {
            return Err(InvalidDescription::Length);
        }
        Ok(Description { parts })
    }
}

fn put_slice(slice: &Slice, bytes: &mut Vec<u8>) {
    let (kind, is_resumed) = match &slice.making {
        Making::Encoder { state, .. } => (ENCODER, state.is_some()),
        Making::Corrections { is_first, .. } => (CORRECTIONS, !is_first),
        Making::Frames(_) => (FRAMES, slice.history > 0),
    };
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    bytes.push(kind | flag(slice.is_last, IS_LAST) | flag(is_resumed, IS_RESUMED));
    for number in [slice.plain, slice.bits, u64::from(slice.lookahead)] {
        put(number, bytes);
    }
    if is_resumed {
        put(u64::from(slice.history), bytes);
        bytes.extend([slice.begun.0, slice.begun.1]);
    }
    match &slice.making {
        Making::Encoder {
            method,
            state,
            flushes,
        } => {
            bytes.extend(method.to_code());
            if let Some(state) = state {
                put(state.len() as u64, bytes);
                state.iter().for_each(|&number| put(number, bytes));
            }
            put(flushes.len() as u64, bytes);
            let mut before = 0;
            for flush in flushes {
                put(flush - before, bytes);
                before = *flush;
            }
        }
        Making::Corrections { corrections, .. } => {
            bytes.push(VERSION_OF_CORRECTIONS);
            put_bytes(corrections, bytes);
        }
        Making::Frames(corrections) => {
            bytes.push(VERSION_OF_FRAMES);
            put_bytes(corrections, bytes);
        }
    }
}

/// A number in groups of seven bits, the lowest first; the highest bit of a byte says that another follows.
fn put(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_bytes(own: &[u8], bytes: &mut Vec<u8>) {
    put(own.len() as u64, bytes);
    bytes.extend_from_slice(own);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, InvalidDescription> {
        let (&byte, rest) = self.0.split_first().ok_or(InvalidDescription::Length)?;
        self.0 = rest;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, InvalidDescription> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            number |= group << shift;
            // The tenth byte has one bit, and a number has one form.
            let is_over = shift == 63 && byte > 1 || shift > 0 && byte == 0;
            if is_over {
                return Err(InvalidDescription::Number);
            }
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(InvalidDescription::Number)
    }

    /// A number up to `most`.
    fn small(&mut self, most: u64) -> Result<u64, InvalidDescription> {
        self.number().and_then(|number| {
            if number > most {
                Err(InvalidDescription::Number)
            } else {
                Ok(number)
            }
        })
    }

    fn bytes(&mut self) -> Result<Vec<u8>, InvalidDescription> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| InvalidDescription::Length)?;
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(InvalidDescription::Length)?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    fn part(&mut self) -> Result<Part, InvalidDescription> {
        let tag = self.byte()?;
        if tag == BYTES {
            return Ok(Part::Bytes(self.bytes()?));
        }
        let (kind, is_last, is_resumed) = (tag & 0x0f, tag & IS_LAST != 0, tag & IS_RESUMED != 0);
        if tag & !(0x0f | IS_LAST | IS_RESUMED) != 0 {
            return Err(InvalidDescription::Number);
        }
        let (plain, bits) = (self.small(MOST)?, self.small(MOST)?);
        let lookahead = self.small(MOST_LOOKAHEAD)? as u32;
        let (history, begun) = if is_resumed {
            (self.small(MOST_HISTORY)? as u32, (self.byte()?, self.byte()?))
        } else {
            (0, (0, 0))
        };
        if begun.0 > 7 || begun.1 >> begun.0 != 0 {
            return Err(InvalidDescription::Number);
        }
        let making = match kind {
            ENCODER => self.encoder(is_resumed)?,
            CORRECTIONS => Making::Corrections {
                is_first: !is_resumed,
                corrections: self.corrections(VERSION_OF_CORRECTIONS)?,
            },
            // It is made at once.
            FRAMES if plain <= MOST_OF_FRAMES && is_resumed == (history > 0) => {
                Making::Frames(self.corrections(VERSION_OF_FRAMES)?)
            }
            _ => return Err(InvalidDescription::Number),
        };
        Ok(Part::Slice(Slice {
            plain,
            history,
            lookahead,
            bits,
            begun,
            is_last,
            making,
        }))
    }

    /// Corrections, of this version.
    fn corrections(&mut self, version: u8) -> Result<Vec<u8>, InvalidDescription> {
        match self.byte()? {
            known if known == version => self.bytes(),
            other => Err(InvalidDescription::Corrections(other)),
        }
    }

    fn encoder(&mut self, is_resumed: bool) -> Result<Making, InvalidDescription> {
        let (code, rest) = self.0.split_first_chunk().ok_or(InvalidDescription::Length)?;
        self.0 = rest;
        let method = Method::from_code(*code).ok_or(InvalidDescription::Method)?;
        let state = if is_resumed {
            let count = self.small(MOST_STATE)?;
            Some((0..count).map(|_| self.number()).collect::<Result<_, _>>()?)
        } else {
            None
        };
        let count = self.number()?;
        let mut flushes = Vec::new();
        let mut before = 0_u64;
        for _ in 0..count {
            before = before
                .checked_add(self.number()?)
                .ok_or(InvalidDescription::Number)?;
            flushes.push(before);
        }
        Ok(Making::Encoder {
            method,
            state,
            flushes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(plain: u64, bits: u64) -> Part {
        Part::Slice(Slice {
            plain,
            history: 0,
            lookahead: 0,
            bits,
            begun: (0, 0),
            is_last: false,
            making: Making::Corrections {
                is_first: true,
                corrections: vec![1, 2, 3],
            },
        })
    }

    #[test]
    fn descriptions_of_more_than_can_be_are_refused() {
        let read = |parts: Vec<Part>| Description::from_bytes(&Description { parts }.to_bytes());
        assert!(read(vec![slice(MOST, MOST)]).is_ok());
        assert!(read(vec![slice(MOST, 1), slice(0, MOST - 1)]).is_ok());
        let refused = Err(InvalidDescription::Number);
        assert_eq!(read(vec![slice(MOST + 1, 0)]), refused);
        assert_eq!(read(vec![slice(MOST, 0), slice(1, 0)]), refused);
        assert_eq!(read(vec![slice(0, MOST); 20]), refused);
    }

    #[test]
    fn corrections_of_another_version_are_refused() {
        let frames = Part::Slice(Slice {
            plain: 3,
            history: 0,
            lookahead: 0,
            bits: 80,
            begun: (0, 0),
            is_last: true,
            making: Making::Frames(vec![1, 2, 3]),
        });
        for part in [slice(3, 80), frames] {
            let mut bytes = Description { parts: vec![part] }.to_bytes();
            assert!(Description::from_bytes(&bytes).is_ok());
            // Before the three bytes and their length.
            let version = bytes.len() - 5;
            assert_eq!(bytes[version], 1);
            bytes[version] = 2;
            assert_eq!(
                Description::from_bytes(&bytes),
                Err(InvalidDescription::Corrections(2))
            );
        }
    }

    #[test]
    fn bytes_that_are_no_description_are_told_apart() {
        let bytes = Description {
            parts: vec![Part::Bytes(b"head".to_vec()), slice(5, 7)],
        }
        .to_bytes();
        assert!(Description::from_bytes(&bytes).is_ok());
        for length in 8..bytes.len() {
            assert_eq!(
                Description::from_bytes(&bytes[..length]),
                Err(InvalidDescription::Length),
                "{length}"
            );
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Description::from_bytes(&longer), Err(InvalidDescription::Length));
        assert_eq!(
            Description::from_bytes(b"XBRECOMQ"),
            Err(InvalidDescription::Magic)
        );
        let mut newer = bytes;
        newer[8] = 2;
        assert_eq!(
            Description::from_bytes(&newer),
            Err(InvalidDescription::Version(2))
        );
    }
}
