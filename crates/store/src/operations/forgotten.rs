//! Records that collections would leave for ever, found by a scrub, which reads everything anyway.

use crate::database::{DatabaseError, Transaction};
use crate::error::Result;
use crate::records::forgotten;
use crate::store::Store;

/// So many records are marked in one transaction.
const STEP: usize = 256;

/// Finds some records after one.
type Find<K> = fn(&mut dyn Transaction, usize, Option<&K>) -> Result<Vec<K>, DatabaseError>;
/// Has the next collection look at a record.
type Recall<K> = fn(&mut dyn Transaction, &K) -> Result<(), DatabaseError>;

impl Store {
    /// Has the next collection look at all records that nothing needs.
    pub(crate) async fn recall_forgotten(&self) -> Result<()> {
        let links = self.recall(forgotten::links, forgotten::recall_link).await?;
        let blobs = self.recall(forgotten::blobs, forgotten::recall_blob).await?;
        let recipes = self.recall(forgotten::recipes, forgotten::recall_recipe).await?;
        let repositories = self
            .recall(forgotten::repositories, forgotten::recall_repository)
            .await?;
        if links + blobs + recipes + repositories > 0 {
            tracing::info!(
                links,
                blobs,
                recipes,
                repositories,
                "the next collection looks at what an earlier program left"
            );
        }
        Ok(())
    }

    /// Reading holds nobody up, however long it takes until something is found.
    async fn recall<K: Clone + Send + Sync + 'static>(
        &self,
        find: Find<K>,
        recall: Recall<K>,
    ) -> Result<usize> {
        let (mut recalled, mut after) = (0, None);
        loop {
            let from: Option<K> = after.take();
            let found = self
                .read_records("look for what nothing needs", move |tx| {
                    find(tx, STEP, from.as_ref())
                })
                .await?;
            recalled += found.len();
            let is_last = found.len() < STEP;
            after = found.last().cloned();
            if !found.is_empty() {
                self.write_records("mark what nothing needs", move |tx| {
                    found.iter().try_for_each(|key| recall(tx, key))
                })
                .await?;
            }
            if is_last {
                return Ok(recalled);
            }
        }
    }
}
