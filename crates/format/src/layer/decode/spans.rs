//! Reads the span section: pieces and spans, column by column.

use std::ops::Range;

use super::{DecodeError, hold};
use crate::columns::Column;
use crate::digest::Digest;
use crate::layer::encode::{expected_data, expected_plain};
use crate::layer::limits::{MAX_PIECES, MAX_SPANS, MAX_WINDOW};
use crate::layer::weight::{Room, of_table};
use crate::layer::{Piece, Span, Window};

pub(super) fn read(
    plain: &[u8],
    has_plain_stream: bool,
    room: &mut Room<'_>,
) -> Result<(Vec<Piece>, Vec<Span>), DecodeError> {
    let mut section = Column::new(plain, "the span section");
    let pieces = section.count(MAX_PIECES)?;
    let spans = section.count(MAX_SPANS)?;
    hold(room, of_table(pieces, spans))?;
    let pieces = read_pieces(&mut section, pieces)?;
    let spans = read_span_columns(&mut section, spans, has_plain_stream)?;
    section.finish()?;
    Ok((pieces, spans))
}

fn read_pieces(section: &mut Column<'_>, count: usize) -> Result<Vec<Piece>, DecodeError> {
    let mut plain = section.column("plain offsets of pieces")?;
    let mut data = section.column("data offsets of pieces")?;
    let mut length = section.column("lengths of pieces")?;
    let mut last = Piece {
        plain_offset: 0,
        data_offset: 0,
        length: 0,
    };
    plain.holds(count)?;
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        last = Piece {
            plain_offset: plain.difference(expected_plain(&last))?,
            data_offset: data.difference(expected_data(last.data_offset, last.length))?,
            length: length.number()?,
        };
        pieces.push(last);
    }
    plain.finish()?;
    data.finish()?;
    length.finish()?;
    Ok(pieces)
}

/// A range that starts as a column says and has the length that another says.
fn range(
    starts: &mut Column<'_>,
    lengths: &mut Column<'_>,
    expected: u64,
) -> Result<Range<u64>, DecodeError> {
    let start = starts.difference(expected)?;
    let length = lengths.number()?;
    let end = start
        .checked_add(length)
        .ok_or(DecodeError::Number("a range of a span"))?;
    Ok(start..end)
}

fn digest(column: &mut Column<'_>) -> Result<Digest, DecodeError> {
    let bytes = column.bytes(32)?;
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| DecodeError::Truncated("a digest"))?;
    Ok(Digest::from_bytes(bytes))
}

/// One function, since a span is a line through all columns, which are read side by side.
fn read_span_columns(
    section: &mut Column<'_>,
    count: usize,
    has_plain_stream: bool,
) -> Result<Vec<Span>, DecodeError> {
    let mut source = section.column("source offsets of spans")?;
    let mut source_length = section.column("source lengths of spans")?;
    let mut bits = section.column("bit offsets of spans")?;
    let mut plain = section.column("plain offsets of spans")?;
    let mut plain_length = section.column("plain lengths of spans")?;
    let mut data = section.column("data offsets of spans")?;
    let mut data_length = section.column("data lengths of spans")?;
    let mut windows = section.column("offsets of windows")?;
    let mut window_length = section.column("lengths of windows")?;
    let mut window_digest = section.column("digests of windows")?;
    let mut digests = section.column("digests of spans")?;
    bits.holds(count)?;
    let mut spans: Vec<Span> = Vec::with_capacity(count);
    let (mut last_source, mut last_plain, mut last_data, mut last_window) = (0, 0, 0, 0u64);
    for _ in 0..count {
        let source_range = range(&mut source, &mut source_length, last_source)?;
        let bit_offset = bits.byte()?;
        let stream_range = match has_plain_stream {
            true => Some(range(&mut plain, &mut plain_length, last_plain)?),
            false => None,
        };
        let data_range = range(&mut data, &mut data_length, last_data)?;
        let plain_range = match stream_range {
            Some(range) => range,
            None => {
                let start = plain.number()?;
                start..start.saturating_add(data_range.end - data_range.start)
            }
        };
        let length = window_length.count(MAX_WINDOW)? as u32;
        let window = match length {
            0 => None,
            _ => Some(Window {
                offset: windows.difference(last_window)?,
                length,
                digest: digest(&mut window_digest)?,
            }),
        };
        if let Some(window) = &window {
            last_window = window.offset.wrapping_add(u64::from(length));
        }
        (last_source, last_plain, last_data) = (source_range.end, plain_range.end, data_range.end);
        spans.push(Span {
            source: source_range,
            bit_offset,
            plain: plain_range,
            data: data_range,
            window,
            digest: digest(&mut digests)?,
        });
    }
    for column in [
        source,
        source_length,
        bits,
        plain,
        plain_length,
        data,
        data_length,
        windows,
        window_length,
        window_digest,
        digests,
    ] {
        column.finish()?;
    }
    Ok(spans)
}
