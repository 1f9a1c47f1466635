//! The queries and the removal that retention and eviction need: all manifests of a repository with their use, and a removal that does
//! nothing if somebody has used or pushed them meanwhile. It is an ordinary deletion otherwise: blobs go with a later collection.

use crate::error::Result;
use crate::model::{Holding, Page, TagRecord, Unused};
use crate::name::RepositoryName;
use crate::records::{holdings, manifests, repositories, tags};
use crate::store::Store;
use xebec_objects::Digest;

impl Store {
    /// All manifests of a repository with what decides whether they stay, in the order of their digests.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn holdings(
        &self,
        repository: &RepositoryName,
        n: usize,
        after: Option<&Digest>,
    ) -> Result<Page<Holding>> {
        let (repository, after) = (repository.clone(), after.cloned());
        let found = self
            .read_records(
                "list what a repository holds",
                move |tx| match repositories::find(tx, &repository)? {
                    Some(id) => holdings::list(tx, id, n.saturating_add(1), after.as_ref()),
                    None => Ok(Vec::new()),
                },
            )
            .await?;
        Ok(Page::cut(found, n))
    }

    /// Deletes a tag that is still as it was seen; `false` if it was pushed or pulled since, or is gone. `pulled` is when its manifest was
    /// pulled last, as was seen: a pull by digest is use of the tag, too.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn remove_unused_tag(
        &self,
        repository: &RepositoryName,
        seen: &TagRecord,
        pulled: u64,
    ) -> Result<bool> {
        self.write_pulls().await?;
        let (repository, seen) = (repository.clone(), seen.clone());
        self.write_records("remove a tag that nobody uses", move |tx| {
            let Some(id) = repositories::find(tx, &repository)? else {
                return Ok(false);
            };
            match tags::find(tx, id, &seen.name)? {
                Some(found) if found == seen => {}
                _ => return Ok(false),
            }
            let is_used = manifests::pulled(tx, id, &seen.digest)?.is_some_and(|at| at > pulled);
            match is_used {
                true => Ok(false),
                false => tags::delete(tx, id, &seen.name),
            }
        })
        .await
    }

    /// Deletes manifests and the tags that name them, all or none: none if one of them is in use after all.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn remove_unused(&self, repository: &RepositoryName, unused: &Unused) -> Result<bool> {
        self.write_pulls().await?;
        let (repository, unused) = (repository.clone(), unused.clone());
        self.write_records(
            "remove manifests that nobody uses",
            move |tx| match repositories::find(tx, &repository)? {
                Some(id) => holdings::remove(tx, id, &unused),
                None => Ok(false),
            },
        )
        .await
    }
}
