//! Blobs: found, read, mounted.

use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::name::RepositoryName;
use crate::records::intact::main_key;
use crate::records::{blobs, repositories};
use crate::store::{Store, now};
use xebec_objects::BlobReader;
use xebec_objects::Digest;

/// A blob that goes elsewhere while it is read is sought so often.
const MOST_MOVES: usize = 4;

impl Store {
    /// A blob of a repository, and the promise that it stays for half the grace time: a client that was told that it is here need not
    /// push it before its manifest.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<Option<Blob>> {
        let Some(found) = self.linked(repository, digest).await? else {
            return Ok(None);
        };
        // One write in half the grace time, not one for each request.
        if found.added.saturating_add(self.grace() / 2) > now() {
            return Ok(Some(found.blob));
        }
        let (repository, digest) = (repository.clone(), digest.clone());
        self.write_records("promise a blob", move |tx| {
            match repositories::find(tx, &repository)? {
                Some(id) => blobs::promise(tx, id, &digest, now()),
                None => Ok(None),
            }
        })
        .await
    }

    /// A blob of a repository, without a promise. This writes nothing.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn peek_blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<Option<Blob>> {
        let found = self.linked(repository, digest).await?;
        Ok(found.map(|linked| linked.blob))
    }

    async fn linked(&self, repository: &RepositoryName, digest: &Digest) -> Result<Option<blobs::Linked>> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.read_records("find a blob", move |tx| blobs::of_named(tx, &repository, &digest))
            .await
    }

    /// A blob, whichever repository has it. For the server's own use: a client must not learn of it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn any_blob(&self, digest: &Digest) -> Result<Option<Blob>> {
        let digest = digest.clone();
        self.read_records("find a blob", move |tx| blobs::any(tx, &digest))
            .await
    }

    /// Gives a repository a blob that is here, whichever has it. For the server's own use, when it has seen that all readers of the
    /// repository may have the blob; [`Store::mount`] is for clients.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn adopt_blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<Option<Blob>> {
        let (repository, digest) = (repository.clone(), digest.clone());
        self.write_records("give a repository a blob", move |tx| {
            let found = blobs::any(tx, &digest)?;
            if found.is_some() {
                let id = repositories::find_or_make(tx, &repository, now())?;
                blobs::link(tx, id, &digest, now())?;
            }
            Ok(found)
        })
        .await
    }

    /// Reads a range of a blob: from its object, or by its recipe if it is not intact.
    ///
    /// # Errors
    /// [`StoreError::Lost`] if its object is gone, or its recipe, or a pack: then the blob is absent from now on.
    /// [`StoreError::NoRestorer`] if it is not intact, and nobody has called [`Store::set_restorer`]. If the object store fails.
    pub async fn read(&self, blob: &Blob, range: Range<u64>) -> Result<BlobReader> {
        let end = range.end.min(blob.size);
        let range = range.start.min(end)..end;
        let mut sought = blob.clone();
        for again in 0..MOST_MOVES {
            match self.read_as(&sought, range.clone()).await {
                Err(StoreError::Lost(_)) => {}
                read => return read,
            }
            // Since the caller looked, somebody has pushed it again, or it was taken apart or moved, and it is elsewhere now.
            match self.any_blob(&sought.digest).await? {
                Some(now) if now.object != sought.object || (now.object.is_none() && again == 0) => {
                    sought = now
                }
                _ => break,
            }
        }
        if let Some(reader) = self.read_by_recipe(&sought, range).await {
            return Ok(reader);
        }
        self.note_lost(&sought).await?;
        Err(StoreError::Lost(blob.digest.clone()))
    }

    /// Reads a blob whose own object is gone, if it has a sound recipe, too. Nothing is concluded from that: its
    /// place may be away for a moment. A scrub finds out.
    async fn read_by_recipe(&self, blob: &Blob, range: Range<u64>) -> Option<BlobReader> {
        blob.object.as_ref()?;
        let restorer = self.inner.restorer.get()?;
        let recipe = self.recipe(&blob.digest).await.ok().flatten()?;
        if recipe.is_damaged {
            return None;
        }
        let apart = Blob {
            object: None,
            ..blob.clone()
        };
        restorer.read(self, &apart, range).await.ok()
    }

    /// Reads a blob from where this record of it says that it is. If the object is not there, the blob is lost.
    async fn read_as(&self, blob: &Blob, range: Range<u64>) -> Result<BlobReader> {
        let Some(object) = &blob.object else {
            let Some(restorer) = self.inner.restorer.get() else {
                return Err(StoreError::NoRestorer(blob.digest.clone()));
            };
            return restorer.read(self, blob, range).await;
        };
        let read = self.read_named(object, range).await;
        read.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StoreError::Lost(blob.digest.clone()),
            _ => unreadable(object, source),
        })
    }

    /// Whether a blob's object is there and has as many bytes as its record says; of a blob that is not intact, whether this is so of its
    /// recipe and all packs that it needs. The bytes are not read.
    pub async fn has_object(&self, blob: &Blob) -> bool {
        self.sound_object(blob).await.is_some()
    }

    /// An address at which a client may read a blob for a while, without this server; `None` if the object store has none, or the blob is
    /// not intact.
    ///
    /// # Errors
    /// If the object store has no valid credentials.
    pub async fn signed_address(&self, blob: &Blob, lasting: Duration) -> Result<Option<String>> {
        let Some(object) = blob.object.as_deref().and_then(main_key) else {
            return Ok(None);
        };
        let signed = self.inner.objects.signed_address(object, lasting).await;
        signed.map_err(|source| unreadable(object, source))
    }

    /// Gives `to` a blob that it has already, or that `from` has. The caller has checked the client's right to read `from`. `None`:
    /// the client has to upload it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn mount(
        &self,
        to: &RepositoryName,
        digest: &Digest,
        from: Option<&RepositoryName>,
    ) -> Result<Option<Blob>> {
        let from: Vec<RepositoryName> = from.into_iter().cloned().collect();
        self.mount_from_any(to, digest, &from).await
    }

    /// The same from whichever of several repositories has it, all of which the client may read.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn mount_from_any(
        &self,
        to: &RepositoryName,
        digest: &Digest,
        from: &[RepositoryName],
    ) -> Result<Option<Blob>> {
        let (to, digest, from) = (to.clone(), digest.clone(), from.to_vec());
        self.write_records("mount a blob", move |tx| {
            for name in std::iter::once(&to).chain(&from) {
                let source = repositories::find(tx, name)?;
                let found = source.map_or(Ok(None), |id| blobs::of_repository(tx, id, &digest))?;
                if let Some(found) = found {
                    let id = repositories::find_or_make(tx, &to, now())?;
                    blobs::link(tx, id, &digest, now())?;
                    return Ok(Some(found.blob));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Repositories that have a blob, `n` at most, in the order of their names. Which of them a client may read is its caller's to say.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn repositories_with(&self, digest: &Digest, n: usize) -> Result<Vec<RepositoryName>> {
        let digest = digest.clone();
        self.read_records("find who has a blob", move |tx| {
            repositories::with_blob(tx, &digest, n)
        })
        .await
    }
}

fn unreadable(object: &str, source: io::Error) -> StoreError {
    StoreError::Object {
        doing: "read a blob",
        key: object.to_owned(),
        source,
    }
}
