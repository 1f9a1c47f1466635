//! A deduplicator's records: the blobs that wait to be taken apart, and why others stay intact.
//!
//! A blob waits from the transaction on that records it, so none is forgotten, whenever the process ends.

use std::time::Duration;

use crate::error::Result;
use crate::model::Page;
use crate::recipes::DedupTask;
use crate::records::dedup::{self, Taken};
use crate::records::placing;
use crate::space::Space;
use crate::store::{Store, milliseconds, now};
use xebec_objects::Digest;

/// So many blobs are changed in one transaction.
const STEP: usize = 256;

impl Store {
    /// Takes the blob that has waited longest, has so many bytes at least, is intact and sound, and is in a repository; `None` if none is
    /// due. If it is neither settled, postponed nor recorded as a recipe in this time, it is taken again.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn take_dedup(&self, lease: Duration, least_size: u64) -> Result<Option<DedupTask>> {
        loop {
            let taken = self
                .write_records("take a blob to take apart", move |tx| {
                    let now = now();
                    dedup::take(tx, least_size, now, now.saturating_add(milliseconds(lease)))
                })
                .await?;
            match taken {
                Taken::Task(task) => return Ok(Some(task)),
                Taken::LookAgain => {}
                Taken::Nothing => return Ok(None),
            }
        }
    }

    /// Notes that a blob stays intact, and why, for people. The reasons should be few: [`Store::space`] counts the blobs of each.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn settle_dedup(&self, task: &DedupTask, reason: &str) -> Result<()> {
        let (blob, reason) = (task.blob.clone(), reason.to_owned());
        self.write_records("note why a blob stays intact", move |tx| {
            dedup::keep(tx, &blob, &reason)
        })
        .await
    }

    /// Notes that a blob is to be tried again after this time.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn postpone_dedup(&self, task: &DedupTask, wait: Duration, problem: &str) -> Result<()> {
        let (blob, problem) = (task.blob.clone(), problem.to_owned());
        self.write_records("note when a blob is to be taken apart", move |tx| {
            dedup::postpone(tx, &blob, now().saturating_add(milliseconds(wait)), &problem)
        })
        .await
    }

    /// Makes all waiting blobs due, and those that were too small for an earlier limit. A single node begins so, since nobody works on those
    /// that were taken before. Returns how many there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn release_dedup(&self, least_size: u64) -> Result<u64> {
        self.write_records("take up deduplication again", move |tx| {
            dedup::release(tx, least_size)
        })
        .await
    }

    /// Has all blobs wait again that were to stay intact, unless that was done last by the same `program`, which says what it can take apart. Returns how
    /// many there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn retry_dedup_by(&self, program: &str) -> Result<u64> {
        let last = self.read_records("find what took blobs apart last", |tx| {
            placing::rules(tx, placing::DEDUPLICATION)
        });
        if last.await?.as_deref() == Some(program) {
            return Ok(0);
        }
        let mut all = 0;
        loop {
            let some = self
                .write_records("try again what stays intact", |tx| dedup::retry(tx, STEP))
                .await?;
            all += some;
            if some < STEP as u64 {
                break;
            }
        }
        let program = program.to_owned();
        self.write_records("note what takes blobs apart", move |tx| {
            placing::set_rules(tx, placing::DEDUPLICATION, &program)
        })
        .await?;
        Ok(all)
    }

    /// Intact blobs that were taken apart, in the order of their digests. If they are not to stay so, a process has ended between
    /// [`Store::record_recipe`] and [`Store::drop_intact`]. This reads the records of all blobs.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn intact_and_taken_apart(&self, n: usize, after: Option<&Digest>) -> Result<Page<Digest>> {
        let after = after.cloned();
        let found = self
            .read_records("find intact blobs that were taken apart", move |tx| {
                dedup::intact_and_done(tx, n.saturating_add(1), after.as_ref())
            })
            .await?;
        Ok(Page::cut(found, n))
    }

    /// The room that blobs, packs and recipes take up, and why blobs stay intact. This reads the records of all of them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn space(&self) -> Result<Space> {
        self.read_records("add up what takes up room", |tx| dedup::space(tx))
            .await
    }
}
