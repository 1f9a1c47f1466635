//! Finds files by their place in a layer's data space.

use std::collections::HashMap;
use std::ops::Range;

use xebec_cache::store::{LayerKey, Store};
use xebec_format::layer::{EntryKind, LayerIndex};
use xebec_protocol::explain::WaitReport;

/// Finds files by their place in a layer's data space. Indexes are decoded as they are needed and go with it.
pub(super) struct Files<'a> {
    store: &'a Store,
    indexes: HashMap<LayerKey, Option<LayerIndex>>,
}

impl<'a> Files<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self {
            store,
            indexes: HashMap::new(),
        }
    }

    /// The file that has bytes in `range`, by its path in the image.
    fn find(&mut self, key: LayerKey, range: &Range<u64>) -> Option<String> {
        let store = self.store;
        let index = self.indexes.entry(key).or_insert_with(|| {
            let bytes = store.index_bytes(key).ok()?;
            LayerIndex::decode(&bytes).ok()
        });
        let is_there = |kind: &EntryKind| match kind {
            EntryKind::File { extents, .. } => extents.iter().any(|extent| {
                extent.data_offset < range.end && range.start < extent.data_offset + extent.length
            }),
            _ => false,
        };
        let entry = index
            .as_ref()?
            .entries
            .iter()
            .find(|entry| is_there(&entry.kind))?;
        Some(entry.path.to_string())
    }

    /// Names the file of a wait, if it has no name yet.
    pub(super) fn name(&mut self, wait: &mut WaitReport) {
        if let (None, Some(layer), Some(index)) = (&wait.file, wait.layer, wait.index) {
            let range = wait.offset..wait.offset.saturating_add(wait.count);
            wait.file = self.find(LayerKey { layer, index }, &range);
        }
    }
}
