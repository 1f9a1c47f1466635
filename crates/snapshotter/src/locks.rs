//! One operation at a time on one key; on different keys as many as come.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by key. A key that nobody holds or waits for takes no room.
#[derive(Debug, Default)]
pub(crate) struct KeyLocks {
    locks: Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>,
}

/// Holds a key.
pub(crate) struct KeyGuard {
    key: String,
    guard: Option<OwnedMutexGuard<()>>,
    locks: Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>,
}

impl KeyLocks {
    /// Waits until nobody else holds the key.
    pub(crate) async fn lock(&self, key: &str) -> KeyGuard {
        let lock = {
            let mut locks = self.locks.lock();
            locks.entry(key.to_owned()).or_default().clone()
        };
        // Made first, so that a caller that gives up waiting leaves nothing in the table.
        let mut held = KeyGuard {
            key: key.to_owned(),
            guard: None,
            locks: self.locks.clone(),
        };
        held.guard = Some(lock.lock_owned().await);
        held
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.locks.lock().len()
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        self.guard = None;
        // The table's own, and one for each caller that waits.
        if locks
            .get(&self.key)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_for_a_key() {
        let locks = Arc::new(KeyLocks::default());
        let first = locks.lock("a").await;
        let other = locks.lock("b").await;
        let waits = tokio::spawn({
            let locks = locks.clone();
            async move {
                let _second = locks.lock("a").await;
                locks.len()
            }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(first);
        assert_eq!(waits.await.ok(), Some(2));
        drop(other);
        assert_eq!(locks.len(), 0);
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_leaves_nothing() {
        let locks = KeyLocks::default();
        let first = locks.lock("a").await;
        {
            let waits = locks.lock("a");
            tokio::pin!(waits);
            let ready = tokio::time::timeout(std::time::Duration::ZERO, &mut waits).await;
            assert!(ready.is_err());
        }
        drop(first);
        assert_eq!(locks.len(), 0);
    }
}
