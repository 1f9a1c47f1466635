//! Recipes: recorded, looked up, and put in the place of a blob's object.
//!
//! See docs/formats/store.md for the protocol, and `crates/model/tests/protocol` for its proof.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::scrub_replicas::Finding;
use crate::database::{DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::name::PackKey;
use crate::recipes::{Draft, LARGEST_PIECE, NewPack, NewRecipe, PackReplacement, RecipeRecord, Recording};
use crate::records::{drafts, packs, recipes, replicas};
use crate::replicas::Held;
use crate::store::{Store, milliseconds, now};
use xebec_objects::Digest;
use xebec_objects::{BlobReader, new_key};

/// So many chunks are recorded in one transaction. Those of a larger pack are recorded in several; without the rest, less is shared.
const CHUNKS: usize = 4096;
/// No pack that is replaced has more recipes that need it.
const MOST_USERS: usize = 100_000;

impl Store {
    /// Writes an object for a pack or a recipe, which is durable when this has returned. Its record comes first, so that a collection finds
    /// it when nobody records it as either: after `upload_timeout`. `pieces` are in memory; they are 64 MiB at most.
    ///
    /// # Errors
    /// If they are more; if the disk has no room but its reserve; if the database or the object store fails.
    pub async fn put_draft(&self, pieces: Vec<Bytes>) -> Result<Draft> {
        let size = pieces.iter().map(|piece| piece.len() as u64).sum();
        if size > LARGEST_PIECE {
            let advice = format!("a pack or recipe has {size} bytes, and {LARGEST_PIECE} are taken at most");
            return Err(StoreError::Unsupported(advice));
        }
        self.check_room().await?;
        let object = new_key().map_err(|source| StoreError::System {
            doing: "begin a pack",
            source,
        })?;
        let draft = Draft { object, size };
        let begun = draft.clone();
        self.write_records("begin a pack", move |tx| drafts::begin(tx, &begun, now()))
            .await?;
        match self.inner.objects.put(&draft.object, pieces).await {
            Ok(()) => Ok(draft),
            Err(source) => {
                if let Err(error) = self.drop_draft(&draft).await {
                    tracing::warn!("{error}; a collection gives up what was to be a pack or recipe");
                }
                Err(StoreError::Object {
                    doing: "write a pack",
                    key: draft.object,
                    source,
                })
            }
        }
    }

    /// Makes garbage of a draft that is not needed; `false` if it is none any more.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn drop_draft(&self, draft: &Draft) -> Result<bool> {
        let (dropped, since) = (draft.clone(), now());
        let is_dropped = self
            .write_records("give up a pack", move |tx| drafts::give_up(tx, &dropped, since))
            .await?;
        if is_dropped {
            self.sweep_main_soon(&draft.object, draft.size, since);
        }
        Ok(is_dropped)
    }

    /// Records a recipe, which its maker has proven: it has restored the blob by it, from the objects as they are stored. One transaction
    /// sees that all that it needs is still here. The blob stays intact until [`Store::drop_intact`].
    ///
    /// # Errors
    /// If the database fails.
    pub async fn record_recipe(&self, new: &NewRecipe) -> Result<Recording> {
        let recorded = new.clone();
        let recording = self
            .write_records("record a recipe", move |tx| record(tx, &recorded))
            .await?;
        if let Recording::Recorded(keys) = &recording {
            self.add_other_chunks(keys, &new.packs).await?;
        }
        Ok(recording)
    }

    /// The chunks for which the transaction that recorded their packs had no room.
    async fn add_other_chunks(&self, keys: &[PackKey], new: &[NewPack]) -> Result<()> {
        for (key, pack) in keys.iter().zip(new) {
            for some in other_chunks(new, pack).chunks(CHUNKS) {
                let (key, some) = (*key, some.to_vec());
                self.write_records("record chunks", move |tx| packs::add_chunks(tx, key, &some))
                    .await?;
            }
        }
        Ok(())
    }

    /// If a blob has a sound recipe, its own object is garbage from now on; `false` if it has none, or no object of its own. Where
    /// clients are given addresses, it is deleted when none lasts any more.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn drop_intact(&self, digest: &Digest) -> Result<bool> {
        let lingers = self.lingering();
        let (dropped, since) = (digest.clone(), now().saturating_add(lingers));
        let garbage = self
            .write_records("keep a blob by its recipe alone", move |tx| {
                recipes::drop_intact(tx, &dropped, since)
            })
            .await?;
        let is_dropped = garbage.is_some();
        if let Some((object, size)) = garbage.filter(|_| lingers == 0) {
            self.sweep_main_soon(&object, size, since);
        }
        Ok(is_dropped)
    }

    /// For so many milliseconds clients may be reading an object of the main place that is garbage.
    pub(super) fn lingering(&self) -> u64 {
        milliseconds(self.inner.config.addresses_last)
    }

    /// The recipe of a blob, and the packs that it needs; `None` if it has none.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn recipe(&self, digest: &Digest) -> Result<Option<RecipeRecord>> {
        let digest = digest.clone();
        self.read_records("find a recipe", move |tx| recipes::find(tx, &digest))
            .await
    }

    /// Reads a range of a draft, a pack or a recipe, by the name of its object, from the best place that has it.
    ///
    /// # Errors
    /// `NotFound` if it is not there: look the recipe up again, since a pack may have been replaced. `UnexpectedEof` if it is shorter, also
    /// while it is read.
    pub async fn read_object(&self, object: &str, range: Range<u64>) -> io::Result<BlobReader> {
        self.read_named(object, range).await
    }

    /// Notes that a recipe's object has wrong bytes, or is gone, or that other bytes than the blob's come out of it. If its blob is intact, it waits to be taken apart anew. If not, it is
    /// absent until somebody pushes it again. `false` if the blob has another recipe by now, or none, or if right bytes are there again from
    /// another copy.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn note_recipe_damaged(&self, recipe: &RecipeRecord) -> Result<bool> {
        match self.recover(&Held::of_recipe(recipe)).await {
            Finding::Damaged(seen) => self.note_recipe(recipe, Some(seen)).await,
            // Other bytes than the blob's come out of it.
            Finding::Sound => self.note_recipe(recipe, None).await,
            Finding::Mended | Finding::Unknown(_) => Ok(false),
        }
    }

    /// Looks for the cause of what a recipe's object is said to be; none if it is another one by now. If it is damaged, that is noted.
    pub(super) async fn judge_recipe(&self, recipe: &RecipeRecord) -> Result<Option<Finding>> {
        let seen = match self.recover(&Held::of_recipe(recipe)).await {
            Finding::Damaged(seen) => seen,
            finding => return Ok(Some(finding)),
        };
        let is_current = self.note_recipe(recipe, Some(seen)).await?;
        Ok(is_current.then_some(Finding::Damaged(Vec::new())))
    }

    /// Notes that a recipe is damaged, if no other copies than these have come since; `false` if it is another one by now.
    async fn note_recipe(&self, recipe: &RecipeRecord, seen: Option<Vec<String>>) -> Result<bool> {
        let noted = recipe.clone();
        let is_current = self
            .write_records("note that a recipe is damaged", move |tx| match &seen {
                Some(seen) if replicas::has_new(tx, &noted.object, seen)? => Ok(false),
                _ => recipes::note_damage(tx, &noted, now()),
            })
            .await?;
        if is_current {
            tracing::error!(
                "{}: the object {} of its recipe is damaged or gone; unless it is intact, it counts as absent until it is pushed again",
                recipe.blob,
                recipe.object
            );
        }
        Ok(is_current)
    }

    /// The same of a pack, and all blobs whose recipes need it. Nobody uses its chunks from now on. `false` if it is gone, or if right
    /// bytes are there again from another copy.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn note_pack_damaged(&self, key: PackKey) -> Result<bool> {
        Ok(matches!(self.judge_pack(key).await?, Some(Finding::Damaged(_))))
    }

    /// The same, of a pack as it is now: it may have another object by now than the one that was read. None if it is gone.
    pub(super) async fn judge_pack(&self, key: PackKey) -> Result<Option<Finding>> {
        let Some(pack) = self.find_packs(&[key]).await?.into_iter().next() else {
            return Ok(None);
        };
        let seen = match self.recover(&Held::of_pack(&pack)).await {
            Finding::Damaged(seen) => seen,
            finding => return Ok(Some(finding)),
        };
        let is_here = self
            .write_records("note that a pack is damaged", move |tx| match replicas::has_new(
                tx,
                &pack.object,
                &seen,
            )? {
                true => Ok(false),
                false => recipes::note_pack_damage(tx, key, &pack.object, now()),
            })
            .await?;
        if is_here {
            tracing::error!(
                "pack {key} is damaged or gone; blobs that need it and are not intact count as absent until they are pushed again"
            );
            self.drop_chunks(key).await?;
        }
        Ok(is_here.then_some(Finding::Damaged(Vec::new())))
    }

    /// Puts packs in the place of others, if the recipes that need one of these are still the same; `false` if they are not, or if a pack
    /// or a draft is gone or damaged. Nothing is changed then. A collection deletes the old packs.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn replace_packs(&self, replacement: &PackReplacement) -> Result<bool> {
        let replaced = replacement.clone();
        let keys = self
            .write_records("replace packs", move |tx| replace(tx, &replaced))
            .await?;
        if let Some(keys) = &keys {
            self.add_other_chunks(keys, &replacement.new).await?;
        }
        Ok(keys.is_some())
    }
}

/// The chunks of a pack that one transaction, which records all these packs, has room for, and the others.
fn other_chunks<'a>(all: &[NewPack], pack: &'a NewPack) -> &'a [[u8; 32]] {
    pack.chunks.get(first_chunks(all, pack).len()..).unwrap_or(&[])
}

fn first_chunks<'a>(all: &[NewPack], pack: &'a NewPack) -> &'a [[u8; 32]] {
    let most = CHUNKS / all.len().max(1);
    pack.chunks.get(..most).unwrap_or(&pack.chunks)
}

fn record_packs(tx: &mut dyn Transaction, new: &[NewPack]) -> Result<Vec<PackKey>, DatabaseError> {
    let recorded = new.iter().map(|pack| {
        let key = packs::record(tx, pack, now())?;
        packs::add_chunks(tx, key, first_chunks(new, pack))?;
        Ok(key)
    });
    recorded.collect()
}

fn record(tx: &mut dyn Transaction, new: &NewRecipe) -> Result<Recording, DatabaseError> {
    if !recipes::has_blob(tx, &new.blob)? {
        return Ok(Recording::BlobGone);
    }
    if !packs::are_sound(tx, &new.uses)? {
        return Ok(Recording::PacksGone);
    }
    let written = new.packs.iter().map(|pack| &pack.draft).chain([&new.recipe]);
    if !drafts::are_here(tx, written)? {
        return Ok(Recording::DraftsGone);
    }
    let keys = record_packs(tx, &new.packs)?;
    let needed: BTreeSet<PackKey> = keys.iter().chain(&new.uses).copied().collect();
    recipes::record(tx, new, &needed, now())?;
    Ok(Recording::Recorded(keys))
}

fn replace(
    tx: &mut dyn Transaction,
    replacement: &PackReplacement,
) -> Result<Option<Vec<PackKey>>, DatabaseError> {
    let PackReplacement { old, new, users } = replacement;
    let is_as_seen = packs::are_sound(tx, old)?
        && drafts::are_here(tx, new.iter().map(|pack| &pack.draft))?
        && recipes::of_packs(tx, old, MOST_USERS)? == *users;
    if !is_as_seen || users.is_empty() {
        return Ok(None);
    }
    // First, so that their chunks are looked for in the new ones.
    old.iter().try_for_each(|key| packs::condemn(tx, *key))?;
    let keys = record_packs(tx, new)?;
    recipes::move_to(tx, old, &keys)?;
    Ok(Some(keys))
}
