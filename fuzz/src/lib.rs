//! Helpers that several fuzz targets share: builders that get arbitrary bytes past checks that no mutation guesses (checksums, digests,
//! compression), and the promises that more than one target holds results against.

#![allow(clippy::panic, reason = "a fuzz target finds by panicking")]

pub mod arbitrary_layer;

use xebec_format::layer::{LayerIndex, SpanTable};

/// Length of the fixed header of an encoded layer index (`docs/formats/layer-index.md`).
const INDEX_HEADER: usize = 224;
/// Length of one entry of the section directory, and how many there are.
const SECTION_ENTRY: usize = 32;
const SECTIONS: usize = 2;

/// Decodes an index both ways. An accepted index must keep the promises of its types, must come back from encoding as it was, and must
/// have the span table that is read alone. All bytes that have a tree have a span table.
///
/// # Panics
/// When one of these is broken.
pub fn check_layer_index(bytes: &[u8]) {
    let table = SpanTable::decode(bytes);
    let Ok(index) = LayerIndex::decode(bytes) else {
        return;
    };
    assert_eq!(index.check(), Ok(()));
    let encoded = index.encode();
    match LayerIndex::decode(&encoded) {
        Ok(again) => assert_eq!(again, index),
        Err(error) => panic!("an accepted index is refused once encoded: {error}"),
    }
    match table {
        Ok(table) => assert_eq!(table, index.span_table()),
        Err(error) => panic!("the index is accepted, but not its span table: {error}"),
    }
}

/// An encoded index from a header and the plain bytes of its two sections: `input` is the header, the length of the
/// first section (32 bits), and both sections. `None` if it is too short.
pub fn index_of_plain_sections(input: &[u8]) -> Option<Vec<u8>> {
    let (header, rest) = input.split_at_checked(INDEX_HEADER)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let split = (u32::from_le_bytes(*length) as usize).min(rest.len());
    let (spans, tree) = rest.split_at(split);
    let mut index = header.to_vec();
    index[14..16].copy_from_slice(&(SECTIONS as u16).to_le_bytes());
    let mut bodies = Vec::new();
    for (kind, plain) in [(1u32, spans), (2, tree)] {
        let stored = zstd::bulk::compress(plain, 1).ok()?;
        let offset = INDEX_HEADER + SECTIONS * SECTION_ENTRY + bodies.len();
        index.extend(kind.to_le_bytes());
        index.extend(1u32.to_le_bytes());
        for number in [offset, stored.len(), plain.len()] {
            index.extend((number as u64).to_le_bytes());
        }
        bodies.extend(stored);
    }
    index.extend(bodies);
    Some(index)
}

/// The reverse of [`index_of_plain_sections`], for seeds.
pub fn plain_sections_of_index(index: &[u8]) -> Option<Vec<u8>> {
    let header = index.get(..INDEX_HEADER)?;
    let section = |number: usize| {
        let entry = index.get(INDEX_HEADER + number * SECTION_ENTRY..)?;
        let field = |at: usize| Some(u64::from_le_bytes(*entry.get(at..)?.first_chunk()?) as usize);
        let (offset, length, plain) = (field(8)?, field(16)?, field(24)?);
        zstd::bulk::decompress(index.get(offset..offset.checked_add(length)?)?, plain).ok()
    };
    let (spans, tree) = (section(0)?, section(1)?);
    let length = (spans.len() as u32).to_le_bytes();
    Some([header, &length[..], &spans, &tree].concat())
}

/// Length of the fixed header of an encoded recording (`docs/formats/runtime-image.md`), and where it has the plain and
/// the stored size of the numbers.
const RECORDING_HEADER: usize = 64;
const RECORDING_SIZES: std::ops::Range<usize> = 16..32;

/// An encoded recording from its header, the length of the digests (32 bits), the digests, and the plain bytes of the
/// numbers. `None` if `input` is too short.
pub fn recording_of_plain_numbers(input: &[u8]) -> Option<Vec<u8>> {
    let (header, rest) = input.split_at_checked(RECORDING_HEADER)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let split = (u32::from_le_bytes(*length) as usize).min(rest.len());
    let (digests, numbers) = rest.split_at(split);
    let stored = zstd::bulk::compress(numbers, 1).ok()?;
    let mut recording = header.to_vec();
    let sizes = [numbers.len(), stored.len()].map(|size| (size as u64).to_le_bytes());
    recording[RECORDING_SIZES].copy_from_slice(sizes.as_flattened());
    recording.extend(stored);
    recording.extend(digests);
    Some(recording)
}

/// The reverse of [`recording_of_plain_numbers`], for seeds.
pub fn plain_numbers_of_recording(recording: &[u8]) -> Option<Vec<u8>> {
    let (header, rest) = recording.split_at_checked(RECORDING_HEADER)?;
    let (plain, stored) = header.get(RECORDING_SIZES)?.split_first_chunk::<8>()?;
    let stored = u64::from_le_bytes(stored.try_into().ok()?) as usize;
    let (stored, digests) = rest.split_at_checked(stored)?;
    let numbers = zstd::bulk::decompress(stored, u64::from_le_bytes(*plain) as usize).ok()?;
    let length = (digests.len() as u32).to_le_bytes();
    Some([header, &length[..], digests, &numbers].concat())
}

/// Corrects the checksum of each 512-byte block that looks like a tar header.
pub fn seal_tar(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        let is_header = block[257..262] == *b"ustar" || block[148..156] == *b"checksum";
        if is_header {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}
