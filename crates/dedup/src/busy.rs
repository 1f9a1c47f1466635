//! Requests that have something restored now, for which work that nobody waits for gives way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// While requests have blobs restored, the next unit of one that nobody has asked for waits so long, so often. No longer: a request may last as long
/// as its client is slow, and a blob that comes too late is restored by one more request, before which the next one waits again.
const GIVE_WAY: Duration = Duration::from_millis(10);
const MOST_WAITS: usize = 3;

/// So many there are.
#[derive(Default)]
pub(crate) struct Requests(Arc<AtomicUsize>);

/// One of them, while this lasts.
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Requests {
    /// Counts one more.
    pub(crate) fn begin(&self) -> Busy {
        self.0.fetch_add(1, Ordering::Relaxed);
        Busy(self.0.clone())
    }

    /// Waits a little if there are any.
    pub(crate) async fn give_way(&self) {
        for _ in 0..MOST_WAITS {
            if self.0.load(Ordering::Relaxed) == 0 {
                break;
            }
            tokio::time::sleep(GIVE_WAY).await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
