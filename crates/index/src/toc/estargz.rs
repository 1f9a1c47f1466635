//! eStargz: a gzip layer in which every chunk of a file is a gzip member, with a table of contents and a footer at
//! the end (stargz-snapshotter, `docs/estargz.md`).
//!
//! The footer is an empty gzip member whose extra field holds the table's offset. The table is a gzip member with a
//! tar archive with one file, `stargz.index.json`. The digest in the manifest is that of the JSON.

use std::ops::Range;

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Entry, LayerIndex, Room};

use super::entries::IndexBuilder;
use super::error::TocError;
use super::json::read_table;
use super::{Blob, MAX_TOC, hold, verify};
use crate::gzip;
use crate::inflate::{Decoder, HISTORY, InflateError, Input, OUTPUT_SLACK, Output, Stop};
use crate::tar::{TarLimits, TarParser, TarSink};

/// Annotation of a layer's descriptor: digest of the table's JSON.
pub const DIGEST_ANNOTATION: &str = "containerd.io/snapshot/stargz/toc.digest";
/// Length of the footer in bytes.
pub const FOOTER: usize = 51;
/// Length of the footer that the first versions wrote, in bytes.
pub const LEGACY_FOOTER: usize = 47;
/// How much of the blob's end is fetched first, in bytes: the footer, and in most layers all of the table, which
/// takes about 30 bytes per file. 128 KiB take as long as one round trip (10 ms) at 100 Mbit/s.
pub const TAIL: u64 = 128 << 10;

/// The table's name in its tar archive.
const TABLE_NAME: &[u8] = b"stargz.index.json";
/// Room for plain bytes at a time.
const STEP: usize = 256 << 10;

/// Where the table (a gzip member) is, from the last bytes of the blob.
///
/// # Errors
/// There is no footer, or it points outside the blob.
pub fn table_range(blob_size: u64, tail: &[u8]) -> Result<Range<u64>, TocError> {
    let legacy_start = |length| tail.len().checked_sub(length).and_then(|start| tail.get(start..));
    let current = legacy_start(FOOTER)
        .and_then(footer_offset)
        .map(|offset| (offset, FOOTER));
    let legacy = || {
        legacy_start(LEGACY_FOOTER)
            .and_then(legacy_offset)
            .map(|offset| (offset, LEGACY_FOOTER))
    };
    let (offset, footer) = current
        .or_else(legacy)
        .ok_or(TocError::Footer("no gzip member with an offset"))?;
    let end = blob_size.checked_sub(footer as u64);
    match end {
        Some(end) if end > offset && end - offset <= MAX_TOC => Ok(offset..end),
        Some(end) if end > offset => Err(TocError::TooLarge { limit: MAX_TOC }),
        _ => Err(TocError::Footer(
            "the table of contents would be outside the blob",
        )),
    }
}

/// gzip header with FEXTRA, extra field of 26 bytes: "SG", length 22, offset as 16 hexadecimal digits, "STARGZ".
fn footer_offset(footer: &[u8]) -> Option<u64> {
    let extra = extra_field(footer, 26)?.strip_prefix(b"SG\x16\0")?;
    hex_offset(extra)
}

/// gzip header with FEXTRA, extra field of 22 bytes: offset as 16 hexadecimal digits, "STARGZ".
fn legacy_offset(footer: &[u8]) -> Option<u64> {
    hex_offset(extra_field(footer, 22)?)
}

fn extra_field(footer: &[u8], length: u8) -> Option<&[u8]> {
    const EXTRA_FLAG: u8 = 4;
    let (header, rest) = footer.split_at_checked(12)?;
    let is_member = header.starts_with(&[0x1f, 0x8b, 8, EXTRA_FLAG]) && header.ends_with(&[length, 0]);
    rest.get(..usize::from(length)).filter(|_| is_member)
}

fn hex_offset(field: &[u8]) -> Option<u64> {
    let digits = field
        .strip_suffix(b"STARGZ")
        .filter(|digits| digits.len() == 16)?;
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Makes an index of a table (the bytes of [`table_range`], which starts at `table_start`).
///
/// # Errors
/// The table is not the one with the digest `expected`, or cannot be used.
pub fn parse_table(
    blob: Blob,
    table_start: u64,
    table: &[u8],
    expected: Digest,
    room: &mut Room<'_>,
) -> Result<LayerIndex, TocError> {
    let json = extract_json(table, room)?;
    verify(expected, &json)?;
    let mut builder = IndexBuilder::new();
    read_table(&json, &mut builder)?;
    builder.finish(blob, Codec::Estargz, table_start)
}

/// Decodes the gzip member and takes the JSON out of the tar archive. Room is asked for as it grows: a small member may be a large table.
fn extract_json(member: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, TocError> {
    let header = gzip::header_length(member)
        .ok()
        .flatten()
        .ok_or(TocError::GzipHeader)?;
    let mut input = Input {
        bytes: member,
        position: header,
        last: true,
    };
    let mut decoder = Decoder::new();
    let mut sink = JsonSink::default();
    let mut tar = TarParser::new(TarLimits {
        data: MAX_TOC,
        entries: 1,
        ..TarLimits::default()
    });
    let mut buffer = vec![0; HISTORY + STEP + OUTPUT_SLACK];
    let mut position = 0;
    let mut plain_size = 0;
    loop {
        let start = position;
        let limit = start + STEP;
        let mut output = Output {
            bytes: &mut buffer,
            position,
            history: 0,
            limit,
            references: None,
        };
        let stop = decoder.run(&mut input, &mut output)?;
        position = output.position;
        let before = sink.json.len();
        tar.push(buffer.get(start..position).unwrap_or_default(), &mut sink)?;
        hold(room, (sink.json.len() - before) as u64)?;
        plain_size += (position - start) as u64;
        // A tar archive of one file adds little to it.
        if plain_size > MAX_TOC + TarLimits::SPECIAL {
            return Err(TocError::TooLarge { limit: MAX_TOC });
        }
        match stop {
            Stop::End => break,
            Stop::Input => return Err(InflateError::Truncated.into()),
            Stop::Block | Stop::Output => {}
        }
        if position > HISTORY {
            buffer.copy_within(position - HISTORY..position, 0);
            position = HISTORY;
        }
    }
    tar.finish(&mut sink)?;
    if sink.found {
        Ok(sink.json)
    } else {
        Err(TocError::NoTable)
    }
}

/// Keeps the contents of the archive's only file.
#[derive(Default)]
struct JsonSink {
    found: bool,
    json: Vec<u8>,
}

impl TarSink for JsonSink {
    fn frame(&mut self, _: &[u8]) {}

    fn content(&mut self, _: u64, bytes: &[u8]) -> std::io::Result<()> {
        if self.found {
            self.json.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry) {
        self.found = entry.path.as_bytes() == TABLE_NAME;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer(offset: &str) -> Vec<u8> {
        let mut bytes = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 26, 0, b'S', b'G', 22, 0];
        bytes.extend(offset.as_bytes());
        bytes.extend(b"STARGZ\x01\0\0\xff\xff\0\0\0\0\0\0\0\0");
        assert_eq!(bytes.len(), FOOTER);
        bytes
    }

    #[test]
    fn footers() {
        assert_eq!(table_range(1000, &footer("00000000000000ff")).unwrap(), 255..949);
        let mut legacy = footer("00000000000000ff");
        legacy.drain(12..16);
        legacy[10] = 22;
        let tail = [&[1, 2, 3, 4, 5, 6], &legacy[..]].concat();
        assert_eq!(table_range(1000, &tail).unwrap(), 255..953);
        assert_eq!(table_range(1000, &legacy).unwrap(), 255..953);
    }

    #[test]
    fn bad_footers_are_refused() {
        for offset in [
            "00000000000003b5",
            "ffffffffffffffff",
            "+0000000000000ff",
            "000000000000000g",
        ] {
            assert!(
                matches!(table_range(1000, &footer(offset)), Err(TocError::Footer(_))),
                "{offset}"
            );
        }
        let far = table_range(MAX_TOC * 2, &footer("00000000000000ff"));
        assert!(matches!(far, Err(TocError::TooLarge { .. })));
        assert!(matches!(table_range(1000, b"short"), Err(TocError::Footer(_))));
        assert!(matches!(
            table_range(10, &footer("0000000000000000")),
            Err(TocError::Footer(_))
        ));
    }
}
