//! Manifests and tags of an upstream, beside what clients have pushed.

use crate::error::Result;
use crate::model::{NewManifest, PutManifest};
use crate::name::{RepositoryName, Tag};
use crate::records::{copies, repositories, tags};
use crate::store::{Store, now};

impl Store {
    /// The same as [`Store::put_manifest`] for a manifest of an upstream, so that nothing that was acknowledged to a client is undone.
    /// A tag stays as it is if a client pushed it, or pushed the manifest that it names since it was set. An immutable tag stays, too.
    /// The others are set all the same.
    ///
    /// # Errors
    /// If the digest is not that of the content, or the database fails.
    pub async fn put_copy(
        &self,
        repository: &RepositoryName,
        new: &NewManifest,
        new_tags: &[Tag],
    ) -> Result<PutManifest> {
        self.check_manifest(new)?;
        self.check_room().await?;
        let (name, new, new_tags) = (repository.clone(), new.clone(), new_tags.to_vec());
        let put = self
            .write_records("record a manifest of an upstream", move |tx| {
                copies::put(tx, &name, &new, &new_tags, now())
            })
            .await?;
        put.map_err(|refusal| refusal.into_error(repository))
    }

    /// Whether a tag is there that [`Store::put_copy`] would not move, since a client pushed it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn is_own_tag(&self, repository: &RepositoryName, tag: &Tag) -> Result<bool> {
        let (repository, tag) = (repository.clone(), tag.clone());
        self.read_records("see who pushed a tag", move |tx| {
            let Some(id) = repositories::find(tx, &repository)? else {
                return Ok(false);
            };
            let found = tags::find(tx, id, &tag)?;
            found.map_or(Ok(false), |found| copies::is_own(tx, id, &found))
        })
        .await
    }
}
