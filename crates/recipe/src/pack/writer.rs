//! Makes a pack.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use super::layout::{COUNTS, DIGEST, END_MAGIC, HEAD, MAGIC, MOST_CHUNKS, VERSION};
use super::order::Key;
use super::{MOST_FRAME, MOST_PACK};
use crate::chunk::{ChunkId, Hint, MOST_CHUNK};
use crate::numbers::put;
use crate::section::stored;

/// How a pack is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The level of zstd, from 1 to 22. Others are taken as the nearest.
    pub level: i32,
    /// Plain bytes of a frame, about: a frame takes chunks until the next one would make it longer. Taken as the nearest from 4 KiB to 8 MiB.
    pub frame_size: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            level: 9,
            frame_size: 512 << 10,
        }
    }
}

/// Why a chunk cannot be added. The writer is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotAdd {
    /// The chunk is empty or longer than [`MOST_CHUNK`].
    #[error("a chunk of {0} bytes cannot be in a pack")]
    Length(usize),
    /// The pack has as much as a pack may have.
    #[error("the pack is full")]
    Full,
}

/// A pack that is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    /// The file.
    pub bytes: Vec<u8>,
    /// Its chunks, in its order.
    pub ids: Vec<ChunkId>,
}

/// Collects chunks, and makes a pack of them. It has all of them in memory until then.
///
/// A pack of some chunks of other packs is made in the same way. If the hints are no longer known, chunks that are added with default ones, in the order
/// of their old packs, stay in that order.
pub struct PackWriter {
    options: Options,
    chunks: Vec<Waiting>,
    /// How many bytes these have.
    plain_bytes: u64,
    known: HashSet<ChunkId>,
}

/// A chunk that was added.
struct Waiting {
    key: Key,
    id: ChunkId,
    bytes: Vec<u8>,
}

impl PackWriter {
    /// A writer of a pack without chunks.
    pub fn new(options: Options) -> PackWriter {
        PackWriter {
            options,
            chunks: Vec::new(),
            plain_bytes: 0,
            known: HashSet::new(),
        }
    }

    /// Adds a chunk. `id` must be [`ChunkId::of`] the bytes, which is not computed again. A chunk that the pack has already is not added twice.
    ///
    /// # Errors
    ///
    /// [`CannotAdd`].
    pub fn add(&mut self, id: ChunkId, bytes: &[u8], hint: &Hint) -> Result<(), CannotAdd> {
        if bytes.is_empty() || bytes.len() > MOST_CHUNK {
            return Err(CannotAdd::Length(bytes.len()));
        }
        if self.known.contains(&id) {
            return Ok(());
        }
        if self.plain_bytes() + bytes.len() as u64 > MOST_PACK || self.chunks.len() == MOST_CHUNKS {
            return Err(CannotAdd::Full);
        }
        self.plain_bytes += bytes.len() as u64;
        self.known.insert(id);
        self.chunks.push(Waiting {
            key: Key::of(hint),
            id,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }

    /// How many plain bytes were added. A pack should have some tens of MB.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Sorts and compresses what was added. This is where the time goes.
    ///
    /// # Errors
    ///
    /// What libzstd says; it has no reason but a lack of memory.
    pub fn finish(mut self) -> std::io::Result<Pack> {
        self.chunks.sort_by(|one, other| one.key.cmp(&other.key));
        let frame_size = self.options.frame_size.clamp(4 << 10, MOST_FRAME);
        let mut compressor = zstd::bulk::Compressor::new(self.options.level.clamp(1, 22))?;
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let mut index = Index::default();
        let mut frame = Vec::with_capacity(frame_size);
        let mut count = 0;
        let mut ids = Vec::with_capacity(self.chunks.len());
        for chunk in self.chunks {
            if !frame.is_empty() && frame.len() + chunk.bytes.len() > frame_size {
                index.add_frame(&compressor.compress(&frame)?, count, &mut bytes);
                frame.clear();
                count = 0;
            }
            frame.extend_from_slice(&chunk.bytes);
            index.add_chunk(&chunk);
            ids.push(chunk.id);
            count += 1;
        }
        if !frame.is_empty() {
            index.add_frame(&compressor.compress(&frame)?, count, &mut bytes);
        }
        index.append_to(&mut bytes);
        Ok(Pack { bytes, ids })
    }
}

/// The index of a pack, column by column.
#[derive(Default)]
struct Index {
    frames: u32,
    chunks: u32,
    counts: Vec<u8>,
    compressed: Vec<u8>,
    lengths: Vec<u8>,
    digests: Vec<u8>,
    ids: Vec<u8>,
}

impl Index {
    fn add_chunk(&mut self, chunk: &Waiting) {
        self.chunks += 1;
        put(chunk.bytes.len() as u64, &mut self.lengths);
        self.ids.extend_from_slice(chunk.id.as_bytes());
    }

    fn add_frame(&mut self, frame: &[u8], chunks: usize, bytes: &mut Vec<u8>) {
        self.frames += 1;
        put(chunks as u64, &mut self.counts);
        put(frame.len() as u64, &mut self.compressed);
        self.digests.extend_from_slice(&Sha256::digest(frame));
        bytes.extend_from_slice(frame);
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        let numbers = [self.counts, self.compressed, self.lengths].concat();
        let stored = stored(&numbers);
        let begin = bytes.len();
        for part in [&stored, &self.digests, &self.ids] {
            bytes.extend_from_slice(part);
        }
        for count in [
            self.frames,
            self.chunks,
            numbers.len() as u32,
            stored.len() as u32,
        ] {
            bytes.extend(count.to_le_bytes());
        }
        let digest = Sha256::digest(bytes.get(begin..).unwrap_or_default());
        bytes.extend_from_slice(&digest);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(END_MAGIC);
    }
}

const _: () = assert!(COUNTS + DIGEST + 4 + END_MAGIC.len() == super::layout::TRAILER && HEAD == 12);
