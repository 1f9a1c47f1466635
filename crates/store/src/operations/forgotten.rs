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

#[cfg(test)]
mod tests {
    use xebec_objects::Algorithm;

    use super::*;
    use crate::config::StoreConfig;

    const BLOB: &str =
        "INSERT INTO blobs (digest, size, object, state, changed) VALUES ($1, 1, 'none', 'present', 0)";
    const RECIPE: &str = "INSERT INTO recipes (digest, object, size, checksum, plain, proven) VALUES ($1, 'recipe', 1, $1, 1, 0)";

    /// Between the search for recipes without a blob and their removal, somebody pushes a blob and takes it apart.
    #[tokio::test]
    async fn a_recipe_stays_whose_blob_came_since_it_was_looked_for() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreConfig::new(directory.path())).await.unwrap();
        let digest = xebec_objects::Digest::of(Algorithm::Sha256, b"blob");
        for (sql, is_left) in [(BLOB, true), ("DELETE FROM blobs WHERE digest = $1", false)] {
            let blob = digest.clone();
            let work = move |tx: &mut dyn Transaction| {
                tx.execute(sql, &[(&blob).into()])?;
                if is_left {
                    tx.execute(RECIPE, &[(&blob).into()])?;
                }
                forgotten::recall_recipe(tx, &blob)
            };
            store.write_records("recall a recipe", work).await.unwrap();
            assert_eq!(store.recipe(&digest).await.unwrap().is_some(), is_left);
        }
    }
}
