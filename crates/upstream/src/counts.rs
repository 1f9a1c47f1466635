//! Counts of the questions to an upstream and of their outcomes, for those who watch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::UpstreamError;

/// Counters of one upstream.
#[derive(Debug, Default)]
pub struct Counts {
    answered: AtomicU64,
    lacked: AtomicU64,
    limited: AtomicU64,
    refused: AtomicU64,
    away: AtomicU64,
    failed: AtomicU64,
    received: AtomicU64,
    hits: AtomicU64,
}

impl Counts {
    /// A question came to this.
    pub(crate) fn asked<T>(&self, result: &Result<T, UpstreamError>) {
        let counter = match result {
            Ok(_) => &self.answered,
            Err(UpstreamError::NotFound(_)) => &self.lacked,
            Err(UpstreamError::Limited { .. }) => &self.limited,
            Err(UpstreamError::Refused { .. }) => &self.refused,
            Err(UpstreamError::Away { .. }) => &self.away,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A manifest or a blob is answered from the store, and the upstream is not asked.
    pub fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes of a blob came.
    pub(crate) fn came(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many questions came to what.
    pub fn outcomes(&self) -> [(&'static str, u64); 6] {
        [
            ("answered", &self.answered),
            ("not_found", &self.lacked),
            ("limited", &self.limited),
            ("refused", &self.refused),
            ("away", &self.away),
            ("failed", &self.failed),
        ]
        .map(|(outcome, counter)| (outcome, counter.load(Ordering::Relaxed)))
    }

    /// Answers from the store for which the upstream was not asked.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Bytes of blobs that came.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}
