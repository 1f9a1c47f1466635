//! Makes a recipe of pieces, in order.

use std::collections::HashMap;
use std::collections::hash_map::Entry as InMap;

use super::parts::{Blob, Entry, Limits, MOST_PLAIN, Recipe, Source};
use crate::chunk::{ChunkId, MOST_CHUNK};
use crate::split::Piece;

/// Bytes of a digest as text, at most.
pub(crate) const MOST_DIGEST: usize = 256;

/// Why a recipe cannot be made. What was added before remains, and nothing else should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotBuild {
    /// It would take more than the limit.
    #[error("the recipe is larger than {0} bytes")]
    TooLarge(u64),
    /// A chunk is empty or too long, has another length than the same chunk had before, or the plain bytes or the digest are too long.
    #[error("the recipe has a length that cannot be")]
    Length,
}

/// Takes pieces in order. It takes as much memory as [`Limits`] say, and a map of the chunks: some 60 bytes for each distinct one.
pub struct RecipeBuilder {
    limits: Limits,
    recipe: Recipe,
    numbers: HashMap<ChunkId, u32>,
}

impl RecipeBuilder {
    /// A builder without any piece.
    pub fn new(limits: Limits) -> RecipeBuilder {
        let recipe = Recipe {
            blob: Blob::default(),
            description: Vec::new(),
            inline: Vec::new(),
            chunks: Vec::new(),
            entries: Vec::new(),
        };
        RecipeBuilder {
            limits,
            recipe,
            numbers: HashMap::new(),
        }
    }

    /// Adds a piece. Returns the id of a chunk, which is computed here; `None` for another piece.
    ///
    /// # Errors
    ///
    /// [`CannotBuild`].
    pub fn add(&mut self, piece: Piece<'_>) -> Result<Option<ChunkId>, CannotBuild> {
        match piece {
            Piece::Inline(bytes) => self.add_inline(bytes).map(|()| None),
            Piece::Zeros(length) => self.add_zeros(length).map(|()| None),
            Piece::Chunk { bytes, .. } => {
                let id = ChunkId::of(bytes);
                let length = u32::try_from(bytes.len()).map_err(|_| CannotBuild::Length)?;
                self.add_chunk(id, length).map(|()| Some(id))
            }
        }
    }

    /// Adds bytes of the frame. Those that follow others are one part with them.
    fn add_inline(&mut self, bytes: &[u8]) -> Result<(), CannotBuild> {
        self.check(bytes.len() as u64)?;
        let at = self.recipe.inline.len();
        self.recipe.inline.extend_from_slice(bytes);
        let goes_on = |before| matches!(before, Source::Inline(_));
        self.add_entry(bytes.len() as u64, Source::Inline(at), goes_on)
    }

    /// Adds zeros. Those that follow others are one part with them.
    fn add_zeros(&mut self, length: u64) -> Result<(), CannotBuild> {
        self.check(0)?;
        self.add_entry(length, Source::Zeros, |before| before == Source::Zeros)
    }

    /// Adds a chunk of which the caller knows the id.
    ///
    /// # Errors
    ///
    /// [`CannotBuild`].
    pub fn add_chunk(&mut self, id: ChunkId, length: u32) -> Result<(), CannotBuild> {
        self.check(0)?;
        if length == 0 || length as usize > MOST_CHUNK {
            return Err(CannotBuild::Length);
        }
        let number = match self.numbers.entry(id) {
            InMap::Occupied(known) => *known.get(),
            InMap::Vacant(place) => {
                let number = u32::try_from(self.recipe.chunks.len()).map_err(|_| CannotBuild::Length)?;
                self.recipe.chunks.push((id, length));
                *place.insert(number)
            }
        };
        if self.recipe.chunks.get(number as usize) != Some(&(id, length)) {
            return Err(CannotBuild::Length);
        }
        self.add_entry(u64::from(length), Source::Chunk(number), |_| false)
    }

    /// The recipe, with what is known at the end: the blob, and how it is made of the plain bytes (empty: it is those).
    ///
    /// # Errors
    ///
    /// [`CannotBuild`].
    pub fn finish(mut self, blob: Blob, description: Vec<u8>) -> Result<Recipe, CannotBuild> {
        self.check(description.len() as u64)?;
        if blob.digest.len() > MOST_DIGEST {
            return Err(CannotBuild::Length);
        }
        self.recipe.blob = blob;
        self.recipe.description = description;
        Ok(self.recipe)
    }

    /// Whether there is room for a part, a chunk, and so many bytes.
    fn check(&self, bytes: u64) -> Result<(), CannotBuild> {
        let parts = self.recipe.entries.len() + 1;
        let chunks = self.recipe.chunks.len() + 1;
        let taken = bytes.saturating_add(self.recipe.inline.len() as u64);
        match taken.saturating_add(memory(parts as u64, chunks as u64)) {
            taken if taken > self.limits.most => Err(CannotBuild::TooLarge(self.limits.most)),
            _ => Ok(()),
        }
    }

    fn add_entry(
        &mut self,
        length: u64,
        source: Source,
        goes_on: impl Fn(Source) -> bool,
    ) -> Result<(), CannotBuild> {
        let end = self.recipe.plain_size().saturating_add(length);
        if end > MOST_PLAIN {
            return Err(CannotBuild::Length);
        }
        match self.recipe.entries.last_mut() {
            _ if length == 0 => {}
            Some(last) if goes_on(last.source) => last.end = end,
            _ => self.recipe.entries.push(Entry { end, source }),
        }
        Ok(())
    }
}

/// Bytes that so many parts and distinct chunks take.
pub(crate) fn memory(parts: u64, chunks: u64) -> u64 {
    parts.saturating_mul(24).saturating_add(chunks.saturating_mul(40))
}
