//! Deletions that clients ask for, of manifests and blobs, unless a tag that is held leads to them.

use crate::database::{DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::model::IsHeld;
use crate::name::RepositoryName;
use crate::records::{blobs, manifests, repositories, tags};
use crate::store::{Store, now};
use xebec_objects::Digest;

/// Deletes a digest from the repository with this number; `false` if the repository has none.
type Delete = fn(&mut dyn Transaction, i64, &Digest) -> Result<bool, DatabaseError>;

impl Store {
    /// Deletes a manifest and the tags that name it; `false` if the repository has none. Blobs that it alone names go with a
    /// collection.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn delete_manifest(&self, repository: &RepositoryName, digest: &Digest) -> Result<bool> {
        self.delete_manifest_unless(repository, digest, None).await
    }

    /// The same, if no tag that is held leads to the manifest: none that names it or an index above it.
    ///
    /// # Errors
    /// If a tag holds it, or the database fails.
    pub async fn delete_manifest_unless(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        is_held: Option<IsHeld>,
    ) -> Result<bool> {
        let doing = "delete a manifest";
        self.delete_unless(doing, repository, digest, is_held, manifests::delete)
            .await
    }

    /// Takes a blob from a repository, also one that a manifest of it names; `false` if it has none. Its bytes go with a collection,
    /// when no repository has it any more.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn delete_blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<bool> {
        self.delete_blob_unless(repository, digest, None).await
    }

    /// The same, if no tag that is held leads to a manifest that names the blob.
    ///
    /// # Errors
    /// If a tag holds it, or the database fails.
    pub async fn delete_blob_unless(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        is_held: Option<IsHeld>,
    ) -> Result<bool> {
        let doing = "take a blob from a repository";
        self.delete_unless(doing, repository, digest, is_held, |tx, id, digest| {
            blobs::drop_link(tx, id, digest, now())
        })
        .await
    }

    /// Whether a tag holds it is decided in the transaction that deletes: a push beside it can set such a tag.
    async fn delete_unless(
        &self,
        doing: &'static str,
        repository: &RepositoryName,
        digest: &Digest,
        is_held: Option<IsHeld>,
        delete: Delete,
    ) -> Result<bool> {
        let (name, digest) = (repository.clone(), digest.clone());
        let deleted = self.write_records(doing, move |tx| {
            let Some(id) = repositories::find(tx, &name)? else {
                return Ok(Ok(false));
            };
            let holding = |is_held| tags::holding(tx, id, &digest, is_held);
            match is_held.as_deref().map_or(Ok(None), holding)? {
                Some(tag) => Ok(Err(tag)),
                None => delete(tx, id, &digest).map(Ok),
            }
        });
        deleted.await?.map_err(|tag| StoreError::ImmutableTag {
            repository: repository.clone(),
            tag: tag.name,
            digest: tag.digest,
        })
    }
}
