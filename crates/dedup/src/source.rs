//! Contents of a layer that was taken apart, one by one: another layer may be put together of them.

use std::sync::Arc;

use bytes::Bytes;
use xebec_recipe::ChunkId;
use xebec_store::{Blob, Store, StoreError};

use crate::opened::Opened;
use crate::restorer::Restorer;

/// A layer of which contents are read. Its packs may be put together anew meanwhile: then a content can no longer be read.
pub struct Source {
    pub(crate) restorer: Restorer,
    pub(crate) store: Store,
    pub(crate) opened: Arc<Opened>,
}

impl Restorer {
    /// The contents of a blob, if it was taken apart.
    ///
    /// # Errors
    /// If its recipe cannot be read.
    pub async fn source(&self, store: &Store, blob: &Blob) -> Result<Option<Source>, StoreError> {
        let opened = self.open_recipe(store, blob).await?;
        Ok(opened.map(|opened| Source {
            restorer: self.clone(),
            store: store.clone(),
            opened,
        }))
    }
}

impl Source {
    /// The memory that it takes, about.
    pub fn weight(&self) -> u64 {
        self.opened.weight()
    }

    /// How many bytes a content has, if the layer has it.
    pub fn length(&self, id: &ChunkId) -> Option<usize> {
        let (_, place) = self.opened.chunks.get(id)?;
        Some(place.within.len())
    }

    /// Reads a content.
    ///
    /// # Errors
    /// If the layer does not have it, or the pack cannot be read or is damaged.
    pub async fn read(&self, id: &ChunkId) -> Result<Bytes, StoreError> {
        self.restorer.read_content(&self.store, &self.opened, id).await
    }
}
