//! Collection: what nothing refers to any more goes, while pushes and pulls go on.
//!
//! See docs/formats/store.md for the protocol, and `crates/model/tests/protocol` for its proof.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use crate::database::{DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::name::{RepositoryName, UploadId};
use crate::records::garbage::Garbage;
use crate::records::garbage::{self, Link};
use crate::records::{blobs, drafts, repositories, uploads};
use crate::store::{Store, milliseconds, now};
use xebec_objects::{Digest, within};

/// So many records are looked at in one transaction: no push waits for more.
const STEP: usize = 256;

/// Whether a collection deletes, or only says what it would delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectOptions {
    /// Only says what it would do.
    pub dry_run: bool,
}

/// The effects of a collection, or those that it would have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Uploads that nobody continued.
    pub uploads: u64,
    /// The bytes of those.
    pub upload_bytes: u64,
    /// Objects that were written for packs or recipes, and that nobody recorded as such.
    pub drafts: u64,
    /// The bytes of those.
    pub draft_bytes: u64,
    /// Blobs of a repository that none of its manifests names.
    pub unlinked: u64,
    /// Blobs that no repository has: they go if that is so for another grace time.
    pub condemned: u64,
    /// The bytes of those.
    pub condemned_bytes: u64,
    /// Blobs that are gone.
    pub deleted: u64,
    /// The bytes of those.
    pub deleted_bytes: u64,
    /// Packs that no recipe needs.
    pub packs: u64,
    /// The bytes of those.
    pub pack_bytes: u64,
    /// Objects that were deleted: those of all the above, and what killed processes left.
    pub objects: u64,
    /// The bytes of those.
    pub object_bytes: u64,
    /// Objects that could not be deleted. The next collection tries again.
    pub failed: u64,
    /// Repositories that were empty.
    pub repositories: u64,
}

impl Store {
    /// Takes all that nothing refers to. A collection goes in small steps, each of which counts by itself: if it is killed, the next
    /// one goes on. It reads only the changes since the last one, however much the store has.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn collect(&self, options: &CollectOptions) -> Result<Collected> {
        let mut collected = Collected::default();
        // One time for all steps: what one of them changes is nothing for the next.
        let before = now().saturating_sub(self.grace());
        self.end_abandoned_uploads(options, &mut collected).await?;
        self.drop_old_drafts(options, &mut collected).await?;
        self.drop_link(options, before, &mut collected).await?;
        // Claimed before others are condemned: a blob must have been condemned for the whole grace time.
        self.claim(options, before, &mut collected).await?;
        self.condemn(options, before, &mut collected).await?;
        // After blobs: their recipes needed packs.
        (collected.packs, collected.pack_bytes) = self.collect_packs(options.dry_run, before).await?;
        self.sweep_all(options, &mut collected).await?;
        if !options.dry_run {
            collected.repositories = self.remove_empty_repositories(before).await?;
        }
        Ok(collected)
    }

    async fn remove_empty_repositories(&self, before: u64) -> Result<u64> {
        let (mut removed, mut after) = (0, None);
        loop {
            let from = after.take();
            let found = self
                .write_records("remove empty repositories", move |tx| {
                    let found = repositories::unchecked(tx, before, STEP, from.as_ref())?;
                    for repository in &found {
                        repositories::settle(tx, repository)?;
                    }
                    Ok(found)
                })
                .await?;
            removed += found.iter().filter(|repository| !repository.is_used).count() as u64;
            if found.len() < STEP {
                return Ok(removed);
            }
            after = found.into_iter().next_back();
        }
    }

    async fn end_abandoned_uploads(&self, options: &CollectOptions, collected: &mut Collected) -> Result<()> {
        let timeout = milliseconds(self.inner.config.upload_timeout);
        let before = now().saturating_sub(timeout);
        let (mut after, mut is_silent) = (None, false);
        loop {
            let from = after.take();
            let abandoned = self
                .read_records("find abandoned uploads", move |tx| {
                    uploads::abandoned(tx, before, STEP, from.as_ref())
                })
                .await?;
            // A request may wait for its client longer than the whole time.
            let is_held = |id: &UploadId| self.inner.sessions.is_held(id);
            for (id, record) in abandoned.iter().filter(|(id, _)| !is_held(id)) {
                let size = match is_silent {
                    true => record.size,
                    false => {
                        let look = self.inner.objects.uploaded(&record.object, record.size);
                        let found = within(self.place_patience(), look).await;
                        is_silent = found
                            .as_ref()
                            .is_err_and(|error| error.kind() == ErrorKind::TimedOut);
                        found.unwrap_or(record.size)
                    }
                };
                collected.uploads += 1;
                collected.upload_bytes += size;
                if !options.dry_run {
                    self.end_abandoned(&record.repository, id, size, before).await?;
                }
            }
            if abandoned.len() < STEP {
                return Ok(());
            }
            let last = abandoned.into_iter().next_back();
            after = last.map(|(id, record)| (id, record.touched));
        }
    }

    /// Ends an upload unless somebody has touched it meanwhile.
    async fn end_abandoned(
        &self,
        repository: &RepositoryName,
        id: &UploadId,
        size: u64,
        before: u64,
    ) -> Result<()> {
        let (repository, id) = (repository.clone(), id.clone());
        self.write_records("end an abandoned upload", move |tx| {
            let found = uploads::find(tx, &repository, &id)?;
            if let Some(record) = found.filter(|record| record.touched < before) {
                uploads::give_up(tx, &id)?;
                garbage::throw_away(tx, &record.object, size, record.progress.as_deref(), now())?;
            }
            Ok(())
        })
        .await
    }

    async fn drop_old_drafts(&self, options: &CollectOptions, collected: &mut Collected) -> Result<()> {
        let before = now().saturating_sub(milliseconds(self.inner.config.upload_timeout));
        let (mut after, dry_run) = (None, options.dry_run);
        loop {
            let from = after.take();
            let work = move |tx: &mut dyn Transaction| {
                let old = drafts::abandoned(tx, before, STEP, from.as_ref())?;
                for (draft, _) in old.iter().filter(|_| !dry_run) {
                    drafts::give_up(tx, draft, now())?;
                }
                Ok(old)
            };
            let old = match dry_run {
                true => self.read_records("find abandoned drafts", work).await?,
                false => self.write_records("give up abandoned drafts", work).await?,
            };
            collected.drafts += old.len() as u64;
            collected.draft_bytes += old.iter().map(|(draft, _)| draft.size).sum::<u64>();
            if old.len() < STEP {
                return Ok(());
            }
            after = old.into_iter().next_back();
        }
    }

    async fn drop_link(
        &self,
        options: &CollectOptions,
        before: u64,
        collected: &mut Collected,
    ) -> Result<()> {
        let dry_run = options.dry_run;
        let mut after: Option<Link> = None;
        loop {
            let from = after.take();
            let work = move |tx: &mut dyn Transaction| {
                let links = garbage::unchecked_links(tx, before, STEP, from.as_ref())?;
                for link in links.iter().filter(|_| !dry_run) {
                    match link.is_needed {
                        true => garbage::keep_link(tx, link)?,
                        false => {
                            blobs::drop_link(tx, link.repository, &link.digest, now())?;
                        }
                    }
                }
                Ok(links)
            };
            let links = match dry_run {
                true => {
                    self.read_records("find blobs that no manifest names", work)
                        .await?
                }
                false => {
                    self.write_records("unlink blobs that no manifest names", work)
                        .await?
                }
            };
            collected.unlinked += links.iter().filter(|link| !link.is_needed).count() as u64;
            if links.len() < STEP {
                return Ok(());
            }
            after = links.into_iter().next_back();
        }
    }

    async fn condemn(&self, options: &CollectOptions, before: u64, collected: &mut Collected) -> Result<()> {
        let (blobs, bytes) = self
            .step_through("present", before, options.dry_run, |tx, digest| {
                garbage::condemn(tx, digest, now())
            })
            .await?;
        collected.condemned = blobs;
        collected.condemned_bytes = bytes;
        Ok(())
    }

    async fn claim(&self, options: &CollectOptions, before: u64, collected: &mut Collected) -> Result<()> {
        let (blobs, bytes) = self
            .step_through("condemned", before, options.dry_run, |tx, digest| {
                blobs::claim(tx, digest, now())
            })
            .await?;
        collected.deleted = blobs;
        collected.deleted_bytes = bytes;
        Ok(())
    }

    /// Finds blobs of a state that no repository has, and does something with each in the same transaction. How many, and their bytes.
    async fn step_through(
        &self,
        state: &'static str,
        before: u64,
        dry_run: bool,
        work: fn(&mut dyn Transaction, &Digest) -> Result<(), DatabaseError>,
    ) -> Result<(u64, u64)> {
        let (mut blobs, mut bytes) = (0, 0);
        let mut after = None;
        loop {
            let from = after.take();
            let step = move |tx: &mut dyn Transaction| {
                let found = garbage::unchecked(tx, state, before, STEP, from.as_ref())?;
                for blob in found.iter().filter(|_| !dry_run) {
                    match blob.is_linked {
                        true => garbage::keep(tx, &blob.digest)?,
                        false => work(tx, &blob.digest)?,
                    }
                }
                Ok(found)
            };
            let found = match dry_run {
                true => {
                    self.read_records("find blobs that no repository has", step)
                        .await?
                }
                false => {
                    self.write_records("mark blobs that no repository has", step)
                        .await?
                }
            };
            for blob in found.iter().filter(|blob| !blob.is_linked) {
                blobs += 1;
                bytes += blob.size;
            }
            if found.len() < STEP {
                return Ok((blobs, bytes));
            }
            after = found.into_iter().next_back();
        }
    }

    async fn sweep_all(&self, options: &CollectOptions, collected: &mut Collected) -> Result<()> {
        let mut after: Option<String> = None;
        // Each waits long for a place that does not answer.
        let mut silent = BTreeSet::new();
        loop {
            let from = after.take();
            let garbage: Vec<Garbage> = self
                .read_records("find what is to be deleted", move |tx| {
                    garbage::list(tx, STEP, from.as_deref())
                })
                .await?;
            let is_last = garbage.len() < STEP;
            after = garbage.last().map(|garbage| garbage.object.clone());
            for garbage in garbage {
                let (size, place) = (garbage.size, garbage.place.clone());
                if silent.contains(&place) {
                    collected.failed += 1;
                    continue;
                }
                let swept = match options.dry_run {
                    true => Ok(garbage.since <= now()),
                    false => self.sweep(garbage).await,
                };
                match swept {
                    Ok(is_gone) => {
                        collected.objects += u64::from(is_gone);
                        collected.object_bytes += if is_gone { size } else { 0 };
                    }
                    Err(error) => {
                        if matches!(error, StoreError::Place { .. }) {
                            silent.insert(place);
                        }
                        tracing::warn!("{error}; the next collection tries again");
                        collected.failed += 1;
                    }
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::StoreConfig;
    use crate::database::work::{self, Work};
    use crate::model::{NewManifest, Reference, ReferenceKind};
    use crate::records::manifests;
    use xebec_objects::Algorithm;

    const CHANGED: u64 = 20;
    const LAYERS: u64 = 3;

    fn digest(text: &str) -> Digest {
        Digest::of(Algorithm::Sha256, text.as_bytes())
    }

    fn repository(image: u64) -> RepositoryName {
        format!("many/of-{}", image / 5).parse().unwrap()
    }

    fn manifest(image: u64) -> NewManifest {
        let content = format!("image {image}");
        let layers = (0..LAYERS).map(|number| Reference {
            kind: ReferenceKind::Layer,
            digest: digest(&format!("{image} {number}")),
            required: true,
        });
        NewManifest {
            digest: digest(&content),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            content: content.into(),
            references: layers.collect(),
            subject: None,
            artifact_type: None,
            annotations: BTreeMap::new(),
            immutable: Vec::new(),
            is_pushed: true,
        }
    }

    /// An image as pushes record it.
    fn put(tx: &mut dyn Transaction, image: u64) -> Result<(), DatabaseError> {
        let (name, new) = (repository(image), manifest(image));
        let id = repositories::find_or_make(tx, &name, 1)?;
        for Reference { digest, .. } in &new.references {
            let object = format!("no/{}", digest.hex());
            let blob = blobs::NewBlob {
                digest,
                size: 1,
                object: &object,
            };
            blobs::record(tx, &blob, None, 1)?;
            blobs::link(tx, id, digest, 1)?;
        }
        let tag = "latest".parse().unwrap();
        manifests::put(tx, &name, &new, &[(tag, None)], 1)?.unwrap();
        Ok(())
    }

    async fn collect(store: &Store) -> Collected {
        tokio::time::sleep(Duration::from_millis(3)).await;
        store.collect(&CollectOptions::default()).await.unwrap()
    }

    /// The work of a collection in a store of so many images when nothing has changed, and the work of collections until some images
    /// are gone.
    async fn works(images: u64) -> (Work, Work) {
        let directory = tempfile::tempdir().unwrap();
        let mut config = StoreConfig::new(directory.path());
        (config.grace, config.upload_timeout) = (Duration::ZERO, Duration::ZERO);
        let store = Store::open(&config).await.unwrap();
        let fill = move |tx: &mut dyn Transaction| (0..images).try_for_each(|image| put(tx, image));
        store.write_records("fill", fill).await.unwrap();
        let records = directory.path().join("records.db");
        assert_eq!(collect(&store).await, Collected::default());
        work::take(&records);
        assert_eq!(collect(&store).await, Collected::default());
        let idle = work::take(&records);
        for image in 0..CHANGED {
            let image = image * images / CHANGED;
            let (name, digest) = (repository(image), manifest(image).digest);
            assert!(store.delete_manifest(&name, &digest).await.unwrap());
            store.begin_upload(&name).await.unwrap();
        }
        work::take(&records);
        let mut all = Collected::default();
        for _ in 0..4 {
            let more = collect(&store).await;
            all.uploads += more.uploads;
            all.unlinked += more.unlinked;
            all.deleted += more.deleted;
        }
        let wanted = (CHANGED, CHANGED * LAYERS, CHANGED * LAYERS);
        assert_eq!((all.uploads, all.unlinked, all.deleted), wanted);
        (idle, work::take(&records))
    }

    #[tokio::test]
    async fn a_collection_works_as_much_as_has_changed_however_much_there_is() {
        let (few, changed_of_few) = works(100).await;
        let (many, changed_of_many) = works(2000).await;
        assert!(few.statements > 0 && few.steps > 0, "nothing is counted");
        for work in [&few, &many, &changed_of_few, &changed_of_many] {
            assert_eq!(work.scans, Vec::<String>::new());
        }
        assert_eq!(few.statements, many.statements);
        assert!(many.steps <= few.steps + 20, "{few:?}, {many:?}");
        let of = |work: &Work| (work.statements, work.steps);
        let ((statements, steps), (more_statements, more_steps)) =
            (of(&changed_of_few), of(&changed_of_many));
        assert!(
            more_statements <= statements + statements / 10 && more_steps <= steps + steps / 10,
            "{statements} statements of {steps} steps, and {more_statements} of {more_steps} in the large store"
        );
    }
}
