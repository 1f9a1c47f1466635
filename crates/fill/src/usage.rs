//! Which layers requests under way rely on, and which are just being evicted: the two exclude each other.
//!
//! A request reserves the layers of its image once it knows them, and holds them until a view does. An eviction takes
//! a layer only if no request reserved it. A request that wants to reserve a layer during its eviction waits, which takes as long
//! as a punch or a rename.
//!
//! Work in the background that looks at a layer for a moment keeps nobody from evicting it: the eviction waits for that moment.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use xebec_cache::store::LayerKey;

/// The table of reservations and evictions.
#[derive(Default)]
pub struct Usage {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    reserved: HashMap<LayerKey, usize>,
    looked_at: HashMap<LayerKey, usize>,
    going: HashSet<LayerKey>,
}

/// One less of a key.
fn release(counts: &mut HashMap<LayerKey, usize>, key: LayerKey) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

impl Usage {
    /// Reserves layers, when those of them that are going have gone. They may not be there then. Blocks.
    pub fn reserve(self: &Arc<Self>, keys: impl IntoIterator<Item = LayerKey>) -> Reservation {
        let keys: Vec<LayerKey> = keys.into_iter().collect();
        let mut table = self.table.lock();
        while keys.iter().any(|key| table.going.contains(key)) {
            self.changed.wait(&mut table);
        }
        for key in &keys {
            *table.reserved.entry(*key).or_default() += 1;
        }
        Reservation {
            usage: self.clone(),
            keys,
        }
    }

    /// Keeps a layer for a moment, when it has gone if it is going. An eviction waits until it is dropped, and nobody counts the layer
    /// as in use. Blocks.
    pub fn look_at(self: &Arc<Self>, key: LayerKey) -> Look {
        let mut table = self.table.lock();
        while table.going.contains(&key) {
            self.changed.wait(&mut table);
        }
        *table.looked_at.entry(key).or_default() += 1;
        Look {
            usage: self.clone(),
            key,
        }
    }

    /// Marks a layer as going; `None` when it is reserved, or going already. Blocks while somebody looks at it.
    pub fn evict(self: &Arc<Self>, key: LayerKey) -> Option<Going> {
        let mut table = self.table.lock();
        while table.looked_at.contains_key(&key) {
            self.changed.wait(&mut table);
        }
        if table.reserved.contains_key(&key) || !table.going.insert(key) {
            return None;
        }
        Some(Going {
            usage: self.clone(),
            key,
        })
    }

    /// Whether a request relies on the layer.
    pub fn is_reserved(&self, key: LayerKey) -> bool {
        self.table.lock().reserved.contains_key(&key)
    }
}

/// Layers that stay as long as this is held.
pub struct Reservation {
    usage: Arc<Usage>,
    keys: Vec<LayerKey>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.usage.table.lock();
        for key in &self.keys {
            release(&mut table.reserved, *key);
        }
    }
}

/// A layer that stays as long as this is held, which is for a moment.
pub struct Look {
    usage: Arc<Usage>,
    key: LayerKey,
}

impl Drop for Look {
    fn drop(&mut self) {
        release(&mut self.usage.table.lock().looked_at, self.key);
        self.usage.changed.notify_all();
    }
}

/// A layer that nobody can begin to use as long as this is held.
pub struct Going {
    usage: Arc<Usage>,
    key: LayerKey,
}

impl Drop for Going {
    fn drop(&mut self) {
        self.usage.table.lock().going.remove(&self.key);
        self.usage.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;

    use super::*;

    #[test]
    fn use_and_eviction_exclude_each_other() {
        let usage = Arc::new(Usage::default());
        let key = LayerKey {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
        };
        let (one, two) = (usage.reserve([key]), usage.reserve([key]));
        drop(one);
        assert!(usage.evict(key).is_none() && usage.is_reserved(key));
        drop(two);
        let going = usage.evict(key).unwrap();
        assert!(usage.evict(key).is_none());
        let waiting = std::thread::spawn({
            let usage = usage.clone();
            move || drop(usage.reserve([key]))
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished(), "reserved what was going");
        drop(going);
        waiting.join().unwrap();
    }

    #[test]
    fn a_look_at_a_layer_delays_its_eviction_and_is_no_use() {
        let usage = Arc::new(Usage::default());
        let key = LayerKey {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
        };
        let look = usage.look_at(key);
        assert!(!usage.is_reserved(key));
        let evicting = std::thread::spawn({
            let usage = usage.clone();
            move || usage.evict(key).is_some()
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!evicting.is_finished(), "evicted what somebody looks at");
        drop(look);
        assert!(evicting.join().unwrap(), "not evicted afterwards");
        assert!(usage.evict(key).is_some(), "a mark stayed");
    }
}
