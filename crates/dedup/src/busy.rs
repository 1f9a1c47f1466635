//! Requests that have something restored now: they share the processors, and work that nobody waits for gives way to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::sending::Guard;

/// While requests have blobs restored, the next unit of one that nobody has asked for waits so long. No longer: a request may last as long
/// as its client is slow, and a blob that comes too late is restored by one more request, before which the next one waits again.
const GIVE_WAY: Duration = Duration::from_millis(10);
/// Units that are made at the same time for one request, at most, however many processors there are: they stay in memory until they are sent.
const MOST_AT_ONCE: usize = 8;

/// So many there are.
pub(crate) struct Requests {
    count: Arc<AtomicUsize>,
    processors: usize,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            count: Arc::default(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// One of them, while this lasts.
pub(crate) struct Busy {
    count: Arc<AtomicUsize>,
    processors: usize,
}

impl Requests {
    /// Counts one more.
    pub(crate) fn begin(&self) -> Busy {
        self.count.fetch_add(1, Ordering::Relaxed);
        Busy {
            count: self.count.clone(),
            processors: self.processors,
        }
    }

    /// Waits a little if there are any.
    pub(crate) async fn give_way(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(GIVE_WAY).await;
        }
    }
}

impl Guard for Busy {
    fn at_once(&self) -> usize {
        let requests = self.count.load(Ordering::Relaxed).max(1);
        (self.processors / requests).clamp(1, MOST_AT_ONCE)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
