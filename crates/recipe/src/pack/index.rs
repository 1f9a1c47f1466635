//! Finds chunks in a pack, and decodes its frames.

use std::ops::Range;

use sha2::{Digest, Sha256};

use super::damaged::Damaged;
use super::layout::{
    COUNTS, DIGEST, END_MAGIC, HEAD, MOST_CHUNKS, MOST_FRAMES, MOST_NUMBER, TRAILER, VERSION,
};
use super::{MOST_FRAME, MOST_INDEX};
use crate::chunk::{ChunkId, MOST_CHUNK};
use crate::numbers::Reader;
use crate::section;

/// What [`PackIndex::from_end`] could read.
#[derive(Debug)]
pub enum FromEnd {
    /// So many bytes of the pack's end are needed, those that were given among them. Never more than [`MOST_INDEX`].
    NeedsMore(usize),
    /// The index.
    Index(PackIndex),
}

/// Where a chunk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The bytes of the pack that are its frame, compressed.
    pub frame: Range<u64>,
    /// The number of the frame, from 0 on, for [`PackIndex::decode`].
    pub frame_number: u32,
    /// The bytes of the chunk in the frame, decompressed.
    pub within: Range<usize>,
}

/// The index of a pack: it is in memory, and the pack is elsewhere.
#[derive(Debug)]
pub struct PackIndex {
    frames: Vec<Frame>,
    /// In the order of the pack.
    chunks: Vec<Chunk>,
    /// The numbers of the chunks, in the order of their ids.
    by_id: Vec<u32>,
}

#[derive(Debug)]
struct Frame {
    /// Where it is in the pack.
    at: Range<u64>,
    plain: usize,
    digest: [u8; DIGEST],
}

#[derive(Debug)]
struct Chunk {
    id: ChunkId,
    frame: u32,
    /// Where it begins in the frame.
    start: u32,
    length: u32,
}

/// The trailer of a pack, read.
struct Trailer {
    frames: usize,
    chunks: usize,
    numbers: usize,
    stored: usize,
    digest: [u8; DIGEST],
}

impl PackIndex {
    /// How many bytes of a pack's end say how long its index is.
    pub const fn trailer_size() -> usize {
        TRAILER
    }

    /// Reads the index from the last bytes of a pack of `size` bytes. It is best to give some hundred KB at once, since these mostly have it whole.
    /// Takes memory in proportion to the index.
    ///
    /// # Errors
    ///
    /// [`Damaged`] if this is no pack, or another one than was written.
    pub fn from_end(end: &[u8], size: u64) -> Result<FromEnd, Damaged> {
        if end.len() as u64 > size || size < (HEAD + TRAILER) as u64 {
            return Err(Damaged::Length);
        }
        let Some((rest, trailer)) = end.split_last_chunk::<TRAILER>() else {
            return Ok(FromEnd::NeedsMore(TRAILER));
        };
        let (trailer, counts) = (Trailer::read(trailer)?, trailer.get(..COUNTS).unwrap_or_default());
        let length = trailer
            .index_length()
            .filter(|length| (length + TRAILER + HEAD) as u64 <= size);
        let length = length.ok_or(Damaged::Length)?;
        let Some(begin) = rest.len().checked_sub(length) else {
            return Ok(FromEnd::NeedsMore(length + TRAILER));
        };
        let index = rest.get(begin..).unwrap_or_default();
        let digest = Sha256::new().chain_update(index).chain_update(counts).finalize();
        if digest[..] != trailer.digest {
            return Err(Damaged::IndexDigest);
        }
        let frames_end = size - (length + TRAILER) as u64;
        trailer.index(index, frames_end).map(FromEnd::Index)
    }

    /// How many frames there are.
    pub fn frames(&self) -> u32 {
        self.frames.len() as u32
    }

    /// The bytes of the pack that are a frame, compressed.
    pub fn frame(&self, number: u32) -> Option<Range<u64>> {
        self.frames.get(number as usize).map(|frame| frame.at.clone())
    }

    /// Where a chunk is, if the pack has it.
    pub fn find(&self, id: &ChunkId) -> Option<Place> {
        let chunk = |number: &u32| self.chunks.get(*number as usize);
        let at = self
            .by_id
            .binary_search_by(|number| chunk(number).map(|chunk| &chunk.id).cmp(&Some(id)));
        self.place(chunk(self.by_id.get(at.ok()?)?)?)
    }

    /// All chunks and where they are, in the order of the pack: those of a frame follow each other.
    pub fn chunks(&self) -> impl Iterator<Item = (ChunkId, Place)> {
        self.chunks
            .iter()
            .filter_map(|chunk| Some((chunk.id, self.place(chunk)?)))
    }

    /// The plain bytes of a frame, of its compressed ones. Takes at most [`MOST_FRAME`] of memory.
    ///
    /// # Errors
    ///
    /// [`Damaged`] if these are not the bytes that were written.
    pub fn decode(&self, number: u32, compressed: &[u8]) -> Result<Vec<u8>, Damaged> {
        let frame = self.frames.get(number as usize).ok_or(Damaged::NoFrame(number))?;
        if Sha256::digest(compressed)[..] != frame.digest {
            return Err(Damaged::FrameDigest(number));
        }
        match zstd::bulk::decompress(compressed, frame.plain) {
            Ok(plain) if plain.len() == frame.plain => Ok(plain),
            _ => Err(Damaged::Frame(number)),
        }
    }

    fn place(&self, chunk: &Chunk) -> Option<Place> {
        let start = chunk.start as usize;
        Some(Place {
            frame: self.frame(chunk.frame)?,
            frame_number: chunk.frame,
            within: start..start + chunk.length as usize,
        })
    }
}

impl Trailer {
    fn read(bytes: &[u8; TRAILER]) -> Result<Trailer, Damaged> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or(Damaged::Length)
        };
        if !bytes.ends_with(&END_MAGIC) {
            return Err(Damaged::Magic);
        }
        match number(COUNTS + DIGEST)? {
            VERSION => {}
            other => return Err(Damaged::Version(other)),
        }
        let digest = bytes
            .get(COUNTS..COUNTS + DIGEST)
            .and_then(|bytes| bytes.try_into().ok());
        let trailer = Trailer {
            frames: number(0)? as usize,
            chunks: number(4)? as usize,
            numbers: number(8)? as usize,
            stored: number(12)? as usize,
            digest: digest.ok_or(Damaged::Length)?,
        };
        let most_numbers = MOST_NUMBER * (trailer.chunks + 2 * trailer.frames);
        let can_be = trailer.chunks <= MOST_CHUNKS
            && trailer.frames <= MOST_FRAMES.min(trailer.chunks)
            && trailer.numbers <= most_numbers
            && trailer.stored <= trailer.numbers;
        can_be.then_some(trailer).ok_or(Damaged::Number)
    }

    /// Bytes of the index, without the trailer.
    fn index_length(&self) -> Option<usize> {
        let length = self.stored + DIGEST * (self.frames + self.chunks);
        (length + TRAILER <= MOST_INDEX).then_some(length)
    }

    /// The index that these bytes are, of a pack whose frames end at `frames_end`.
    fn index(&self, bytes: &[u8], frames_end: u64) -> Result<PackIndex, Damaged> {
        let (stored, digests) = bytes.split_at_checked(self.stored).ok_or(Damaged::Length)?;
        let (digests, _) = digests.as_chunks::<DIGEST>();
        let (digests, ids) = digests.split_at_checked(self.frames).ok_or(Damaged::Length)?;
        let numbers = section::plain(stored, self.numbers).ok_or(Damaged::Number)?;
        let mut reader = Reader(&numbers);
        let counts = column(&mut reader, self.frames, 1..=MOST_CHUNKS as u64)?;
        let compressed = column(&mut reader, self.frames, 1..=2 * MOST_FRAME as u64)?;
        let lengths = column(&mut reader, self.chunks, 1..=MOST_CHUNK as u64)?;
        if !reader.0.is_empty()
            || counts.iter().map(|&count| u64::from(count)).sum::<u64>() != self.chunks as u64
        {
            return Err(Damaged::Number);
        }
        let mut chunks = ids.iter().zip(lengths);
        let mut index = PackIndex {
            frames: Vec::new(),
            chunks: Vec::new(),
            by_id: Vec::new(),
        };
        let mut at = HEAD as u64;
        for ((&digest, compressed), (number, count)) in digests.iter().zip(compressed).zip((0..).zip(counts))
        {
            let mut plain = 0;
            for (&id, length) in chunks.by_ref().take(count as usize) {
                index.chunks.push(Chunk {
                    id: ChunkId(id),
                    frame: number,
                    start: plain,
                    length,
                });
                plain += length;
                if plain as usize > MOST_FRAME {
                    return Err(Damaged::Number);
                }
            }
            let end = at + u64::from(compressed);
            index.frames.push(Frame {
                at: at..end,
                plain: plain as usize,
                digest,
            });
            at = end;
        }
        if at != frames_end {
            return Err(Damaged::Length);
        }
        index.sort()?;
        Ok(index)
    }
}

impl PackIndex {
    /// Sorts the chunks by their ids. No two have the same.
    fn sort(&mut self) -> Result<(), Damaged> {
        let id = |number: &u32| self.chunks.get(*number as usize).map(|chunk| chunk.id);
        let mut by_id: Vec<u32> = (0..self.chunks.len() as u32).collect();
        by_id.sort_unstable_by_key(id);
        if by_id.is_sorted_by(|one, other| id(one) < id(other)) {
            self.by_id = by_id;
            return Ok(());
        }
        Err(Damaged::Number)
    }
}

/// So many numbers, each in a range.
fn column(
    reader: &mut Reader<'_>,
    count: usize,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Vec<u32>, Damaged> {
    let numbers = (0..count).map(|_| {
        let number = reader.number().filter(|number| range.contains(number))?;
        u32::try_from(number).ok()
    });
    numbers.collect::<Option<_>>().ok_or(Damaged::Number)
}
