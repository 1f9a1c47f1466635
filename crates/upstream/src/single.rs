//! One request at a time for each question: callers that ask the same meanwhile wait for its answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::UpstreamError;

type Answer<V> = Result<V, UpstreamError>;
type Waiting<V> = watch::Receiver<Option<Answer<V>>>;

/// See the module.
pub(super) struct Single<K, V> {
    asked: Arc<Mutex<HashMap<K, Waiting<V>>>>,
}

impl<K, V> Default for Single<K, V> {
    fn default() -> Self {
        Self {
            asked: Arc::default(),
        }
    }
}

impl<K, V> Single<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// The answer to the question `key`, which `ask` gets if nobody asks already. It goes on if the caller goes away.
    pub(super) async fn answer<F>(&self, key: K, ask: impl FnOnce() -> F) -> Answer<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let mut waiting = self.join(key, ask);
        let lost = || UpstreamError::Host {
            doing: "ask an upstream",
            reason: "the task that asked ended early".to_owned(),
        };
        let answer = waiting.wait_for(Option::is_some).await.map_err(|_| lost())?;
        answer.clone().unwrap_or_else(|| Err(lost()))
    }

    fn join<F>(&self, key: K, ask: impl FnOnce() -> F) -> Waiting<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let mut asked = self.asked.lock();
        if let Some(waiting) = asked.get(&key).filter(|waiting| waiting.has_changed().is_ok()) {
            return waiting.clone();
        }
        let (told, waiting) = watch::channel(None);
        asked.insert(key.clone(), waiting.clone());
        let (asking, all) = (ask(), self.asked.clone());
        tokio::spawn(async move {
            let answer = asking.await;
            // A caller that comes after this asks again.
            all.lock().remove(&key);
            let _ = told.send(Some(answer));
        });
        waiting
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_ask_once_and_the_next_asks_again() {
        let single = Single::<u32, u32>::default();
        let asked = Arc::new(AtomicU32::new(0));
        let ask = || {
            let asked = asked.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(asked.fetch_add(1, Ordering::Relaxed) + 1)
            }
        };
        let answers = join_all((0..300).map(|_| single.answer(7, ask))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == 1));
        assert_eq!(single.answer(7, ask).await.unwrap(), 2);
        assert!(single.asked.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_question_outlives_who_asked() {
        let single = Single::<u32, u32>::default();
        let slow = || async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(1)
        };
        let early = tokio::time::timeout(Duration::from_secs(1), single.answer(7, slow)).await;
        assert!(early.is_err());
        let other = || async { Ok(2) };
        assert_eq!(single.answer(7, other).await.unwrap(), 1);
    }
}
