//! A recipe in memory, and the parts that make a range of the plain bytes.

use std::ops::Range;

use crate::chunk::ChunkId;

/// Plain bytes of a blob, at most.
pub(crate) const MOST_PLAIN: u64 = 1 << 60;

/// A blob: what the recipe is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blob {
    /// Its digest as text, `sha256:…`; at most 256 bytes. Not read here.
    pub digest: String,
    /// Its length in bytes, as it is stored in a registry: compressed, if it is.
    pub size: u64,
}

/// What a recipe may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, at most: of the frame and the description, and some 24 for a part and 40 for a distinct chunk.
    pub most: u64,
}

impl Default for Limits {
    /// 256 MiB: a layer of half a million files.
    fn default() -> Limits {
        Limits { most: 256 << 20 }
    }
}

/// A part of the plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'r> {
    /// Bytes that the recipe has.
    Inline(&'r [u8]),
    /// So many zeros.
    Zeros(u64),
    /// A chunk, whole.
    Chunk {
        /// Its id.
        id: ChunkId,
        /// How many bytes it has, at least one.
        length: u32,
    },
}

impl Part<'_> {
    /// How many plain bytes it makes.
    pub fn length(&self) -> u64 {
        match self {
            Part::Inline(bytes) => bytes.len() as u64,
            Part::Zeros(length) => *length,
            Part::Chunk { length, .. } => u64::from(*length),
        }
    }
}

/// A part of which a range of the plain bytes has something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartIn<'r> {
    /// The whole part.
    pub part: Part<'r>,
    /// The bytes of the part that are in the range, counted from the part's beginning. Never empty.
    pub within: Range<u64>,
}

/// How a blob is put together: parts make the plain bytes, and a description of the compression makes the blob of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    pub(crate) blob: Blob,
    pub(crate) description: Vec<u8>,
    pub(crate) inline: Vec<u8>,
    /// Distinct chunks and their lengths, in the order of their first use.
    pub(crate) chunks: Vec<(ChunkId, u32)>,
    pub(crate) entries: Vec<Entry>,
}

/// A part, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where the part ends in the plain bytes. It begins where the one before ends.
    pub(crate) end: u64,
    pub(crate) source: Source,
}

/// What a part is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Inline bytes from here on.
    Inline(usize),
    Zeros,
    /// The chunk with this number.
    Chunk(u32),
}

impl Recipe {
    /// The blob that it is for.
    pub fn blob(&self) -> &Blob {
        &self.blob
    }

    /// How many plain bytes the parts make.
    pub fn plain_size(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    /// How the blob is made of the plain bytes. If it is empty, the blob is the plain bytes. Not read here.
    pub fn description(&self) -> &[u8] {
        &self.description
    }

    /// The parts, in order. None is empty.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Part<'_>> {
        (0..self.entries.len()).map(|number| self.part(number).0)
    }

    /// The parts that make a range of the plain bytes, in order, and what of each is in the range. What of the range is beyond the plain bytes is left out.
    pub fn parts_in(&self, range: Range<u64>) -> impl Iterator<Item = PartIn<'_>> {
        let first = self.entries.partition_point(|entry| entry.end <= range.start);
        let numbers = first..self.entries.len();
        numbers
            .map(move |number| {
                let (part, start) = self.part(number);
                let begin = range.start.saturating_sub(start);
                let end = range.end.saturating_sub(start).min(part.length());
                PartIn {
                    part,
                    within: begin..end,
                }
            })
            .take_while(|part| !part.within.is_empty())
    }

    /// The distinct chunks and their lengths, in the order of their first use.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = (ChunkId, u32)> {
        self.chunks.iter().copied()
    }

    /// How many bytes of frame it has.
    pub fn inline_size(&self) -> u64 {
        self.inline.len() as u64
    }

    /// A part, and where it begins. A part that is not there is empty.
    pub(crate) fn part(&self, number: usize) -> (Part<'_>, u64) {
        let start = match number.checked_sub(1) {
            Some(before) => self.entries.get(before).map_or(0, |entry| entry.end),
            None => 0,
        };
        let Some(entry) = self.entries.get(number) else {
            return (Part::Zeros(0), start);
        };
        let length = entry.end.saturating_sub(start);
        let part = match entry.source {
            Source::Inline(at) => {
                let end = at.saturating_add(length as usize);
                Part::Inline(self.inline.get(at..end).unwrap_or_default())
            }
            Source::Zeros => Part::Zeros(length),
            Source::Chunk(number) => match self.chunks.get(number as usize) {
                Some(&(id, length)) => Part::Chunk { id, length },
                None => Part::Zeros(length),
            },
        };
        (part, start)
    }
}
