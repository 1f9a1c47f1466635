//! Blobs whose objects are gone though their records are here, as after a fault of a disk, or a restore of one without the other.
//!
//! Such a blob is absent from the moment at which somebody notices, as after a scrub: a client that asks for it is told so and sends it,
//! and a registry that has it from an upstream fetches it. A scrub that finds the object again takes the mark away.

use std::io;

use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::records::blobs;
use crate::store::{Store, now};

impl Store {
    /// Whether a blob's object is there and has as many bytes as its record says, which are not read. If not, the blob is absent from now
    /// on.
    ///
    /// # Errors
    /// If the object store does not say, or the database fails.
    pub async fn is_whole(&self, blob: &Blob) -> Result<bool> {
        let size = self.inner.objects.size(&blob.object).await;
        let size = size.map_err(|source| self.unreadable(blob, source))?;
        if size == Some(blob.size) {
            return Ok(true);
        }
        Ok(!self.note_lost(blob).await?)
    }

    /// Notes that a blob is absent since its object is not there; `false` if it has another object meanwhile, or is gone.
    pub(crate) async fn note_lost(&self, blob: &Blob) -> Result<bool> {
        let noted = blob.clone();
        let is_current = self
            .write_records("note that an object is gone", move |tx| {
                blobs::note_scrub(tx, &noted, false, now())
            })
            .await?;
        if is_current {
            tracing::error!(
                "{}: its object {} is gone or cut; it counts as absent until it is fetched or pushed again",
                blob.digest,
                blob.object
            );
        }
        Ok(is_current)
    }

    pub(crate) fn unreadable(&self, blob: &Blob, source: io::Error) -> StoreError {
        StoreError::Object {
            doing: "read a blob",
            key: blob.object.clone(),
            source,
        }
    }
}
