//! The address to which a registry last redirected a blob, for as long as it holds.
//!
//! Registries in clouds answer every blob request with a redirect to a presigned URL. Asking again for each
//! range would double the requests and the latency; so the URL is kept until shortly before its signature
//! ends, and dropped when the storage refuses it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::Instant;
use xebec_format::digest::Digest;

use super::reach::Reach;

/// Most URLs kept at once; a URL has up to a few KiB.
const MAX_REDIRECTS: usize = 4096;

/// A blob as one registry serves it; another repository may not give access to the same URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BlobKey {
    /// Authority of the registry or mirror.
    pub(crate) authority: String,
    /// Repository name.
    pub(crate) repository: String,
    /// The blob.
    pub(crate) digest: Digest,
}

/// Where a blob is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The URL.
    pub(crate) url: Url,
    /// How near the registry was that named it.
    pub(crate) named_by: Reach,
}

/// URLs by blob.
#[derive(Debug, Default)]
pub(crate) struct Redirects(Mutex<HashMap<BlobKey, (Target, Instant)>>);

impl Redirects {
    /// The URL to use for `key`, if one is known and still good.
    pub(crate) fn get(&self, key: &BlobKey) -> Option<Target> {
        let mut map = self.0.lock();
        let (target, end) = map.get(key)?;
        if *end > Instant::now() {
            return Some(target.clone());
        }
        map.remove(key);
        None
    }

    /// Keeps `target` for `life`.
    pub(crate) fn put(&self, key: BlobKey, target: Target, life: Duration) {
        if life.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut map = self.0.lock();
        if map.len() >= MAX_REDIRECTS {
            map.retain(|_, (_, end)| *end > now);
        }
        if map.len() >= MAX_REDIRECTS {
            map.clear();
        }
        map.insert(key, (target, now + life));
    }

    /// Forgets a URL that was refused, unless another call has already replaced it.
    pub(crate) fn forget(&self, key: &BlobKey, refused: &Url) {
        let mut map = self.0.lock();
        if map.get(key).is_some_and(|(target, _)| target.url == *refused) {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> BlobKey {
        let digest = Digest::of(&n.to_le_bytes());
        BlobKey {
            authority: "r.example".to_owned(),
            repository: "a".to_owned(),
            digest,
        }
    }

    fn target(url: &str) -> Target {
        Target {
            url: url.parse().unwrap(),
            named_by: Reach::Internet,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kept_for_its_life_and_dropped_when_refused() {
        let redirects = Redirects::default();
        let (one, two) = (target("https://c/1"), target("https://c/2"));
        redirects.put(key(1), one.clone(), Duration::from_secs(10));
        assert_eq!(redirects.get(&key(1)), Some(one.clone()));
        redirects.forget(&key(1), &two.url);
        assert_eq!(redirects.get(&key(1)), Some(one.clone()));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(redirects.get(&key(1)), None);
        redirects.put(key(1), two.clone(), Duration::from_secs(10));
        redirects.forget(&key(1), &two.url);
        assert_eq!(redirects.get(&key(1)), None);
        redirects.put(key(1), one, Duration::ZERO);
        assert_eq!(redirects.get(&key(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let redirects = Redirects::default();
        for n in 0..MAX_REDIRECTS as u32 + 10 {
            redirects.put(key(n), target("https://c/"), Duration::from_secs(10));
        }
        assert!(redirects.0.lock().len() <= MAX_REDIRECTS);
    }
}
