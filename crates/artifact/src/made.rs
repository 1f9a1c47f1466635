//! An index as it is published: what the indexer made of a layer, compared with what the image says of that layer.

use xebec_format::digest::Digest;
use xebec_format::layer::{LayerIndex, Section};
use xebec_index::indexer::{IndexedLayer, Laziness};

use crate::artifact::{BlobRef, LayerBlobs};

/// The indexer read another layer than the image names.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the layer's {what} is {found}, but the image says {wanted}; Xebec keeps nothing of it")]
pub struct OtherLayer {
    /// Which of the two digests differs.
    pub what: &'static str,
    /// The digest that the image names.
    pub wanted: Digest,
    /// The digest of the layer that was read.
    pub found: Digest,
}

/// An index and its sections.
#[derive(Debug)]
pub struct MadeIndex {
    /// The index. It says the diff ID.
    pub index: LayerIndex,
    /// The same, as it is stored.
    pub encoded: Vec<u8>,
    /// Compressed windows; empty except for gzip.
    pub windows: Vec<u8>,
    /// The compressed frame.
    pub frame: Vec<u8>,
    /// The content digests.
    pub contents: Vec<u8>,
    /// Whether the layer can be read lazily.
    pub laziness: Laziness,
}

impl MadeIndex {
    /// The index that the indexer made of the layer with this digest and diff ID.
    ///
    /// # Errors
    /// When it read something else.
    pub fn new(indexed: IndexedLayer, layer: Digest, diff_id: Digest) -> Result<Self, OtherLayer> {
        let IndexedLayer {
            mut index,
            windows,
            frame,
            contents,
            laziness,
        } = indexed;
        check("digest", layer, index.layer)?;
        check("diff ID", diff_id, index.diff_id.unwrap_or(index.layer))?;
        index.diff_id = Some(diff_id);
        Ok(Self {
            encoded: index.encode(),
            index,
            windows,
            frame,
            contents,
            laziness,
        })
    }

    /// The sections with the names of the files that hold them in a layer's folder.
    pub fn sections(&self) -> [(&'static str, &[u8]); 3] {
        [
            ("windows", &self.windows),
            ("frame", &self.frame),
            ("contents", &self.contents),
        ]
    }

    /// The blobs that an artifact lists of it.
    pub fn blobs(&self) -> LayerBlobs {
        let index = BlobRef {
            digest: Digest::of(&self.encoded),
            size: self.encoded.len() as u64,
        };
        blobs_of(index, &self.index)
    }
}

/// The blobs that an artifact lists of an index that is stored as the blob `encoded`.
pub fn blobs_of(encoded: BlobRef, index: &LayerIndex) -> LayerBlobs {
    let blob = |section: &Option<Section>| {
        section.as_ref().map(|section| BlobRef {
            digest: section.digest,
            size: section.size,
        })
    };
    LayerBlobs {
        index: encoded,
        windows: blob(&index.windows),
        frame: blob(&index.frame),
        contents: blob(&index.contents),
    }
}

fn check(what: &'static str, wanted: Digest, found: Digest) -> Result<(), OtherLayer> {
    match wanted == found {
        true => Ok(()),
        false => Err(OtherLayer { what, wanted, found }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_index::indexer::{IndexOptions, index_layer};

    use super::*;

    #[test]
    fn only_the_layer_that_the_image_names_gives_an_index() {
        let tar = [0; 1024];
        let digest = Digest::of(&tar);
        let other = Digest::of(b"other");
        let made = |layer, diff_id| {
            let indexed = index_layer(&tar[..], &IndexOptions::default(), None).unwrap();
            MadeIndex::new(indexed, layer, diff_id)
        };
        assert_eq!(made(other, digest).unwrap_err().what, "digest");
        assert_eq!(made(digest, other).unwrap_err().what, "diff ID");
        let made = made(digest, digest).unwrap();
        let blobs = made.blobs();
        assert_eq!(blobs.index.digest, Digest::of(&made.encoded));
        assert_eq!(blobs.windows, None);
        assert_eq!(blobs.frame.unwrap().digest, Digest::of(&made.frame));
    }
}
