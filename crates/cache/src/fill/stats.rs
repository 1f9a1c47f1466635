//! Counters of fills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::progress::Progress;

/// Statistics of fills. All counts only grow.
#[derive(Debug, Default)]
pub struct FillStats {
    /// Ranges asked for by readers.
    pub ranges: AtomicU64,
    /// Ranges that were there already.
    pub hits: AtomicU64,
    /// Spans that were fetched by another reader's request.
    pub joins: AtomicU64,
    /// Requests for groups of spans.
    pub requests: AtomicU64,
    /// Spans written.
    pub spans: AtomicU64,
    /// Compressed bytes fetched, windows included.
    pub bytes: AtomicU64,
    /// Plain bytes written.
    pub bytes_written: AtomicU64,
    /// Plain bytes of these that other layers of this host had.
    pub bytes_copied: AtomicU64,
    /// Fills that failed.
    pub failures: AtomicU64,
    /// Fetches that were repeated because the bytes were wrong.
    pub refetches: AtomicU64,
    /// Pages that runtime images brought.
    pub injected_pages: AtomicU64,
    /// Pages of those that were compared with the layer's own bytes since.
    pub checked_pages: AtomicU64,
    /// Pages of those that were not the layer's.
    pub mismatches: AtomicU64,
    /// Compressed bytes by where they came from.
    pub sources: Mutex<BTreeMap<Arc<str>, u64>>,
}

impl FillStats {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn add_sources(&self, progress: &Progress) {
        let mut sums = self.sources.lock();
        for (source, bytes) in progress.sources() {
            *sums.entry(source).or_default() += bytes;
        }
    }
}
