//! Scrub: all blobs and manifests are read again, and compared with their digests. Records that no collection would look at are found, too.

use std::time::Duration;

use super::scrub_replicas::Finding;
use super::verdict::{Pass, Verdict};
use crate::error::Result;
use crate::model::Blob;
use crate::records::{blobs, manifests, recipes, replicas};
use crate::replicas::Held;
use crate::store::{Store, milliseconds, now};
use xebec_objects::Digest;

/// So many records are looked up at once.
const STEP: usize = 64;
/// Manifests are up to some MiB each.
const MANIFESTS: usize = 4;

/// The blobs that a scrub reads, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrubOptions {
    /// So many bytes of objects a second at most; as fast as it goes, if none. A blob is restored as fast as it goes; then the scrub waits for as
    /// long as that rate gives the blob's bytes.
    pub bytes_per_second: Option<u64>,
    /// Leaves out blobs that were read within this time and were sound, so that a scrub that was ended goes on where it was.
    pub not_within: Duration,
}

/// The findings of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blobs that were read, or should have been: those that are not intact by their recipes and packs.
    pub blobs: u64,
    /// Packs and recipes that were read, or should have been.
    pub pieces: u64,
    /// Those of them with wrong bytes or without an object. The blobs that are absent by that are among the damaged ones; others are taken
    /// apart anew.
    pub damaged_pieces: u64,
    /// Replicas on other places that were read, or should have been.
    pub replicas: u64,
    /// Those of them with wrong bytes, or none. They are made again from other copies.
    pub damaged_replicas: u64,
    /// Blobs, packs and recipes that had wrong bytes or none on the main place, and have right ones again from another copy.
    pub mended: u64,
    /// Blobs that are not intact and were restored, with the right digest.
    pub restored: u64,
    /// Blobs that are not intact and that this program cannot restore: only the bytes of their recipes and packs were compared.
    pub not_restored: u64,
    /// Manifests that were read.
    pub manifests: u64,
    /// Bytes that were read of objects and manifests. What was read once more to restore blobs is not among them.
    pub bytes: u64,
    /// Blobs with wrong bytes. From now on they are absent until somebody pushes them again: that mends them.
    pub damaged: Vec<Digest>,
    /// Blobs without an object. They are absent, too.
    pub missing: Vec<Digest>,
    /// Blobs that could not be read, and why; also packs and recipes, by the digest of their bytes. Nothing is concluded from that.
    pub unreadable: Vec<(Digest, String)>,
    /// Manifests with wrong bytes: the database is damaged. A push of the manifest mends it; what else is damaged there, nobody knows.
    pub damaged_manifests: Vec<Digest>,
}

impl Store {
    /// Reads everything again. `report` is called after each blob, and after all packs and recipes, with what was found so far.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn scrub(
        &self,
        options: &ScrubOptions,
        mut report: impl FnMut(&Scrubbed) + Send,
    ) -> Result<Scrubbed> {
        let mut scrubbed = Scrubbed::default();
        self.recall_forgotten().await?;
        self.scrub_manifests(&mut scrubbed).await?;
        let unread_since = now()
            .saturating_sub(milliseconds(options.not_within))
            .saturating_add(1);
        let mut pass = Pass::new(options.bytes_per_second);
        // First: what the main place lacks comes from those that are sound.
        let replicas = self.scrub_replicas(unread_since, &mut pass).await?;
        (scrubbed.replicas, scrubbed.damaged_replicas) = (replicas.read, replicas.damaged);
        scrubbed.bytes += replicas.bytes;
        let unreadable = replicas.unreadable.into_iter();
        scrubbed.unreadable.extend(
            unreadable.map(|(replica, why)| (replica.checksum, format!("on {}: {why}", replica.place))),
        );
        let pieces = self.scrub_pieces(unread_since, &mut pass).await?;
        scrubbed.mended += pieces.mended;
        scrubbed.pieces = pieces.read;
        scrubbed.damaged_pieces = pieces.damaged;
        scrubbed.bytes += pieces.bytes;
        scrubbed.unreadable.extend(pieces.unreadable);
        if scrubbed.pieces > 0 {
            report(&scrubbed);
        }
        let mut after: Option<Digest> = None;
        loop {
            let from = after.take();
            let blobs = self
                .read_records("list blobs", move |tx| {
                    blobs::list(tx, STEP, from.as_ref(), unread_since)
                })
                .await?;
            for blob in &blobs {
                self.scrub_blob(blob, &mut pass, &mut scrubbed).await?;
                report(&scrubbed);
            }
            if blobs.len() < STEP {
                return Ok(scrubbed);
            }
            after = blobs.into_iter().next_back().map(|blob| blob.digest);
        }
    }

    async fn scrub_manifests(&self, scrubbed: &mut Scrubbed) -> Result<()> {
        let mut after: Option<Digest> = None;
        loop {
            let from = after.take();
            let found = self
                .read_records("read manifests", move |tx| {
                    manifests::contents(tx, MANIFESTS, from.as_ref())
                })
                .await?;
            for (digest, content) in &found {
                scrubbed.manifests += 1;
                scrubbed.bytes += content.len() as u64;
                if Digest::of(digest.algorithm(), content) != *digest {
                    scrubbed.damaged_manifests.push(digest.clone());
                }
            }
            if found.len() < MANIFESTS {
                return Ok(());
            }
            after = found.into_iter().next_back().map(|(digest, _)| digest);
        }
    }

    async fn scrub_blob(&self, blob: &Blob, pass: &mut Pass, scrubbed: &mut Scrubbed) -> Result<()> {
        scrubbed.blobs += 1;
        match &blob.object {
            Some(object) => {
                let wanted = (&blob.digest, blob.size);
                let verdict = self.verdict(object, wanted, pass, &mut scrubbed.bytes).await;
                self.note_verdict(blob, verdict, scrubbed).await
            }
            None => match self.prove_recipe(blob, pass, scrubbed).await? {
                true => self.note_recipe_verdict(blob, scrubbed).await,
                false => Ok(()),
            },
        }
    }

    /// Restores a blob that is not intact, if its recipe and packs have the bytes that were recorded, and compares its digest: this program may
    /// make other bytes of them than the one that proved the recipe. If so, the recipe is damaged, and a push mends it. `false` if nothing can
    /// be said. It comes before anything is noted of the blob, so that one that was damaged so before stays absent all the time.
    async fn prove_recipe(&self, blob: &Blob, pass: &mut Pass, scrubbed: &mut Scrubbed) -> Result<bool> {
        let recipe = self.recipe(&blob.digest).await?;
        let Some(recipe) = recipe.filter(|recipe| !recipe.is_damaged) else {
            return Ok(true);
        };
        let Some(restorer) = self.inner.restorer.get() else {
            scrubbed.not_restored += 1;
            return Ok(true);
        };
        let is_exact = restorer.is_exact(&self.giving_up(), blob).await;
        pass.pace.keep(blob.size).await;
        match is_exact {
            Ok(true) => scrubbed.restored += 1,
            // One that was replaced while it was restored says nothing.
            Ok(false) => {
                self.note_recipe_damaged(&recipe).await?;
            }
            Err(error) => {
                scrubbed.unreadable.push((blob.digest.clone(), error.to_string()));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Of a blob that is not intact, its recipe and packs were read and it was restored, and what was found is in the records.
    async fn note_recipe_verdict(&self, blob: &Blob, scrubbed: &mut Scrubbed) -> Result<()> {
        let digest = blob.digest.clone();
        let is_sound = self
            .write_records("note what a scrub found", move |tx| {
                recipes::note_blob(tx, &digest, now())
            })
            .await?;
        if is_sound == Some(false) {
            scrubbed.damaged.push(blob.digest.clone());
        }
        Ok(())
    }

    async fn note_mended(&self, blob: &Blob, scrubbed: &mut Scrubbed) -> Result<()> {
        scrubbed.mended += 1;
        let digest = blob.digest.clone();
        self.write_records("note what a scrub found", move |tx| {
            blobs::note_mended(tx, &digest, now())
        })
        .await
    }

    async fn note_verdict(&self, blob: &Blob, verdict: Verdict, scrubbed: &mut Scrubbed) -> Result<()> {
        let mut seen = Vec::new();
        let verdict = match (verdict, Held::of_blob(blob)) {
            (verdict @ (Verdict::Damaged | Verdict::Missing), Some(held)) => {
                match self.judge_blob(blob, &held).await? {
                    Finding::Mended => return self.note_mended(blob, scrubbed).await,
                    Finding::Unknown(why) => Verdict::Unreadable(why),
                    Finding::Sound => Verdict::Sound,
                    Finding::Damaged(keys) => {
                        seen = keys;
                        verdict
                    }
                }
            }
            (verdict, _) => verdict,
        };
        let is_sound = match verdict {
            Verdict::Sound => true,
            Verdict::Damaged | Verdict::Missing => false,
            Verdict::Unreadable(why) => {
                scrubbed.unreadable.push((blob.digest.clone(), why));
                return Ok(());
            }
            Verdict::Unread => return Ok(()),
        };
        let noted = blob.clone();
        let is_current = self
            .write_records("note what a scrub found", move |tx| match &noted.object {
                Some(object) if !is_sound && replicas::has_new(tx, object, &seen)? => Ok(false),
                _ => blobs::note_scrub(tx, &noted, is_sound, now()),
            })
            .await?;
        // One that was deleted or replaced while it was read says nothing.
        match verdict {
            Verdict::Damaged if is_current => scrubbed.damaged.push(blob.digest.clone()),
            Verdict::Missing if is_current => scrubbed.missing.push(blob.digest.clone()),
            _ => {}
        }
        Ok(())
    }
}
