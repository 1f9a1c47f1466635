//! Work on one thing is done by one task at a time, so that a blob of two images is moved once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Turn = Arc<tokio::sync::Mutex<()>>;

/// The keys that are worked on.
pub(crate) struct Turns<K>(Mutex<HashMap<K, Turn>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash + Clone> Turns<K> {
    /// Waits until nobody else works on it. The turn ends when what is returned is dropped.
    pub(crate) async fn take(&self, key: &K) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            // Those that nobody waits for are forgotten, before there are many.
            if turns.len() >= 1024 {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            turns.entry(key.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
