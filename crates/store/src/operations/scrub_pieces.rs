//! The part of a scrub that reads packs and recipes. A blob that is not intact is sound if its notes of them say so.

use super::scrub_replicas::Finding;
use super::verdict::{Pass, Verdict};
use crate::error::Result;
use crate::name::PackKey;
use crate::recipes::{PackRecord, RecipeRecord};
use crate::records::{packs, recipes};
use crate::store::{Store, now};
use xebec_objects::Digest;

/// So many records are looked up at once.
const STEP: usize = 64;

/// The findings of that part.
#[derive(Default)]
pub(super) struct Pieces {
    pub(super) read: u64,
    pub(super) bytes: u64,
    /// Those with wrong bytes or none.
    pub(super) damaged: u64,
    /// Those that had wrong bytes or none, and have right ones again from another copy.
    pub(super) mended: u64,
    /// Those that could not be read, by the digest of their bytes, and why.
    pub(super) unreadable: Vec<(Digest, String)>,
}

impl Store {
    /// Reads all packs and recipes that were not read since that time.
    pub(super) async fn scrub_pieces(&self, unread_since: u64, pass: &mut Pass) -> Result<Pieces> {
        let mut pieces = Pieces::default();
        let mut after: Option<PackKey> = None;
        loop {
            let found = self
                .read_records("list packs", move |tx| packs::list(tx, STEP, after, unread_since))
                .await?;
            for pack in &found {
                self.scrub_pack(pack, pass, &mut pieces).await?;
            }
            after = found.last().map(|pack| pack.key);
            if found.len() < STEP {
                break;
            }
        }
        // After packs: a recipe is sound if these are.
        let mut after: Option<Digest> = None;
        loop {
            let from = after.take();
            let found = self
                .read_records("list recipes", move |tx| {
                    recipes::list(tx, STEP, from.as_ref(), unread_since)
                })
                .await?;
            for recipe in &found {
                self.scrub_recipe(recipe, pass, &mut pieces).await?;
            }
            if found.len() < STEP {
                return Ok(pieces);
            }
            after = found.into_iter().next_back().map(|recipe| recipe.blob);
        }
    }

    async fn scrub_pack(&self, pack: &PackRecord, pass: &mut Pass, pieces: &mut Pieces) -> Result<()> {
        pieces.read += 1;
        let wanted = (&pack.checksum, pack.size);
        match self.verdict(&pack.object, wanted, pass, &mut pieces.bytes).await {
            Verdict::Sound => {
                let key = pack.key;
                self.write_records("note that a pack is sound", move |tx| {
                    recipes::note_pack_sound(tx, key, now())
                })
                .await?;
            }
            Verdict::Damaged | Verdict::Missing => match self.judge_pack(pack.key).await? {
                Some(Finding::Damaged(_)) => pieces.damaged += 1,
                Some(Finding::Mended) => pieces.mended += u64::from(self.is_sound_pack(pack.key).await?),
                Some(Finding::Unknown(why)) => pieces.unreadable.push((pack.checksum.clone(), why)),
                // One that was moved or removed while it was read says nothing.
                Some(Finding::Sound) | None => {}
            },
            Verdict::Unreadable(why) => pieces.unreadable.push((pack.checksum.clone(), why)),
            Verdict::Unread => {}
        }
        Ok(())
    }

    async fn scrub_recipe(&self, recipe: &RecipeRecord, pass: &mut Pass, pieces: &mut Pieces) -> Result<()> {
        pieces.read += 1;
        let wanted = (&recipe.checksum, recipe.size);
        match self
            .verdict(&recipe.object, wanted, pass, &mut pieces.bytes)
            .await
        {
            Verdict::Sound => {
                let noted = recipe.clone();
                self.write_records("note that a recipe is sound", move |tx| {
                    recipes::note_sound(tx, &noted, now())
                })
                .await?;
            }
            Verdict::Damaged | Verdict::Missing => match self.judge_recipe(recipe).await? {
                Some(Finding::Damaged(_)) => pieces.damaged += 1,
                Some(Finding::Mended) => {
                    pieces.mended += u64::from(self.is_sound_recipe(&recipe.blob).await?);
                }
                Some(Finding::Unknown(why)) => pieces.unreadable.push((recipe.checksum.clone(), why)),
                Some(Finding::Sound) | None => {}
            },
            Verdict::Unreadable(why) => pieces.unreadable.push((recipe.checksum.clone(), why)),
            Verdict::Unread => {}
        }
        Ok(())
    }

    /// Notes that a pack has right bytes again; `false` if it is gone.
    async fn is_sound_pack(&self, key: PackKey) -> Result<bool> {
        self.write_records("note that a pack is sound", move |tx| {
            recipes::note_pack_sound(tx, key, now())?;
            Ok(!packs::find(tx, &[key])?.is_empty())
        })
        .await
    }

    /// The same of the recipe that a blob has now.
    async fn is_sound_recipe(&self, blob: &Digest) -> Result<bool> {
        let blob = blob.clone();
        self.write_records("note that a recipe is sound", move |tx| {
            let Some(recipe) = recipes::find(tx, &blob)? else {
                return Ok(false);
            };
            recipes::note_sound(tx, &recipe, now())?;
            Ok(true)
        })
        .await
    }
}
