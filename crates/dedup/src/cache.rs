//! Values that are made once for all who ask at the same time, and kept while there is room.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// A map of bounded weight. Of one key, one value is made at a time: others who ask wait for it. If the one who makes it gives up, the next one
/// goes on.
pub(crate) struct Cache<K, V> {
    most: u64,
    slots: Mutex<Slots<K, V>>,
}

struct Slots<K, V> {
    by_key: HashMap<K, Slot<V>>,
    weight: u64,
    /// Grows with each use.
    clock: u64,
}

struct Slot<V> {
    value: Arc<OnceCell<V>>,
    /// Of the value, once it is there.
    weight: u64,
    used: u64,
    /// So many ask for it now.
    asking: usize,
}

/// How often values were there, were waited for, or had to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// The value was there.
    pub hit: u64,
    /// Somebody made it already.
    pub waited: u64,
    /// It had to be made.
    pub missed: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    /// One for values that weigh so much together.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            slots: Mutex::new(Slots {
                by_key: HashMap::new(),
                weight: 0,
                clock: 0,
            }),
        }
    }

    /// The value of a key, which `make` makes with its weight if nobody has. A failure is that of whoever asked; the next one tries again.
    pub(crate) async fn get<E>(
        &self,
        key: &K,
        hits: &Mutex<Hits>,
        make: impl Future<Output = Result<(V, u64), E>>,
    ) -> Result<V, E> {
        let (asking, is_known) = self.ask(key);
        let cell = &asking.cell;
        if let Some(value) = cell.get() {
            hits.lock().hit += 1;
            return Ok(value.clone());
        }
        let mut weight = None;
        let made = cell.get_or_try_init(|| async {
            let (value, weighs) = make.await?;
            weight = Some(weighs);
            Ok(value)
        });
        let made = made.await.cloned();
        match weight {
            Some(weight) => {
                hits.lock().missed += 1;
                self.weigh(key, cell, weight);
            }
            None if made.is_err() => {}
            None if is_known => hits.lock().waited += 1,
            None => hits.lock().hit += 1,
        }
        made
    }

    /// Whether the value of a key is here now.
    pub(crate) fn has(&self, key: &K) -> bool {
        let slots = self.slots.lock();
        slots.by_key.get(key).is_some_and(|slot| slot.value.initialized())
    }

    /// The slot of a key, and whether somebody has asked for it before.
    fn ask<'a>(&'a self, key: &'a K) -> (Asking<'a, K, V>, bool) {
        let mut slots = self.slots.lock();
        slots.clock += 1;
        let used = slots.clock;
        let is_known = slots.by_key.contains_key(key);
        let slot = slots.by_key.entry(key.clone()).or_insert_with(|| Slot {
            value: Arc::new(OnceCell::new()),
            weight: 0,
            used,
            asking: 0,
        });
        slot.used = used;
        slot.asking += 1;
        let asking = Asking {
            cache: self,
            key,
            cell: slot.value.clone(),
        };
        (asking, is_known)
    }

    /// Notes the weight of a value that has just come, and lets go what was used longest ago.
    fn weigh(&self, key: &K, cell: &Arc<OnceCell<V>>, weight: u64) {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.by_key.get_mut(key) else {
            return;
        };
        if !Arc::ptr_eq(&slot.value, cell) {
            return;
        }
        let old = std::mem::replace(&mut slot.weight, weight);
        slots.weight = slots.weight - old + weight;
        if slots.weight <= self.most {
            return;
        }
        // All at once down to a bit less: looking for the oldest costs as much as there are.
        let mut by_use: Vec<(u64, K)> = slots
            .by_key
            .iter()
            .filter(|(_, slot)| slot.weight > 0)
            .map(|(key, slot)| (slot.used, key.clone()))
            .collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        let wanted = self.most - self.most / 8;
        for (_, key) in by_use {
            if slots.weight <= wanted {
                break;
            }
            if let Some(slot) = slots.by_key.remove(&key) {
                slots.weight -= slot.weight;
            }
        }
    }

    /// One asks no more. A key without a value has no slot, unless somebody else asks.
    fn forget_empty(&self, key: &K, cell: &Arc<OnceCell<V>>) {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.by_key.get_mut(key) else {
            return;
        };
        // It may have gone meanwhile, and another one have come.
        if !Arc::ptr_eq(&slot.value, cell) {
            return;
        }
        slot.asking -= 1;
        if slot.asking == 0 && !cell.initialized() {
            slots.by_key.remove(key);
        }
    }
}

/// Somebody asks for a value, until this is dropped: also if the task that asks is given up.
struct Asking<'a, K: Eq + Hash + Clone, V: Clone> {
    cache: &'a Cache<K, V>,
    key: &'a K,
    cell: Arc<OnceCell<V>>,
}

impl<K: Eq + Hash + Clone, V: Clone> Drop for Asking<'_, K, V> {
    fn drop(&mut self) {
        self.cache.forget_empty(self.key, &self.cell);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    type Numbers = Cache<u32, u32>;

    async fn get(cache: &Numbers, hits: &Mutex<Hits>, key: u32, value: Result<u32, ()>) -> Result<u32, ()> {
        cache
            .get(&key, hits, async move { value.map(|value| (value, 10)) })
            .await
    }

    #[tokio::test]
    async fn what_was_used_longest_ago_goes_first() {
        let (cache, hits) = (Numbers::new(40), Mutex::default());
        for key in 0..4 {
            assert_eq!(get(&cache, &hits, key, Ok(key)).await, Ok(key));
        }
        assert_eq!(get(&cache, &hits, 0, Err(())).await, Ok(0));
        assert_eq!(get(&cache, &hits, 4, Ok(4)).await, Ok(4));
        // Down to 35 at most: 1 and 2 have gone.
        assert_eq!(get(&cache, &hits, 0, Err(())).await, Ok(0));
        assert_eq!(get(&cache, &hits, 3, Err(())).await, Ok(3));
        assert_eq!(get(&cache, &hits, 1, Err(())).await, Err(()));
        assert_eq!(hits.lock().missed, 5);
        assert_eq!(hits.lock().hit, 3);
    }

    #[tokio::test]
    async fn a_failure_is_not_remembered() {
        let (cache, hits) = (Numbers::new(40), Mutex::default());
        assert_eq!(get(&cache, &hits, 7, Err(())).await, Err(()));
        assert!(cache.slots.lock().by_key.is_empty());
        assert_eq!(get(&cache, &hits, 7, Ok(8)).await, Ok(8));
        assert_eq!(get(&cache, &hits, 7, Ok(9)).await, Ok(8));
    }

    #[tokio::test]
    async fn one_makes_it_and_others_wait() {
        let (cache, hits) = (Arc::new(Numbers::new(40)), Arc::new(Mutex::default()));
        let (open, opened) = tokio::sync::oneshot::channel::<()>();
        let first = {
            let (cache, hits) = (cache.clone(), hits.clone());
            tokio::spawn(async move {
                let make = async move {
                    opened.await.map_err(drop)?;
                    Ok::<_, ()>((1, 10))
                };
                cache.get(&5, &hits, make).await
            })
        };
        tokio::task::yield_now().await;
        let second = {
            let (cache, hits) = (cache.clone(), hits.clone());
            tokio::spawn(async move { get(&cache, &hits, 5, Ok(2)).await })
        };
        tokio::task::yield_now().await;
        open.send(()).unwrap();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(1)));
        assert_eq!(hits.lock().waited, 1);
    }

    #[tokio::test]
    async fn whoever_waits_goes_on_when_the_first_one_gives_up() {
        let (cache, hits) = (Arc::new(Numbers::new(40)), Arc::new(Mutex::default()));
        let first = {
            let (cache, hits) = (cache.clone(), hits.clone());
            tokio::spawn(async move {
                let never = std::future::pending::<Result<(u32, u64), ()>>();
                cache.get(&5, &hits, never).await
            })
        };
        tokio::task::yield_now().await;
        let second = {
            let (cache, hits) = (cache.clone(), hits.clone());
            tokio::spawn(async move { get(&cache, &hits, 5, Ok(2)).await })
        };
        tokio::task::yield_now().await;
        first.abort();
        assert_eq!(second.await.unwrap(), Ok(2));
    }

    #[tokio::test]
    async fn nothing_is_left_of_what_nobody_waits_for() {
        let (cache, hits) = (Numbers::new(40), Mutex::default());
        {
            let never = || std::future::pending::<Result<(u32, u64), ()>>();
            let mut one = Box::pin(cache.get(&5, &hits, never()));
            let mut other = Box::pin(cache.get(&5, &hits, never()));
            assert!((&mut one).now_or_never().is_none());
            assert!((&mut other).now_or_never().is_none());
            drop(one);
            // The other one still wants it.
            assert_eq!(cache.slots.lock().by_key.len(), 1);
            drop(other);
        }
        assert!(cache.slots.lock().by_key.is_empty());
        // What has come stays, whoever waited for it no longer.
        let (open, opened) = tokio::sync::oneshot::channel::<()>();
        let make = async {
            opened.await.map_err(drop)?;
            Ok::<_, ()>((1, 10))
        };
        let mut one = Box::pin(cache.get(&5, &hits, make));
        assert!((&mut one).now_or_never().is_none());
        let mut other = Box::pin(get(&cache, &hits, 5, Ok(2)));
        assert!((&mut other).now_or_never().is_none());
        open.send(()).unwrap();
        assert_eq!(one.await, Ok(1));
        drop(other);
        assert_eq!(get(&cache, &hits, 5, Err(())).await, Ok(1));
    }
}
