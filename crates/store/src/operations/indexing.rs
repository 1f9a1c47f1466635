//! An indexer's records: the manifests that still wait for their layers' indexes, and the outcome for each layer.
//!
//! A manifest waits from the transaction on that records it, so none is forgotten, whenever the process ends.

use std::time::Duration;

use crate::database::{DatabaseError, Transaction};
use crate::error::Result;
use crate::model::{IndexingProblem, IndexingTask, LayerOutcome};
use crate::records::{indexing, repositories};
use crate::store::{Store, milliseconds, now};
use xebec_objects::Digest;

impl Store {
    /// Takes the manifest that has waited longest; `None` if none is due. If it is neither settled nor postponed in this time, it is
    /// taken again.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn take_indexing(&self, lease: Duration) -> Result<Option<IndexingTask>> {
        self.write_records("take a manifest to index", move |tx| {
            let now = now();
            indexing::take(tx, now, now.saturating_add(milliseconds(lease)))
        })
        .await
    }

    /// Notes that a manifest is done with; with a problem, that it could not be indexed, and is not tried again.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn settle_indexing(&self, task: &IndexingTask, problem: Option<String>) -> Result<()> {
        self.of_task(
            "note that a manifest is indexed",
            task,
            move |tx, repository, digest| indexing::settle(tx, repository, digest, problem.as_deref()),
        )
        .await
    }

    /// Notes that a manifest is to be tried again after this time.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn postpone_indexing(
        &self,
        task: &IndexingTask,
        wait: Duration,
        problem: String,
    ) -> Result<()> {
        self.of_task(
            "note when a manifest is to be indexed",
            task,
            move |tx, repository, digest| {
                indexing::postpone(
                    tx,
                    repository,
                    digest,
                    now().saturating_add(milliseconds(wait)),
                    &problem,
                )
            },
        )
        .await
    }

    async fn of_task(
        &self,
        doing: &'static str,
        task: &IndexingTask,
        mut work: impl FnMut(&mut dyn Transaction, i64, &Digest) -> Result<(), DatabaseError> + Send + 'static,
    ) -> Result<()> {
        let task = task.clone();
        self.write_records(doing, move |tx| match repositories::find(tx, &task.repository)? {
            Some(id) => work(tx, id, &task.manifest),
            None => Ok(()),
        })
        .await
    }

    /// Makes all waiting manifests due. A single node begins so, since nobody works on those that were taken before. Returns how many
    /// there were.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn release_indexing(&self) -> Result<u64> {
        self.write_records("take up indexing again", |tx| indexing::release(tx))
            .await
    }

    /// How many manifests wait.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn indexing_waits(&self) -> Result<u64> {
        self.read_records("count what waits to be indexed", |tx| indexing::waiting(tx))
            .await
    }

    /// The manifests that could not be indexed, the newest first.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn indexing_problems(&self, n: usize) -> Result<Vec<IndexingProblem>> {
        self.read_records("list what could not be indexed", move |tx| {
            indexing::problems(tx, n)
        })
        .await
    }

    /// The outcome of indexing a layer, in any image; `None` if it was not indexed yet.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn layer_outcome(&self, layer: &Digest) -> Result<Option<LayerOutcome>> {
        let layer = layer.clone();
        self.read_records("look up a layer's index", move |tx| indexing::layer(tx, &layer))
            .await
    }

    /// Notes what came of a layer.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn note_layer_outcome(&self, layer: &Digest, outcome: LayerOutcome) -> Result<()> {
        let layer = layer.clone();
        self.write_records("note a layer's index", move |tx| {
            indexing::note_layer(tx, &layer, &outcome, now())
        })
        .await
    }
}
