//! The blob that a table belongs to, and checks of every table.

use xebec_format::digest::Digest;
use xebec_format::layer::Room;

use super::error::TocError;

/// Largest table of contents, compressed or not, in bytes: 150 MiB, as containers/storage has it. It is held in
/// memory; a million files take about 300 bytes each.
pub const MAX_TOC: u64 = 150 << 20;

/// Bytes of memory for each byte of a table, besides the table: an entry takes 35 bytes there at the least, and some 200 as an entry
/// of an index. [`LayerIndex::weight`] is the memory that stays in use when the index is made.
const MEMORY: u64 = 8;

/// The layer blob that a table of contents belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Digest of the blob as the registry stores it.
    pub digest: Digest,
    /// Size of the blob in bytes.
    pub size: u64,
}

pub(super) fn parse_digest(annotation: &'static str, text: &str) -> Result<Digest, TocError> {
    text.parse().map_err(|_| TocError::Annotation {
        annotation,
        value: text.chars().take(200).collect(),
    })
}

/// Refuses a table of so many bytes if `room` has no place for it and for the index that is made of it.
pub(super) fn hold(room: &mut Room<'_>, table: u64) -> Result<(), TocError> {
    match room(table.saturating_mul(MEMORY + 1)) {
        true => Ok(()),
        false => Err(TocError::NoRoom),
    }
}

/// Checks that bytes are what the manifest promised.
pub(super) fn verify(expected: Digest, bytes: &[u8]) -> Result<(), TocError> {
    let found = Digest::of(bytes);
    if found == expected {
        Ok(())
    } else {
        Err(TocError::Digest { expected, found })
    }
}
