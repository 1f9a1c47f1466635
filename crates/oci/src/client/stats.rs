//! Counters of requests to registries and of their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::call_options::{Observer, Wait};
use crate::error::Fault;

/// A reading of the counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// HTTP requests sent, those for tokens and those after redirects included.
    pub requests: u64,
    /// Bytes of bodies received.
    pub bytes_received: u64,
    /// Bytes of bodies sent.
    pub bytes_sent: u64,
    /// Tries that failed and were followed by another.
    pub retries: u64,
    /// Tokens obtained.
    pub tokens: u64,
    /// Redirects followed, those from the cache not included.
    pub redirects: u64,
}

#[derive(Debug, Default)]
struct Cells {
    requests: AtomicU64,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    retries: AtomicU64,
    tokens: AtomicU64,
    redirects: AtomicU64,
}

/// Counters; those of a part count in those of the whole as well.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    own: Arc<Cells>,
    whole: Option<Arc<Counters>>,
    observer: Option<Arc<dyn Observer>>,
}

impl Counters {
    /// Counters that start at zero and count in these as well.
    pub(crate) fn part(&self) -> Self {
        Self {
            own: Arc::default(),
            whole: Some(Arc::new(self.clone())),
            observer: None,
        }
    }

    /// These counters, and an observer of the call.
    pub(crate) fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// These counters without an observer: for a request that is part of something that is watched as a whole.
    pub(crate) fn unobserved(&self) -> Self {
        Self {
            observer: None,
            ..self.clone()
        }
    }

    /// Tells the observer what the call waits for from now on.
    pub(crate) fn waits(&self, wait: Wait) {
        if let Some(observer) = &self.observer {
            observer.waits(wait);
        }
    }

    /// Tells the observer what content came from whom.
    pub(crate) fn content(&self, from: &str, bytes: u64) {
        if let Some(observer) = self.observer.as_ref().filter(|_| bytes > 0) {
            observer.received(from, bytes);
        }
    }

    fn add(&self, cell: fn(&Cells) -> &AtomicU64, amount: u64) {
        cell(&self.own).fetch_add(amount, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.add(cell, amount);
        }
    }

    pub(crate) fn request(&self) {
        self.add(|cells| &cells.requests, 1);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.add(|cells| &cells.bytes_received, bytes);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.add(|cells| &cells.bytes_sent, bytes);
    }

    pub(crate) fn retry(&self, fault: &Fault) {
        self.add(|cells| &cells.retries, 1);
        if let Some(observer) = &self.observer {
            observer.retries(fault);
        }
    }

    pub(crate) fn token(&self) {
        self.add(|cells| &cells.tokens, 1);
    }

    pub(crate) fn redirect(&self) {
        self.add(|cells| &cells.redirects, 1);
    }

    pub(crate) fn read(&self) -> Stats {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Stats {
            requests: read(&self.own.requests),
            bytes_received: read(&self.own.bytes_received),
            bytes_sent: read(&self.own.bytes_sent),
            retries: read(&self.own.retries),
            tokens: read(&self.own.tokens),
            redirects: read(&self.own.redirects),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it is told.
    #[derive(Debug, Default)]
    struct Told(AtomicU64);

    impl Observer for Told {
        fn waits(&self, _: Wait) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn received(&self, _: &str, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
        fn retries(&self, _: &Fault) {}
    }

    #[test]
    fn only_who_is_asked_to_watch_is_told() {
        let told = Arc::new(Told::default());
        let observed = Counters::default().observed(told.clone());
        for counters in [observed.unobserved(), observed.part(), observed.clone()] {
            counters.waits(Wait::Head);
            counters.content("registry.example", 10);
            counters.content("registry.example", 0);
            counters.received(1);
        }
        assert_eq!(told.0.load(Ordering::Relaxed), 11);
        assert_eq!(observed.read().bytes_received, 3);
    }

    #[test]
    fn parts_count_in_the_whole() {
        let whole = Counters::default();
        let (one, two) = (whole.part(), whole.part());
        one.received(3);
        two.received(4);
        two.part().request();
        assert_eq!((one.read().bytes_received, two.read().bytes_received), (3, 4));
        assert_eq!(
            whole.read(),
            Stats {
                bytes_received: 7,
                requests: 1,
                ..Stats::default()
            }
        );
    }
}
