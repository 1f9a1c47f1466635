//! Layers by their indexes, with what the indexes say of contents. All of it together is bounded.

use std::collections::{BTreeMap, HashMap};

use futures_util::StreamExt as _;
use xebec_format::digest::Digest;
use xebec_format::layer::{LayerIndex, MERGED_ENTRY, Section, SpanTable};
use xebec_prediction::files::{Files, Layer};
use xebec_store::{RepositoryName, Store, StoreError};

use crate::layer::LayerError;
use crate::publish::here;

/// Memory for the indexes of both versions and for merging them, in bytes: some 200,000 files in each.
const MOST_MEMORY: u64 = 320 << 20;

/// A layer of the new version.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) layer: Digest,
    pub(super) index: Digest,
    /// The index as it is stored.
    pub(super) encoded: Vec<u8>,
    pub(super) table: SpanTable,
}

struct Known {
    encoded: Vec<u8>,
    index: LayerIndex,
    contents: Vec<u8>,
}

/// The layers that were read, by the digests of their indexes: the versions have some in common.
pub(super) struct Layers<'a> {
    store: &'a Store,
    repository: &'a RepositoryName,
    known: HashMap<Digest, Known>,
    room: u64,
}

impl<'a> Layers<'a> {
    pub(super) fn new(store: &'a Store, repository: &'a RepositoryName) -> Self {
        Self {
            store,
            repository,
            known: HashMap::new(),
            room: MOST_MEMORY,
        }
    }

    /// The files of an image of these layers, bottom to top. `named` has the index of each.
    pub(super) async fn files(
        &mut self,
        order: &[Digest],
        named: &BTreeMap<Digest, Digest>,
    ) -> Result<Files, LayerError> {
        let mut indexes = Vec::new();
        for layer in order {
            let index = named.get(layer).copied();
            let index = index
                .ok_or_else(|| LayerError::Never(format!("no recording names an index of layer {layer}")))?;
            self.read(*layer, index).await?;
            indexes.push(index);
        }
        let layers = indexes.iter().filter_map(|index| self.known.get(index));
        let layers: Vec<Layer<'_>> = layers
            .map(|known| Layer {
                index: &known.index,
                contents: &known.contents,
            })
            .collect();
        Files::new(&layers).map_err(|error| LayerError::Never(error.to_string()))
    }

    async fn read(&mut self, layer: Digest, name: Digest) -> Result<(), LayerError> {
        if let Some(known) = self.known.get(&name) {
            is_of(layer, &known.index)?;
            // It is merged once more.
            return self.take(known.index.entries.len() as u64 * MERGED_ENTRY);
        }
        let never =
            |problem: &str| LayerError::Never(format!("the index {name} of layer {layer}: {problem}"));
        let encoded = read_blob(self.store, self.repository, name, self.room).await?;
        let encoded = encoded.ok_or_else(|| never("it is not in the repository, or too large"))?;
        self.take(encoded.len() as u64)?;
        let mut room = self.room;
        let index = LayerIndex::decode_within(&encoded, &mut |bytes| match room.checked_sub(bytes) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        });
        let index = index.map_err(|error| never(&error.to_string()))?;
        is_of(layer, &index)?;
        self.take(index.weight())?;
        let contents = match &index.contents {
            Some(Section { digest, size }) => {
                // Each digest is kept once more, with its place.
                self.take(size.saturating_mul(3))?;
                read_blob(self.store, self.repository, *digest, *size)
                    .await?
                    .unwrap_or_default()
            }
            None => Vec::new(),
        };
        let known = Known {
            encoded,
            index,
            contents,
        };
        self.known.insert(name, known);
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), LayerError> {
        let left = self.room.checked_sub(bytes);
        self.room = left.ok_or_else(|| LayerError::Never("the versions have too many files".to_owned()))?;
        Ok(())
    }

    /// These layers, without their files.
    pub(super) fn only(
        mut self,
        order: &[Digest],
        named: &BTreeMap<Digest, Digest>,
    ) -> Result<Vec<Read>, LayerError> {
        let layers = order.iter().map(|layer| {
            let index = named.get(layer).copied()?;
            let Known {
                encoded,
                index: decoded,
                ..
            } = self.known.remove(&index)?;
            let table = decoded.span_table();
            Some(Read {
                layer: *layer,
                index,
                encoded,
                table,
            })
        });
        let layers: Option<Vec<Read>> = layers.collect();
        layers.ok_or_else(|| LayerError::Never("two layers have one index".to_owned()))
    }
}

fn is_of(layer: Digest, index: &LayerIndex) -> Result<(), LayerError> {
    match index.layer == layer {
        true => Ok(()),
        false => Err(LayerError::Never(format!(
            "what is named as an index of layer {layer} is of another one"
        ))),
    }
}

/// A blob of the repository of `most` bytes at most, if it is here and has its digest.
pub(crate) async fn read_blob(
    store: &Store,
    repository: &RepositoryName,
    digest: Digest,
    most: u64,
) -> Result<Option<Vec<u8>>, LayerError> {
    let Some(blob) = store
        .peek_blob(repository, &here(digest))
        .await?
        .filter(|blob| blob.size <= most)
    else {
        return Ok(None);
    };
    let bytes = read_range(store, &blob, 0..blob.size).await?;
    Ok((Digest::of(&bytes) == digest).then_some(bytes))
}

/// A range of a blob.
pub(super) async fn read_range(
    store: &Store,
    blob: &xebec_store::Blob,
    range: std::ops::Range<u64>,
) -> Result<Vec<u8>, LayerError> {
    let stream = store.read(blob, range).await;
    let mut stream = stream.map_err(|error| match error {
        // It does not come by waiting.
        StoreError::Lost(_) | StoreError::NoRestorer(_) => LayerError::Here(error.to_string()),
        other => other.into(),
    })?;
    let mut bytes = Vec::new();
    while let Some(part) = stream.next().await {
        bytes.extend_from_slice(&part.map_err(|error| LayerError::Now(error.to_string()))?);
    }
    Ok(bytes)
}
