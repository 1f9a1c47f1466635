//! How much may be stored under a prefix of repositories' names.
//!
//! A push beyond the limit is refused before its bytes come if it declares its length, and else while they come. Bytes that are under way
//! count too, so that many pushes at once cannot each find the same room. Pushes do not wait for each other.
//!
//! To add up what is stored takes the longer the more there is. So a sum is good for a while, in which all that has come is added to it;
//! that is too much where it was here already or came to nothing. Before something is refused, it is added up again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use xebec_settings::size;

/// `[[quota]]`: a limit on the distinct blobs and manifests of all repositories below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The leading components of the repositories' names; the empty one is all of them.
    pub prefix: String,
    /// The limit, in bytes.
    #[serde(deserialize_with = "size::bytes")]
    pub limit: u64,
}

/// More than a quota allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the repositories below {prefix:?} may hold {limit} bytes, {used} are used or on their way, and {wanted} more were to come; \
     delete something, or raise the limit ([[quota]])"
)]
pub struct QuotaExceeded {
    /// Below which prefix.
    pub prefix: String,
    /// The limit.
    pub limit: u64,
    /// The bytes that are stored or on their way.
    pub used: u64,
    /// The bytes that the push would have added.
    pub wanted: u64,
}

impl Quota {
    /// Whether the quota counts for a repository. A prefix is whole components: `team` has `team/app` below it, not `teams`.
    pub fn covers(&self, repository: &str) -> bool {
        let prefix = self.prefix.trim_end_matches('/');
        match repository.strip_prefix(prefix) {
            Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// A sum is good for so long, or for so many times as long as it took, so that a large store is not added up all the time.
const FRESH: Duration = Duration::from_secs(1);
const FRESH_TIMES: u32 = 20;
/// One that would refuse something is made again before, unless the last one ended less than so many times as long ago as it took.
const PAUSE_TIMES: u32 = 10;

/// All quotas, what is stored below their prefixes by the last sum, what has come since, and what is on its way.
#[derive(Debug, Clone, Default)]
pub struct Quotas {
    quotas: Arc<Vec<Quota>>,
    /// By the quota's place in the list.
    counts: Arc<Mutex<Vec<Count>>>,
}

#[derive(Debug, Clone, Default)]
struct Count {
    /// On its way.
    coming: u64,
    /// All that was on its way once, and is recorded now or came to nothing.
    came: u64,
    sum: Option<Sum>,
    /// How many sums were made.
    sums: u64,
}

#[derive(Debug, Clone)]
struct Sum {
    bytes: u64,
    /// The bytes that had come when the sum was begun: all of them are in the sum, if they were recorded.
    came: u64,
    begun: Instant,
    took: Duration,
}

impl Count {
    /// Too much at worst: what came since the sum may be in it, or have come to nothing.
    fn used(&self) -> u64 {
        let sum = self.sum.as_ref();
        let since = self.came.saturating_sub(sum.map_or(0, |sum| sum.came));
        sum.map_or(0, |sum| sum.bytes)
            .saturating_add(since)
            .saturating_add(self.coming)
    }
}

/// A quota below whose prefix the caller adds up what is stored, and tells by [`Quotas::added_up`].
#[derive(Debug)]
pub struct Due {
    /// Below which prefix.
    pub prefix: String,
    /// Not before this time is over.
    pub wait: Duration,
    place: usize,
    came: u64,
    begun: Instant,
}

impl Quotas {
    /// With these.
    pub fn new(quotas: Vec<Quota>) -> Self {
        let counts = vec![Count::default(); quotas.len()];
        Self {
            quotas: Arc::new(quotas),
            counts: Arc::new(Mutex::new(counts)),
        }
    }

    /// Whether any counts for a repository.
    pub fn cover(&self, repository: &str) -> bool {
        self.of(repository).next().is_some()
    }

    fn of<'a>(&'a self, repository: &str) -> impl Iterator<Item = (usize, &'a Quota)> {
        let all = self.quotas.iter().enumerate();
        all.filter(move |(_, quota)| quota.covers(repository))
    }

    /// Those whose sum is too old to let something in for a repository; with `since`, those whose sum was begun before that.
    pub fn due(&self, repository: &str, since: Option<Instant>) -> Vec<Due> {
        let counts = self.counts.lock();
        let due = self.of(repository).filter_map(|(place, quota)| {
            let count = counts.get(place)?;
            let wait = match &count.sum {
                None => Duration::ZERO,
                Some(sum) => {
                    let age = sum.begun.elapsed();
                    let is_due = match since {
                        Some(since) => sum.begun < since,
                        None => age > FRESH.max(sum.took * FRESH_TIMES),
                    };
                    is_due.then(|| (sum.took * (PAUSE_TIMES + 1)).saturating_sub(age))?
                }
            };
            Some(Due {
                prefix: quota.prefix.clone(),
                wait,
                place,
                came: count.came,
                begun: Instant::now(),
            })
        });
        due.collect()
    }

    /// Notes a sum that was begun right after [`Quotas::due`] asked for it.
    pub fn added_up(&self, due: &Due, bytes: u64) {
        if let Some(count) = self.counts.lock().get_mut(due.place) {
            count.sums += 1;
            count.sum = Some(Sum {
                bytes,
                came: due.came,
                begun: due.begun,
                took: due.begun.elapsed(),
            });
        }
    }

    /// Each quota, with the bytes that are used of it by the last sum and what has come since; nothing before the first push.
    pub fn used(&self) -> Vec<(&Quota, u64)> {
        let counts = self.counts.lock();
        let quotas = self.quotas.iter().zip(counts.iter());
        quotas
            .filter(|(_, count)| count.sum.is_some())
            .map(|(quota, count)| (quota, count.used()))
            .collect()
    }

    /// How many sums were made.
    pub fn sums(&self) -> u64 {
        self.counts.lock().iter().map(|count| count.sums).sum()
    }

    /// Whether so little is left that what came since the last sum decides how much more may come.
    pub fn is_close(&self, repository: &str) -> bool {
        let counts = self.counts.lock();
        self.of(repository).any(|(place, quota)| {
            let left = |count: &Count| quota.limit.saturating_sub(count.used());
            counts
                .get(place)
                .is_some_and(|count| left(count) < quota.limit / 10)
        })
    }

    /// Makes room for `bytes` that are to come for a repository, if there is room. The room is held until the answer is dropped, which is
    /// when the bytes are recorded, or came to nothing.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub fn admit(&self, repository: &str, bytes: u64) -> Result<Reservation, QuotaExceeded> {
        let mut reservation = Reservation {
            quotas: self.clone(),
            places: self.of(repository).map(|(place, _)| place).collect(),
            held: 0,
        };
        reservation.grow(bytes)?;
        Ok(reservation)
    }
}

/// Room for bytes that are on their way.
#[derive(Debug)]
pub struct Reservation {
    quotas: Quotas,
    places: Vec<usize>,
    held: u64,
}

impl Reservation {
    /// Makes room for more, when more comes than was said.
    ///
    /// # Errors
    /// [`QuotaExceeded`]; what was held before is held on.
    pub fn grow(&mut self, bytes: u64) -> Result<(), QuotaExceeded> {
        let mut counts = self.quotas.counts.lock();
        for place in &self.places {
            let (Some(quota), Some(count)) = (self.quotas.quotas.get(*place), counts.get(*place)) else {
                continue;
            };
            let used = count.used();
            // A push that needs no room is let through, even if the limit was lowered below the bytes that are there.
            if bytes > 0 && used.saturating_add(bytes) > quota.limit {
                return Err(QuotaExceeded {
                    prefix: quota.prefix.clone(),
                    limit: quota.limit,
                    used,
                    wanted: bytes,
                });
            }
        }
        for place in &self.places {
            if let Some(count) = counts.get_mut(*place) {
                count.coming = count.coming.saturating_add(bytes);
            }
        }
        self.held = self.held.saturating_add(bytes);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut counts = self.quotas.counts.lock();
        for place in &self.places {
            if let Some(count) = counts.get_mut(*place) {
                count.coming = count.coming.saturating_sub(self.held);
                count.came = count.came.saturating_add(self.held);
            }
        }
    }
}
