//! Content that an upstream was found to lack, for a short time: clients that ask for it again and again do not reach the upstream.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xebec_store::RepositoryName;

/// So many answers are remembered at most; content beyond that is asked for again.
const MOST: usize = 10_000;

type Key = (RepositoryName, String);

/// See the module.
pub(super) struct Absent {
    ttl: Duration,
    until: Mutex<HashMap<Key, Instant>>,
}

impl Absent {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            until: Mutex::default(),
        }
    }

    /// Remembers that a repository lacks a tag or digest.
    pub(super) fn note(&self, repository: &RepositoryName, what: &str) {
        let now = Instant::now();
        let mut until = self.until.lock();
        if until.len() >= MOST {
            until.retain(|_, end| *end > now);
        }
        if until.len() < MOST {
            until.insert((repository.clone(), what.to_owned()), now + self.ttl);
        }
    }

    /// Whether that is remembered.
    pub(super) fn has(&self, repository: &RepositoryName, what: &str) -> bool {
        let key = (repository.clone(), what.to_owned());
        let mut until = self.until.lock();
        match until.get(&key) {
            Some(end) if *end > Instant::now() => true,
            Some(_) => {
                until.remove(&key);
                false
            }
            None => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_and_has_an_end() {
        let repository: RepositoryName = "a".parse().unwrap();
        let absent = Absent::new(Duration::from_secs(60));
        absent.note(&repository, "v1");
        assert!(absent.has(&repository, "v1") && !absent.has(&repository, "v2"));
        for number in 0..2 * MOST {
            absent.note(&repository, &number.to_string());
        }
        assert_eq!(absent.until.lock().len(), MOST);
        let forgetful = Absent::new(Duration::ZERO);
        forgetful.note(&repository, "v1");
        assert!(!forgetful.has(&repository, "v1"));
        assert!(forgetful.until.lock().is_empty());
    }
}
