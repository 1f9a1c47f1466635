//! Makes the bytes of a stretch again.

use super::corrections::damaged::Damaged;
use super::corrections::{Place, Scribe};
use super::guess::profile::Profile;
use super::range_coder::Reader;

/// The bytes before what the range coder wrote: the profile, and how many plain bytes before the stretch there were.
const HEAD: usize = 6;

/// How many plain bytes before a stretch its corrections ask for, or `None` if they are none.
pub fn history(corrections: &[u8]) -> Option<usize> {
    let told = corrections.get(2..HEAD)?;
    Some(u32::from_le_bytes(told.try_into().ok()?) as usize)
}

/// Makes the bytes of a stretch. `text` is as many plain bytes as [`history`] says, and from `start` on those of the stretch. There are `most` bytes
/// at most.
pub fn restore(text: &[u8], start: usize, corrections: &[u8], most: usize) -> Result<Vec<u8>, Damaged> {
    let (&[family, level, ..], Some(history)) = (corrections, history(corrections)) else {
        return Err(Damaged::Truncated);
    };
    if start != history || start > text.len() {
        return Err(Damaged::Value);
    }
    let profile = Profile {
        family,
        level: i8::from_le_bytes([level]),
    };
    let mut scribe = Scribe::begin(
        Reader::new(&corrections[HEAD..]),
        profile,
        &Place::default(),
        text,
        start,
    )?;
    let (mut at, mut output) = (start, Vec::new());
    while let Some(plain) = scribe.item(text, at, None, &mut output)? {
        at += plain;
        if output.len() > most {
            return Err(Damaged::TooMuch);
        }
        if scribe.coder.is_past_end() {
            return Err(Damaged::Truncated);
        }
    }
    if at == text.len() {
        Ok(output)
    } else {
        Err(Damaged::Value)
    }
}
