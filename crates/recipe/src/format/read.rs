//! Reads a recipe.

use sha2::{Digest, Sha256};

use super::{DIGEST, InvalidRecipe, MAGIC, VERSION, frame, parts};
use crate::numbers::Reader;
use crate::recipe::build::{MOST_DIGEST, memory};
use crate::recipe::{Blob, Limits, Recipe};
use crate::section::{Wrong, section};

/// What a recipe says of itself before its sections.
struct Head {
    blob: Blob,
    plain_size: u64,
    parts: u64,
    chunks: u64,
    inline: u64,
}

impl Recipe {
    /// The recipe that these bytes are. Takes at most three times as much memory as the limit.
    ///
    /// # Errors
    ///
    /// [`InvalidRecipe`].
    pub fn from_bytes(bytes: &[u8], limits: &Limits) -> Result<Recipe, InvalidRecipe> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(InvalidRecipe::Magic)?;
        let (version, _) = rest.split_first_chunk().ok_or(InvalidRecipe::Length)?;
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(InvalidRecipe::Version(other)),
        }
        let (own, digest) = bytes.split_last_chunk::<DIGEST>().ok_or(InvalidRecipe::Length)?;
        if Sha256::digest(own)[..] != *digest {
            return Err(InvalidRecipe::Digest);
        }
        let mut reader = Reader(
            own.get(MAGIC.len() + size_of_val(&VERSION)..)
                .ok_or(InvalidRecipe::Length)?,
        );
        let head = Head::read(&mut reader).ok_or(InvalidRecipe::Number)?;
        let recipe = read(head, &mut reader, limits.most);
        recipe.map_err(|wrong| match wrong {
            Wrong::TooLarge => InvalidRecipe::TooLarge(limits.most),
            Wrong::Invalid => InvalidRecipe::Number,
        })
    }
}

impl Head {
    fn read(reader: &mut Reader<'_>) -> Option<Head> {
        let length = reader.number().filter(|&length| length <= MOST_DIGEST as u64)?;
        let digest = std::str::from_utf8(reader.bytes(length)?).ok()?.to_owned();
        Some(Head {
            blob: Blob {
                digest,
                size: reader.number()?,
            },
            plain_size: reader.number()?,
            parts: reader.number()?,
            chunks: reader.number()?,
            inline: reader.number()?,
        })
    }
}

/// Reads what follows the head. `most` is what the recipe may take. Its columns may take an eighth more: a header of 512 bytes has 535 in them at
/// most, a part a dozen instead of 24, and any other block two more than it has. So what a builder takes with a limit is read with it.
fn read(head: Head, reader: &mut Reader<'_>, most: u64) -> Result<Recipe, Wrong> {
    let taken = memory(head.parts, head.chunks).saturating_add(head.inline);
    let mut left = most.checked_sub(taken).ok_or(Wrong::TooLarge)?;
    let description = section(reader, &mut left)?;
    let ids = reader
        .bytes(head.chunks.saturating_mul(DIGEST as u64))
        .ok_or(Wrong::Invalid)?;
    let (ids, _) = ids.as_chunks::<DIGEST>();
    if !are_distinct(ids) {
        return Err(Wrong::Invalid);
    }
    let mut left = most.saturating_add(most / 8);
    let columns = sections(reader, &mut left)?;
    if columns.first().map(Vec::len) != usize::try_from(head.parts).ok() {
        return Err(Wrong::Invalid);
    }
    let parts = parts::read(&columns, ids, head.inline).ok_or(Wrong::Invalid)?;
    drop(columns);
    let columns = sections(reader, &mut left)?;
    let mut decoder = frame::Decoder::new(&columns);
    let mut inline = Vec::with_capacity(usize::try_from(head.inline).map_err(|_| Wrong::TooLarge)?);
    for span in parts::spans(&parts.entries) {
        decoder.span(span, &mut inline).ok_or(Wrong::Invalid)?;
    }
    let recipe = Recipe {
        blob: head.blob,
        description,
        inline,
        chunks: parts.chunks,
        entries: parts.entries,
    };
    let is_all = decoder.is_at_end()
        && reader.0.is_empty()
        && parts.inline == head.inline
        && recipe.plain_size() == head.plain_size;
    is_all.then_some(recipe).ok_or(Wrong::Invalid)
}

fn sections<const COUNT: usize>(reader: &mut Reader<'_>, most: &mut u64) -> Result<[Vec<u8>; COUNT], Wrong> {
    let mut sections = [const { Vec::new() }; COUNT];
    for place in &mut sections {
        *place = section(reader, most)?;
    }
    Ok(sections)
}

/// Whether no id is there twice.
fn are_distinct(ids: &[[u8; DIGEST]]) -> bool {
    let mut sorted: Vec<&[u8; DIGEST]> = ids.iter().collect();
    sorted.sort_unstable();
    sorted.is_sorted_by(|one, other| one < other)
}
