//! What a host holds, at a glance: for questions about many layers at once, which must not cost as much as using each of them.

use std::ops::Range;

use xebec_format::PAGE_SIZE;

use super::{Store, StoreError};
use crate::key::LayerKey;
use crate::presence::Presence;

impl Store {
    /// All layers that are there, the one that was used last first.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn recently_used(&self) -> Result<Vec<LayerKey>, StoreError> {
        let mut keys = self.list()?;
        keys.sort_by_cached_key(|key| std::cmp::Reverse(self.last_used(*key)));
        Ok(keys)
    }

    /// Whether any layer is there.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn holds_any(&self) -> Result<bool, StoreError> {
        let layers = self.digests_in(&self.directory)?;
        Ok(layers.into_iter().any(|layer| !self.indexes_of(layer).is_empty()))
    }

    /// The pages of a layer that are there, as its bitmaps say: the index, which may be large, is not read. Pages that another process
    /// removes just now may be among them. `None` if it cannot be told.
    pub fn held_pages(&self, key: LayerKey) -> Option<Vec<Range<u64>>> {
        let data = std::fs::metadata(self.data_path(key)).ok()?;
        let pages = data.len() / PAGE_SIZE;
        let presence = Presence::look(self.disk.clone(), &self.folder(key), pages, self.boot);
        Some(presence.ok()?.held(0..pages))
    }
}
