//! One span: source bytes to verified bytes of the data space. This is on the path of a page fault.
//!
//! Everything is checked in the order in which it is used: the window's digest before the window is decoded, the
//! output's size while it grows, and at the end the digest of the result. That digest alone decides whether the bytes
//! may be seen. Memory is bounded by what the span declares, and that by [`MAX_SPAN_PLAIN`] and [`MAX_SPAN_DATA`].

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Piece, Span};
use zstd::stream::raw::{Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

pub use xebec_format::layer::limits::{MAX_SPAN_DATA, MAX_SPAN_PLAIN, MAX_SPAN_SOURCE};

use crate::gzip::{self, HeaderError};
use crate::inflate::{Decoder, HISTORY, InflateError, Input, OUTPUT_SLACK, Output, Stop};

/// Length of the source range of a *part*: a stretch of a zstd frame or deflate block that is too large to be decoded
/// for one reader. A part cannot be decoded alone. No other span of a compressed layer has so short a source: a
/// block or frame with contents takes more than one byte.
pub const PART_SOURCE: u64 = 1;

/// Why a span's bytes cannot be made from the source bytes.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The span contradicts itself or its pieces, or is larger than a span may be.
    #[error("the span is not usable: {0}")]
    Span(&'static str),
    /// The span is a part (see [`PART_SOURCE`]).
    #[error(
        "the span is a part of a frame that is too large to be decoded for one reader; the layer is not lazy and \
         must be fetched whole"
    )]
    NotLazy,
    /// The source bytes given are not as long as the span's source range.
    #[error("the span takes {expected} bytes of the layer, but {given} were given")]
    SourceLength {
        /// Length of the span's source range.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// The span needs a window and none was given.
    #[error("the span needs its access-point window, but none was given")]
    WindowMissing,
    /// The compressed window is not the one that the span names.
    #[error("the access-point window has digest {found}, but the index says {expected}")]
    WindowDigest {
        /// The digest in the index.
        expected: Digest,
        /// The digest of the window that was given.
        found: Digest,
    },
    /// The window has the right digest but does not decode to at most 32 KiB.
    #[error("the access-point window cannot be decoded: {0}")]
    Window(io::Error),
    /// The source bytes are not deflate.
    #[error("the span's source bytes cannot be decoded: {0}")]
    Inflate(#[from] InflateError),
    /// A gzip member's header is wrong.
    #[error("the span's source bytes hold no proper gzip header where a member must start")]
    GzipHeader,
    /// The source bytes are not zstd, or decode to more than the span declares.
    #[error("the span's source bytes cannot be decoded: {0}")]
    Zstd(io::Error),
    /// The source bytes decode to less than the span declares.
    #[error("the span's source bytes decode to {found} bytes instead of {expected}")]
    Short {
        /// The length that the span declares, in bytes.
        expected: u64,
        /// The length of the decoded bytes.
        found: u64,
    },
    /// The result does not have the digest that the index says. Either the bytes or the index is wrong.
    #[error("the span's bytes have digest {found}, but the index says {expected}")]
    Digest {
        /// The digest in the index.
        expected: Digest,
        /// The digest of the decoded bytes.
        found: Digest,
    },
}

/// Decodes `span` from `source` (the layer blob's bytes of its source range) and verifies the result.
///
/// `pieces` are the whole layer's; `window` holds the compressed bytes that `span.window` names. Returns the bytes
/// of `span.data`.
///
/// # Errors
/// See [`DecodeError`]; wrong input never gives bytes.
pub fn decode_span(
    codec: Codec,
    span: &Span,
    pieces: &[Piece],
    source: &[u8],
    window: Option<&[u8]>,
) -> Result<Vec<u8>, DecodeError> {
    check_span(codec, span, source)?;
    let data = if codec.has_plain_stream() {
        let plain = decode_stream(codec, span, source, window)?;
        place(span, pieces, plain)?
    } else {
        decode_chunk(codec, span, source)?
    };
    let found = Digest::of(&data);
    if found != span.digest {
        return Err(DecodeError::Digest {
            expected: span.digest,
            found,
        });
    }
    Ok(data)
}

/// Whether `span` is a part (see [`PART_SOURCE`]).
pub(crate) fn is_part(codec: Codec, span: &Span) -> bool {
    matches!(codec, Codec::Gzip | Codec::Zstd)
        && span.source.end.checked_sub(span.source.start) == Some(PART_SOURCE)
}

fn check_span(codec: Codec, span: &Span, source: &[u8]) -> Result<(), DecodeError> {
    let length = |range: &Range<u64>| range.end.checked_sub(range.start);
    let (Some(expected), Some(plain), Some(data)) =
        (length(&span.source), length(&span.plain), length(&span.data))
    else {
        return Err(DecodeError::Span("a range ends before it starts"));
    };
    let decoded = if codec.has_plain_stream() {
        plain
    } else {
        span.plain.end
    };
    if decoded > MAX_SPAN_PLAIN || data > MAX_SPAN_DATA {
        return Err(DecodeError::Span("it is larger than a span may be"));
    }
    if !codec.has_plain_stream() && plain != data {
        return Err(DecodeError::Span("its chunk yields another length than it gives"));
    }
    if is_part(codec, span) {
        return Err(DecodeError::NotLazy);
    }
    if span.bit_offset > 7 {
        return Err(DecodeError::Span("it starts more than 7 bits into a byte"));
    }
    let given = source.len() as u64;
    if given != expected {
        return Err(DecodeError::SourceLength { expected, given });
    }
    Ok(())
}

/// The bytes `span.plain` of the plain stream, and where in the buffer they start.
fn decode_stream<'a>(
    codec: Codec,
    span: &Span,
    source: &'a [u8],
    window: Option<&[u8]>,
) -> Result<(Cow<'a, [u8]>, usize), DecodeError> {
    let length = (span.plain.end - span.plain.start) as usize;
    let (bytes, start) = match codec {
        Codec::Gzip | Codec::Estargz => {
            let window = open_window(span, window)?;
            let start = window.as_ref().map_or(0, Vec::len);
            (
                Cow::Owned(inflate(source, span.bit_offset, window, length)?),
                start,
            )
        }
        Codec::Zstd | Codec::ZstdChunked => (Cow::Owned(decompress_up_to(source, length)?), 0),
        Codec::Tar => (Cow::Borrowed(source), 0),
    };
    let found = bytes.len() - start;
    if found != length {
        return Err(DecodeError::Short {
            expected: length as u64,
            found: found as u64,
        });
    }
    Ok((bytes, start))
}

/// The bytes `span.plain` of a chunk that a table of contents lists.
fn decode_chunk(codec: Codec, span: &Span, source: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let end = span.plain.end as usize;
    let mut chunk = match codec {
        Codec::ZstdChunked | Codec::Zstd => decompress_up_to(source, end)?,
        _ => inflate(source, 0, None, end)?,
    };
    if chunk.len() < end {
        return Err(DecodeError::Short {
            expected: end as u64,
            found: chunk.len() as u64,
        });
    }
    chunk.truncate(end);
    chunk.drain(..span.plain.start as usize);
    Ok(chunk)
}

/// The first `length` bytes that `source` decodes to, or all if there are fewer.
fn decompress_up_to(source: &[u8], length: usize) -> Result<Vec<u8>, DecodeError> {
    // In one go if these bytes are all there is, which is the rule.
    if let Ok(bytes) = zstd::bulk::decompress(source, length) {
        return Ok(bytes);
    }
    let mut decoder = ZstdDecoder::new().map_err(DecodeError::Zstd)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    let mut from = InBuffer::around(source);
    while filled < length {
        let (read, before) = (from.pos(), filled);
        let mut to = OutBuffer::around_pos(&mut bytes[..], filled);
        decoder.run(&mut from, &mut to).map_err(DecodeError::Zstd)?;
        filled = to.pos();
        if from.pos() == read && filled == before {
            break;
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The plain window, if the span needs one.
fn open_window(span: &Span, window: Option<&[u8]>) -> Result<Option<Vec<u8>>, DecodeError> {
    let Some(named) = &span.window else {
        return Ok(None);
    };
    let bytes = window.ok_or(DecodeError::WindowMissing)?;
    let found = Digest::of(bytes);
    if found != named.digest {
        return Err(DecodeError::WindowDigest {
            expected: named.digest,
            found,
        });
    }
    zstd::bulk::decompress(bytes, HISTORY)
        .map(Some)
        .map_err(DecodeError::Window)
}

/// Inflates up to `length` bytes behind `window`; without a window a gzip member must start here.
///
/// Further members follow without a seam. Trailers are skipped: the span's digest says more than they do.
fn inflate(
    source: &[u8],
    bit_offset: u8,
    window: Option<Vec<u8>>,
    length: usize,
) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = Decoder::new();
    let mut input = Input {
        bytes: source,
        position: 0,
        last: true,
    };
    match &window {
        None => skip_header(&mut input)?,
        Some(_) => decoder.enter(&mut input, bit_offset)?,
    }
    let mut bytes = window.unwrap_or_default();
    let mut position = bytes.len();
    let (mut history, limit) = (0, position + length);
    bytes.resize(limit + OUTPUT_SLACK, 0);
    while position < limit {
        let mut output = Output {
            bytes: &mut bytes,
            position,
            history,
            limit,
            references: None,
        };
        let stop = decoder.run(&mut input, &mut output)?;
        position = output.position;
        match stop {
            // Behind the last member there may be padding only: missing bytes show in the length.
            Stop::End if input.position + gzip::TRAILER >= source.len() => break,
            Stop::End => {
                input.position += gzip::TRAILER;
                if source.get(input.position) == Some(&0) {
                    break;
                }
                skip_header(&mut input)?;
                decoder.reset();
                history = position;
            }
            Stop::Block | Stop::Output => {}
            Stop::Input => return Err(InflateError::Truncated.into()),
        }
    }
    bytes.truncate(position.min(limit));
    Ok(bytes)
}

fn skip_header(input: &mut Input<'_>) -> Result<(), DecodeError> {
    let header = input.bytes.get(input.position..).unwrap_or_default();
    match gzip::header_length(header) {
        Ok(Some(length)) => input.position += length,
        Ok(None) | Err(HeaderError::Magic | HeaderError::Bad(_)) => return Err(DecodeError::GzipHeader),
    }
    Ok(())
}

/// Puts the contents among the plain bytes at their places in the data space.
fn place(
    span: &Span,
    pieces: &[Piece],
    (plain, start): (Cow<'_, [u8]>, usize),
) -> Result<Vec<u8>, DecodeError> {
    const OUTSIDE: DecodeError = DecodeError::Span("its pieces lie outside its ranges");
    let first =
        pieces.partition_point(|piece| piece.plain_offset.saturating_add(piece.length) <= span.plain.start);
    let inside = pieces.get(first..).unwrap_or_default();
    let mut data = Vec::with_capacity((span.data.end - span.data.start) as usize);
    for piece in inside
        .iter()
        .take_while(|piece| piece.plain_offset < span.plain.end)
    {
        let skipped = span.plain.start.saturating_sub(piece.plain_offset);
        let end = piece
            .plain_offset
            .checked_add(piece.length)
            .ok_or(OUTSIDE)?
            .min(span.plain.end);
        let from = (piece.plain_offset + skipped - span.plain.start) as usize + start;
        let bytes = plain
            .get(from..(end - span.plain.start) as usize + start)
            .ok_or(OUTSIDE)?;
        let to = piece
            .data_offset
            .checked_add(skipped)
            .and_then(|to| to.checked_sub(span.data.start));
        let to = to.and_then(|to| usize::try_from(to).ok()).ok_or(OUTSIDE)?;
        if to < data.len() || to.saturating_add(bytes.len()) as u64 > span.data.end - span.data.start {
            return Err(OUTSIDE);
        }
        data.resize(to, 0);
        data.extend_from_slice(bytes);
    }
    if data.len() as u64 != span.data.end - span.data.start {
        return Err(OUTSIDE);
    }
    Ok(data)
}
