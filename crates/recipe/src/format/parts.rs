//! The parts of a recipe in columns, and back.

use super::BLOCK;
use super::frame::Span;
use crate::chunk::{ChunkId, MOST_CHUNK};
use crate::numbers::{Reader, put};
use crate::recipe::parts::{Entry, MOST_PLAIN, Recipe, Source};

const INLINE: u8 = 0;
const ZEROS: u8 = 1;
/// A chunk that no part before has: the next one of the list.
const NEXT_CHUNK: u8 = 2;
/// A chunk that a part before has.
const KNOWN_CHUNK: u8 = 3;

/// How many columns there are.
pub(super) const COLUMNS: usize = 3;

/// The parts in columns: for each its kind; for those of the frame how long they are; for the others how long they are, or which chunk it is.
pub(super) fn columns(recipe: &Recipe) -> [Vec<u8>; COLUMNS] {
    let [mut kinds, mut spans, mut lengths] = [const { Vec::new() }; COLUMNS];
    let mut start = 0;
    let mut chunks = 0;
    for entry in &recipe.entries {
        let length = entry.end - start;
        match entry.source {
            Source::Inline(_) => {
                kinds.push(INLINE);
                put_span(start, length, &mut spans);
            }
            Source::Zeros => {
                kinds.push(ZEROS);
                put(length, &mut lengths);
            }
            Source::Chunk(number) if number == chunks => {
                kinds.push(NEXT_CHUNK);
                put(length, &mut lengths);
                chunks += 1;
            }
            Source::Chunk(number) => {
                kinds.push(KNOWN_CHUNK);
                put(u64::from(number), &mut lengths);
            }
        }
        start = entry.end;
    }
    [kinds, spans, lengths]
}

/// The length of a part of the frame: how many blocks of the plain bytes it touches, and how much it has not of the last one, which mostly is nothing.
fn put_span(start: u64, length: u64, spans: &mut Vec<u8>) {
    let end = start + length;
    let missing = end.wrapping_neg() % BLOCK as u64;
    let blocks = end.div_ceil(BLOCK as u64) - start / BLOCK as u64;
    put(blocks << 1 | u64::from(missing > 0), spans);
    if missing > 0 {
        put(missing, spans);
    }
}

fn span(start: u64, spans: &mut Reader<'_>) -> Option<u64> {
    let number = spans.number()?;
    let missing = match number & 1 {
        0 => 0,
        _ => spans
            .number()
            .filter(|missing| (1..BLOCK as u64).contains(missing))?,
    };
    let blocks = (number >> 1).checked_add(start / BLOCK as u64)?;
    blocks
        .checked_mul(BLOCK as u64)?
        .checked_sub(missing)?
        .checked_sub(start)
}

/// The parts that columns say, and the lengths of the chunks.
pub(super) struct Parts {
    pub(super) entries: Vec<Entry>,
    pub(super) chunks: Vec<(ChunkId, u32)>,
    /// Bytes of the frame.
    pub(super) inline: u64,
}

/// Reads columns. `most` bytes of the frame at most; the number of parts and of chunks was checked.
pub(super) fn read(columns: &[Vec<u8>; COLUMNS], ids: &[[u8; 32]], most: u64) -> Option<Parts> {
    let [kinds, spans, lengths] = columns;
    let (mut spans, mut lengths) = (Reader(spans), Reader(lengths));
    let mut parts = Parts {
        entries: Vec::with_capacity(kinds.len()),
        chunks: Vec::with_capacity(ids.len()),
        inline: 0,
    };
    let mut start = 0_u64;
    for &kind in kinds {
        let (length, source) = match kind {
            INLINE => {
                let length = span(start, &mut spans)?;
                let at = parts.inline;
                parts.inline = at.checked_add(length).filter(|&end| end <= most)?;
                (length, Source::Inline(usize::try_from(at).ok()?))
            }
            ZEROS => (lengths.number()?, Source::Zeros),
            NEXT_CHUNK => {
                let length = lengths.number().filter(|&length| length <= MOST_CHUNK as u64)?;
                let number = parts.chunks.len();
                parts
                    .chunks
                    .push((ChunkId(*ids.get(number)?), u32::try_from(length).ok()?));
                (length, Source::Chunk(u32::try_from(number).ok()?))
            }
            KNOWN_CHUNK => {
                let number = u32::try_from(lengths.number()?).ok()?;
                let (_, length) = parts.chunks.get(number as usize)?;
                (u64::from(*length), Source::Chunk(number))
            }
            _ => return None,
        };
        let end = start
            .checked_add(length)
            .filter(|&end| end > start && end <= MOST_PLAIN)?;
        parts.entries.push(Entry { end, source });
        start = end;
    }
    let is_all = spans.0.is_empty() && lengths.0.is_empty() && parts.chunks.len() == ids.len();
    is_all.then_some(parts)
}

/// The spans of the frame, in order.
pub(super) fn spans(entries: &[Entry]) -> impl Iterator<Item = Span> {
    let start_of = |number: usize| {
        number
            .checked_sub(1)
            .and_then(|before| entries.get(before))
            .map_or(0, |entry| entry.end)
    };
    let is_inline = |entry: &Entry| matches!(entry.source, Source::Inline(_));
    let own = entries
        .iter()
        .enumerate()
        .filter(move |(_, entry)| is_inline(entry));
    own.map(move |(number, entry)| {
        let rest = entries.get(number + 1..).unwrap_or_default();
        let others = rest.iter().take_while(|entry| !is_inline(entry));
        let start = start_of(number);
        let after = others.last().map_or(0, |last| last.end - entry.end);
        Span {
            start,
            length: (entry.end - start) as usize,
            after,
        }
    })
}
