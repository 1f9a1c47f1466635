//! One lock for each key, for tasks of one process: work on one thing is done by one task at a time, and a task that comes later
//! finds it done. Keys that nobody holds or waits for are forgotten.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The locks that are held or waited for.
#[derive(Debug)]
pub struct KeyedLock<K>(Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>);

/// A key is locked until this is dropped.
pub type KeyGuard = OwnedMutexGuard<()>;

impl<K> Default for KeyedLock<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash> KeyedLock<K> {
    /// Whether a task holds the key, or waits for it.
    pub fn is_taken(&self, key: &K) -> bool {
        let locks = self.0.lock();
        locks.get(key).is_some_and(|lock| lock.strong_count() > 0)
    }

    /// Waits until no other task holds the key, and takes it. Tasks get it in the order in which they asked.
    pub async fn take(&self, key: K) -> KeyGuard {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            match locks.get(&key).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(tokio::sync::Mutex::new(()));
                    locks.insert(key, Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The output of a future that need not wait.
    fn now<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_at_a_time_of_each() {
        let locks = KeyedLock::default();
        let first = now(locks.take("a")).unwrap();
        assert!(locks.is_taken(&"a"));
        let _other = now(locks.take("b")).unwrap();
        assert!(now(locks.take("a")).is_none());
        drop(first);
        assert!(!locks.is_taken(&"a"));
        drop(now(locks.take("a")).unwrap());
        drop(now(locks.take("c")).unwrap());
        assert_eq!(locks.0.lock().len(), 2, "the table drops keys that nobody holds");
    }

    #[test]
    fn a_key_that_is_waited_for_is_not_forgotten() {
        let locks = KeyedLock::default();
        let first = now(locks.take("a")).unwrap();
        let mut second = pin!(locks.take("a"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        drop(now(locks.take("b")).unwrap());
        assert!(now(locks.take("a")).is_none(), "another task came before");
        assert!(second.as_mut().poll(&mut context).is_ready());
    }
}
