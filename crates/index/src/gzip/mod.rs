//! gzip (RFC 1952): members around deflate streams.
//!
//! [`header_length`] parses a member's header; `GzipReader` streams through all members of a blob, checks
//! CRC-32 and length of each, and lets its caller mark access points at block and member boundaries.
//!
//! After the last member, zeros are padding, as GNU gzip has it. Anything else is refused, as Go's reader
//! does, which most image tools use: a layer that two tools read differently is not worth running.

mod reader;

pub(crate) use reader::{Event, GzipReader};

use crate::inflate::InflateError;

/// First bytes of a member: the magic number and the method "deflate".
pub const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Bytes of the trailer: CRC-32 and length.
pub const TRAILER: usize = 8;

/// Longest header accepted, in bytes: 64 KiB of extra field, and as much of name and comment together.
pub const MAX_HEADER: usize = 128 << 10;

const FLAG_HEADER_CRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0xe0;

/// Why bytes are not gzip.
#[derive(Debug, thiserror::Error)]
pub enum GzipError {
    /// The blob could not be read.
    #[error("reading the blob: {0}")]
    Read(#[from] std::io::Error),
    /// The bytes where a member must start are something else.
    #[error("no gzip member at byte {at} of the blob: bad magic number or method")]
    Magic {
        /// Offset in the blob.
        at: u64,
    },
    /// A header has reserved flags, a wrong checksum, or is longer than [`MAX_HEADER`].
    #[error("bad gzip header at byte {at}: {problem}")]
    Header {
        /// Offset in the blob.
        at: u64,
        /// The defect, in words.
        problem: &'static str,
    },
    /// The deflate stream is wrong.
    #[error("gzip member, near byte {at}: {error}")]
    Inflate {
        /// Offset in the blob.
        at: u64,
        /// The defect of the stream.
        error: InflateError,
    },
    /// The blob ends inside a header or trailer.
    #[error("the gzip blob is cut off at byte {at}")]
    Truncated {
        /// Where it ends.
        at: u64,
    },
    /// CRC-32 or length in a trailer differ from what was decoded.
    #[error("gzip trailer at byte {at}: {what} is {found:#x}, but the member says {expected:#x}")]
    Trailer {
        /// Offset in the blob.
        at: u64,
        /// Which of the two.
        what: &'static str,
        /// The value in the trailer.
        expected: u32,
        /// The value that the decoded bytes have.
        found: u32,
    },
    /// Something other than zeros or a member follows a member.
    #[error("garbage after the gzip member, at byte {at} of the blob")]
    TrailingGarbage {
        /// Offset in the blob.
        at: u64,
    },
}

/// A defect of a header, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Not a gzip member.
    Magic,
    /// A gzip member with a bad header.
    Bad(&'static str),
}

/// Length of the member header that `bytes` start with; `None` if more bytes are needed to tell.
pub fn header_length(bytes: &[u8]) -> Result<Option<usize>, HeaderError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(HeaderError::Magic);
    }
    let length = match end_of_header(bytes)? {
        Some(length) if length <= MAX_HEADER => Some(length),
        None if bytes.len() < MAX_HEADER => None,
        _ => return Err(HeaderError::Bad("longer than 128 KiB")),
    };
    Ok(length)
}

fn end_of_header(bytes: &[u8]) -> Result<Option<usize>, HeaderError> {
    let Some(&flags) = bytes.get(3) else {
        return Ok(None);
    };
    if flags & FLAGS_RESERVED != 0 {
        return Err(HeaderError::Bad("reserved flags are set"));
    }
    let mut end = 10;
    if flags & FLAG_EXTRA != 0 {
        let Some(&[low, high]) = bytes.get(end..end + 2) else {
            return Ok(None);
        };
        end += 2 + usize::from(u16::from_le_bytes([low, high]));
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let text = bytes.get(end..).unwrap_or_default();
            let Some(zero) = text.iter().position(|&byte| byte == 0) else {
                return Ok(None);
            };
            end += zero + 1;
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        let (Some(header), Some(&[low, high])) = (bytes.get(..end), bytes.get(end..end + 2)) else {
            return Ok(None);
        };
        if crc32fast::hash(header) & 0xffff != u32::from(u16::from_le_bytes([low, high])) {
            return Err(HeaderError::Bad("its checksum is wrong"));
        }
        end += 2;
    }
    Ok((end <= bytes.len()).then_some(end))
}
