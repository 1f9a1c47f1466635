//! Collection: what nothing refers to any more goes, while pushes and pulls go on.
//!
//! See docs/formats/store.md for the protocol, and `tests/store/model.rs` for its proof.

use crate::database::{DatabaseError, Transaction};
use crate::digest::Digest;
use crate::error::Result;
use crate::model::Garbage;
use crate::name::{RepositoryName, UploadId};
use crate::records::garbage::{self, Loose};
use crate::records::{blobs, repositories, uploads};
use crate::store::{Store, milliseconds, now};

/// So many records are looked at in one transaction: no push waits for more.
const STEP: usize = 256;

/// What a collection does.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectOptions {
    /// Only says what it would do.
    pub dry_run: bool,
}

/// What a collection did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Uploads that nobody continued.
    pub uploads: u64,
    /// The bytes of those.
    pub upload_bytes: u64,
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
    /// Objects that were deleted: those of blobs and uploads, and what killed processes left.
    pub objects: u64,
    /// The bytes of those.
    pub object_bytes: u64,
    /// Objects that could not be deleted. The next collection tries again.
    pub failed: u64,
    /// Repositories that were empty.
    pub repositories: u64,
}

impl Store {
    /// Takes what nothing refers to. It goes in small steps, each of which counts by itself: if it is killed, the next one goes on.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn collect(&self, options: &CollectOptions) -> Result<Collected> {
        let mut collected = Collected::default();
        // One time for all steps: what one of them changes is nothing for the next.
        let before = now().saturating_sub(self.grace());
        self.end_abandoned_uploads(options, &mut collected).await?;
        self.drop_link(options, before, &mut collected).await?;
        // Claimed before others are condemned: a blob must have been condemned for the whole grace time.
        self.claim(options, before, &mut collected).await?;
        self.condemn(options, before, &mut collected).await?;
        self.sweep_all(options, &mut collected).await?;
        if !options.dry_run {
            collected.repositories = self
                .write_records("remove empty repositories", move |tx| {
                    repositories::remove_empty(tx, before)
                })
                .await?;
        }
        Ok(collected)
    }

    async fn end_abandoned_uploads(&self, options: &CollectOptions, collected: &mut Collected) -> Result<()> {
        let timeout = milliseconds(self.inner.config.upload_timeout);
        let before = now().saturating_sub(timeout);
        let mut after = None;
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
                let size = self
                    .inner
                    .objects
                    .uploaded(&record.object, record.size)
                    .await
                    .unwrap_or(record.size);
                collected.uploads += 1;
                collected.upload_bytes += size;
                if !options.dry_run {
                    self.end_abandoned(&record.repository, id, size, before).await?;
                }
            }
            if abandoned.len() < STEP {
                return Ok(());
            }
            after = abandoned.into_iter().next_back().map(|(id, _)| id);
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
                uploads::end(tx, &id)?;
                garbage::throw_away(tx, &record.object, size, record.progress.as_deref(), now())?;
            }
            Ok(())
        })
        .await
    }

    async fn drop_link(
        &self,
        options: &CollectOptions,
        before: u64,
        collected: &mut Collected,
    ) -> Result<()> {
        let dry_run = options.dry_run;
        let mut after: Option<Loose> = None;
        loop {
            let from = after.take();
            let work = move |tx: &mut dyn Transaction| {
                let loose = garbage::loose_links(tx, before, STEP, from.as_ref())?;
                for Loose {
                    repository, digest, ..
                } in loose.iter().filter(|_| !dry_run)
                {
                    blobs::drop_link(tx, *repository, digest, now())?;
                }
                Ok(loose)
            };
            let loose = match dry_run {
                true => {
                    self.read_records("find blobs that no manifest names", work)
                        .await?
                }
                false => {
                    self.write_records("unlink blobs that no manifest names", work)
                        .await?
                }
            };
            collected.unlinked += loose.len() as u64;
            if loose.len() < STEP {
                return Ok(());
            }
            after = loose.into_iter().next_back();
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
                garbage::claim(tx, digest, now())
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
                let found = garbage::unlinked(tx, state, before, STEP, from.as_ref())?;
                for (digest, _) in found.iter().filter(|_| !dry_run) {
                    work(tx, digest)?;
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
            blobs += found.len() as u64;
            bytes += found.iter().map(|(_, size)| size).sum::<u64>();
            if found.len() < STEP {
                return Ok((blobs, bytes));
            }
            after = found.into_iter().next_back().map(|(digest, _)| digest);
        }
    }

    async fn sweep_all(&self, options: &CollectOptions, collected: &mut Collected) -> Result<()> {
        let mut after: Option<String> = None;
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
                let size = garbage.size;
                let swept = match options.dry_run {
                    true => Ok(true),
                    false => self.sweep(garbage).await,
                };
                match swept {
                    Ok(is_gone) => {
                        collected.objects += u64::from(is_gone);
                        collected.object_bytes += if is_gone { size } else { 0 };
                    }
                    Err(error) => {
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
