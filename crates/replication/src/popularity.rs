//! Counts pulls of blobs, and has the store know which are popular.
//!
//! Counts are of this process, and about: of several nodes, each counts its own. A count begins anew when its time is over, so it decays.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;
use xebec_policy::copies::Popular;
use xebec_store::{Digest, Store, StoreError};

use crate::rules::Rules;

/// So many blobs are counted at the same time. Beyond that, those are forgotten that were pulled once.
const MOST: usize = 100_000;
/// A blob that stays popular is noted so again after this part of the time.
const RENEWED: u32 = 4;

/// See the module.
pub struct Popularity {
    store: Store,
    rules: Rules,
    counts: Mutex<HashMap<Digest, Count>>,
}

#[derive(Clone, Copy)]
struct Count {
    since: Instant,
    pulls: u64,
    noted: Option<Instant>,
}

impl Popularity {
    /// By these rules.
    pub fn new(store: Store, rules: Rules) -> Self {
        Self {
            store,
            rules,
            counts: Mutex::default(),
        }
    }

    /// Counts a pull of a blob from a repository. If that makes it popular, or shows that it still is, the store learns of it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pulled(&self, repository: &str, blob: &Digest) -> Result<bool, StoreError> {
        let rules = self.rules.get();
        let Some(popular) = rules.popular(repository) else {
            return Ok(false);
        };
        let is_news = self.count(popular, blob, Instant::now());
        if is_news {
            self.store.note_popular(blob, popular.within).await?;
        }
        Ok(is_news)
    }

    /// Whether the store is to learn of it.
    fn count(&self, popular: &Popular, blob: &Digest, now: Instant) -> bool {
        let mut counts = self.counts.lock();
        if counts.len() >= MOST && !counts.contains_key(blob) {
            counts.retain(|_, count| count.pulls > 1 && now.duration_since(count.since) < popular.within);
            if counts.len() >= MOST {
                return false;
            }
        }
        let count = counts.entry(blob.clone()).or_insert(Count {
            since: now,
            pulls: 0,
            noted: None,
        });
        if now.duration_since(count.since) >= popular.within {
            (count.since, count.pulls) = (now, 0);
        }
        count.pulls += 1;
        let is_popular = count.pulls >= popular.pulls;
        let is_old = |noted: Instant| now.duration_since(noted) >= popular.within / RENEWED;
        let is_news = is_popular && count.noted.is_none_or(is_old);
        if is_news {
            count.noted = Some(now);
        }
        is_news
    }
}
