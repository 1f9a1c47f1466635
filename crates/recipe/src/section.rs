//! Sections: bytes that are stored compressed by zstd where that makes them shorter.

use crate::numbers::{Reader, put};

/// High, since sections are small and kept for long.
const LEVEL: i32 = 17;

/// The stored form of plain bytes: a zstd frame, if that is shorter than they are, or themselves.
pub(crate) fn stored(plain: &[u8]) -> Vec<u8> {
    match zstd::bulk::compress(plain, LEVEL) {
        Ok(frame) if frame.len() < plain.len() => frame,
        _ => plain.to_vec(),
    }
}

/// The plain bytes of a stored form, if they are exactly so many. Takes as much memory as they.
pub(crate) fn plain(stored: &[u8], length: usize) -> Option<Vec<u8>> {
    if stored.len() >= length {
        return (stored.len() == length).then(|| stored.to_vec());
    }
    let plain = zstd::bulk::decompress(stored, length).ok()?;
    (plain.len() == length).then_some(plain)
}

/// Appends a section: its length, its stored length, its stored form.
pub(crate) fn put_section(plain: &[u8], bytes: &mut Vec<u8>) {
    let stored = stored(plain);
    put(plain.len() as u64, bytes);
    put(stored.len() as u64, bytes);
    bytes.extend_from_slice(&stored);
}

/// Why a section cannot be read.
pub(crate) enum Wrong {
    /// It has more bytes than may be taken.
    TooLarge,
    /// It is not as it is written.
    Invalid,
}

/// Reads a section, if its plain bytes are not more than `most`, from which they are subtracted.
pub(crate) fn section(reader: &mut Reader<'_>, most: &mut u64) -> Result<Vec<u8>, Wrong> {
    let length = reader.number().ok_or(Wrong::Invalid)?;
    let stored_length = reader.number().ok_or(Wrong::Invalid)?;
    let stored = reader.bytes(stored_length).ok_or(Wrong::Invalid)?;
    *most = most.checked_sub(length).ok_or(Wrong::TooLarge)?;
    let length = usize::try_from(length).map_err(|_| Wrong::TooLarge)?;
    plain(stored, length).ok_or(Wrong::Invalid)
}
