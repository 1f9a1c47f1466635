//! How many requests a client may send in a second.
//!
//! Each client has a bucket that holds so many requests at most (the *burst*) and fills at so many a second (the *rate*). A request takes
//! one out; there is none to take from an empty bucket. A client that has sent nothing for as long as its bucket takes to fill is as one
//! that was never seen, and is forgotten. At most [`MOST_CLIENTS`] are remembered, whatever comes.
//!
//! Of a bucket only the moment is kept at which it will be full. Time comes from the caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;

/// So many clients are remembered. If more than half as many come while a bucket fills, clients are forgotten early, those first that
/// have sent nothing for the longest time. They begin with full buckets again. So the memory is bounded, and a client that has just come
/// is never refused for what others do.
pub const MOST_CLIENTS: usize = 100_000;

/// Without a burst of its own, a bucket holds what comes in so many seconds.
const USUAL_SECONDS: u32 = 10;

const SECOND: u64 = 1_000_000_000;

/// How fast requests may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds after which there is one more.
    each: u64,
    /// Nanoseconds in which an empty bucket fills.
    fills: u64,
}

impl Rate {
    /// So many a second, and so many at once; of these, 0 stands for as many as come in ten seconds. None if no rate is given: then there
    /// is no limit.
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second)?;
        let burst = match burst {
            0 => per_second.get().saturating_mul(USUAL_SECONDS),
            burst => burst,
        };
        let each = (SECOND / u64::from(per_second.get())).max(1);
        let fills = each.saturating_mul(u64::from(burst));
        Some(Self { each, fills })
    }
}

/// The buckets of all clients.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    held: Mutex<Held<K>>,
}

/// When each client's bucket will be full, in nanoseconds.
#[derive(Debug)]
struct Held<K> {
    /// Of those that have taken something since `turned`.
    recent: HashMap<K, u64>,
    /// Of those that have taken something before, and nothing since.
    earlier: HashMap<K, u64>,
    turned: u64,
}

impl<K: Eq + Hash> Buckets<K> {
    /// All full.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            held: Mutex::new(Held {
                recent: HashMap::new(),
                earlier: HashMap::new(),
                turned: 0,
            }),
        }
    }

    /// Takes a request out of a client's bucket, `now` since some moment that is always the same.
    ///
    /// # Errors
    /// How long it takes until there is one, if there is none.
    pub fn take(&self, client: K, now: Duration) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut held = self.held.lock();
        held.forget(now, self.rate.fills);
        let known = held.recent.get(&client).or_else(|| held.earlier.get(&client));
        let full_at = known.copied().unwrap_or(now).max(now);
        let full_at = full_at.saturating_add(self.rate.each);
        let most = now.saturating_add(self.rate.fills);
        if full_at > most {
            return Err(Duration::from_nanos(full_at - most));
        }
        held.earlier.remove(&client);
        held.recent.insert(client, full_at);
        Ok(())
    }

    /// How many clients are remembered.
    pub fn remembered(&self) -> usize {
        let held = self.held.lock();
        held.recent.len() + held.earlier.len()
    }
}

impl<K> Held<K> {
    /// A client that has taken nothing for as long as a bucket takes to fill has a full one.
    fn forget(&mut self, now: u64, fills: u64) {
        let is_time = now.saturating_sub(self.turned) >= fills;
        if is_time || self.recent.len() >= MOST_CLIENTS / 2 {
            self.earlier = std::mem::take(&mut self.recent);
            self.turned = now;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_burst_passes_and_then_as_many_as_come_in_a_second() {
        let buckets = Buckets::new(Rate::new(10, 3).unwrap());
        for _ in 0..3 {
            assert_eq!(buckets.take("a", at(0)), Ok(()));
        }
        assert_eq!(buckets.take("a", at(0)), Err(at(100)));
        assert_eq!(buckets.take("a", at(60)), Err(at(40)));
        assert_eq!(buckets.take("b", at(60)), Ok(()), "others are free");
        assert_eq!(buckets.take("a", at(100)), Ok(()));
        assert_eq!(buckets.take("a", at(100)), Err(at(100)));
    }

    #[test]
    fn without_a_rate_there_is_no_limit_and_without_a_burst_a_usual_one() {
        assert_eq!(Rate::new(0, 5), None);
        assert_eq!(Rate::new(7, 0), Rate::new(7, 70));
        for (rate, burst) in [(u32::MAX, u32::MAX), (u32::MAX, 0), (1, u32::MAX)] {
            let buckets = Buckets::new(Rate::new(rate, burst).unwrap());
            assert_eq!(buckets.take("a", Duration::MAX), Ok(()));
        }
    }

    #[test]
    fn full_buckets_are_forgotten_and_buckets_are_bounded() {
        let buckets = Buckets::new(Rate::new(1000, 10).unwrap());
        for client in 0..1000 {
            buckets.take(client, at(0)).unwrap();
        }
        assert_eq!(buckets.remembered(), 1000);
        buckets.take(0, at(10)).unwrap();
        buckets.take(0, at(20)).unwrap();
        assert_eq!(buckets.remembered(), 1);

        let slow = Buckets::new(Rate::new(1, 1).unwrap());
        for client in 0..2 * MOST_CLIENTS {
            assert_eq!(slow.take(client, at(1)), Ok(()));
            assert!(slow.remembered() <= MOST_CLIENTS);
        }
        // Those that came last are not those that are forgotten.
        assert!(slow.take(2 * MOST_CLIENTS - 1, at(1)).is_err());
    }

    /// A bucket as one draws it: what is in it, in parts of a request, and when it was looked at.
    struct Model {
        level: u64,
        at: u64,
    }

    proptest! {
        /// As if each client's bucket were kept for ever, and looked at one by one.
        #[test]
        fn buckets_are_those_of_the_model(
            per_second in prop::sample::select(vec![1_u32, 2, 4, 5, 10, 100, 1000]),
            burst in 1..20_u32,
            steps in prop::collection::vec((0..4_usize, prop_oneof![Just(0), 0..5_u64, 0..400_u64, 0..30_000_u64]), 1..300),
        ) {
            let each = 1_000_000 / u64::from(per_second);
            let whole = each * u64::from(burst);
            let buckets = Buckets::new(Rate::new(per_second, burst).unwrap());
            let mut models: Vec<Model> = (0..4).map(|_| Model { level: whole, at: 0 }).collect();
            let mut now = 0;
            for (client, pause) in steps {
                now += pause * 1000;
                let model = &mut models[client];
                model.level = whole.min(model.level + (now - model.at));
                model.at = now;
                let expected = match model.level.checked_sub(each) {
                    Some(rest) => {
                        model.level = rest;
                        Ok(())
                    }
                    None => Err(Duration::from_micros(each - model.level)),
                };
                prop_assert_eq!(buckets.take(client, Duration::from_micros(now)), expected);
            }
            prop_assert!(buckets.remembered() <= 4);
        }
    }
}
