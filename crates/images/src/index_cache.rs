//! Decoded indexes that are still held, as by mounted views. Another start of their image need not
//! read and decode them again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use xebec_cache::store::LayerKey;
use xebec_format::layer::LayerIndex;

/// Those that are in memory. Holds none itself.
#[derive(Debug)]
pub(super) struct IndexCache<T = LayerIndex>(Mutex<HashMap<LayerKey, Weak<T>>>);

impl<T> Default for IndexCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> IndexCache<T> {
    /// The index that a key names, if it is in memory.
    pub(super) fn get(&self, key: LayerKey) -> Option<Arc<T>> {
        self.0.lock().get(&key)?.upgrade()
    }

    /// Notes one whose bytes had the key's digest. One that is held already stays: its holder may keep it for longer.
    pub(super) fn note(&self, key: LayerKey, index: &Arc<T>) {
        let mut known = self.0.lock();
        known.retain(|_, index| index.strong_count() > 0);
        known.entry(key).or_insert_with(|| Arc::downgrade(index));
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;

    use super::*;

    #[test]
    fn an_index_is_known_as_long_as_somebody_holds_it() {
        let key = LayerKey {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
        };
        let known = IndexCache::default();
        assert!(known.get(key).is_none());
        let index = Arc::new("decoded");
        known.note(key, &index);
        assert!(known.get(key).is_some_and(|found| Arc::ptr_eq(&found, &index)));
        let again = Arc::new("decoded");
        known.note(key, &again);
        assert!(known.get(key).is_some_and(|found| Arc::ptr_eq(&found, &index)));
        drop(index);
        assert!(known.get(key).is_none());
        known.note(key, &again);
        assert!(known.get(key).is_some_and(|found| Arc::ptr_eq(&found, &again)));
    }
}
