//! The outcome for each layer is noted in the store, so that an image shares the indexes of its layers with other images.

use serde::{Deserialize, Serialize};
use xebec_artifact::artifact::{BlobRef, LayerBlobs};
use xebec_format::digest::Digest;
use xebec_store::{RepositoryName, Store, StoreError};

/// A blob of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    digest: Digest,
    size: u64,
}

/// The note of an index that was made: JSON, a field is never changed in its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    diff_id: Digest,
    index: Part,
    windows: Option<Part>,
    frame: Option<Part>,
    contents: Option<Part>,
}

impl Note {
    pub(crate) fn new(diff_id: Digest, blobs: &LayerBlobs) -> Self {
        let part = |blob: &BlobRef| Part {
            digest: blob.digest,
            size: blob.size,
        };
        Self {
            diff_id,
            index: part(&blobs.index),
            windows: blobs.windows.as_ref().map(part),
            frame: blobs.frame.as_ref().map(part),
            contents: blobs.contents.as_ref().map(part),
        }
    }

    /// Reads a note; `None` of one that this program does not understand: then the layer is indexed again.
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn is_of(&self, diff_id: Digest) -> bool {
        self.diff_id == diff_id
    }

    pub(crate) fn blobs(&self) -> LayerBlobs {
        let blob = |part: &Part| BlobRef {
            digest: part.digest,
            size: part.size,
        };
        LayerBlobs {
            index: blob(&self.index),
            windows: self.windows.as_ref().map(blob),
            frame: self.frame.as_ref().map(blob),
            contents: self.contents.as_ref().map(blob),
        }
    }

    /// Gives the repository all blobs of the index; `false` if one is gone. A repository that has the layer may have its index: the index
    /// says nothing that the layer does not.
    pub(crate) async fn give(&self, store: &Store, repository: &RepositoryName) -> Result<bool, StoreError> {
        for (_, blob) in self.blobs().parts() {
            if store
                .adopt_blob(repository, &crate::publish::here(blob.digest))
                .await?
                .is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
