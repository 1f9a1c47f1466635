//! Files that are here already become blobs, without being copied: for a move from another registry.
//!
//! It is a push whose bytes need not be sent. The digest is compared first; then the upload's row is committed, then the object is made
//! durable, then one transaction makes it a blob. A process that is killed in between leaves an upload, which a collection takes.

use std::fs::File;
use std::io;

use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::name::RepositoryName;
use crate::store::Store;
use xebec_objects::{Digest, Hasher};

impl Store {
    /// Gives a repository a blob whose bytes are an open file's. The file gets one more name, among the store's objects; its other names
    /// stay as they are. Nobody may write to it from now on.
    ///
    /// # Errors
    /// If the bytes have another digest; if objects are no files, or the file is on another file system; if the database fails.
    pub async fn adopt_file(&self, repository: &RepositoryName, digest: &Digest, file: File) -> Result<Blob> {
        if self.inner.objects.directory().is_none() {
            let advice = "the store's objects are in a bucket, so that no file can become one; copy it";
            return Err(StoreError::Unsupported(advice.to_owned()));
        }
        let (file, found, size) = hash(file, digest).await?;
        let limit = self.inner.config.max_blob;
        if size > limit {
            let advice = format!("{digest} has {size} bytes, and a blob may have {limit} at most");
            return Err(StoreError::Unsupported(advice));
        }
        if found != *digest {
            let wanted = digest.clone();
            return Err(StoreError::DigestMismatch { wanted, found });
        }
        let id = self.begin_upload(repository).await?;
        let unknown = || StoreError::UnknownUpload {
            repository: repository.clone(),
            id: id.clone(),
        };
        let record = self.upload_record(repository, &id).await?.ok_or_else(unknown)?;
        if let Err(source) = self.inner.objects.link(&record.object, file).await {
            self.end_upload(repository, &id, size).await?;
            return Err(StoreError::Object {
                doing: "make an object of a file",
                key: record.object,
                source,
            });
        }
        let blob = (found, size, record.object.clone());
        let recorded = self.record_blob(repository, (&id, record.object), blob, Vec::new());
        recorded.await?.ok_or_else(unknown)
    }
}

/// Reads a file from its beginning to its end.
async fn hash(file: File, digest: &Digest) -> Result<(File, Digest, u64)> {
    let mut hasher = Hasher::new(digest.algorithm());
    let read = tokio::task::spawn_blocking(move || {
        let size = hasher.read(&file)?;
        Ok((file, hasher.finish(), size))
    });
    let read = read.await.map_err(io::Error::other).and_then(|read| read);
    read.map_err(|source: io::Error| StoreError::Object {
        doing: "read a file that is to become an object",
        key: digest.to_string(),
        source,
    })
}
