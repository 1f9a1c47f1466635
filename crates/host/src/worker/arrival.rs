//! Start-up pages that are on their way: a view is mounted, and a container made on it, while they come. Who reads one of
//! them early waits for it to come instead of fetching its span.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use xebec_cache::layer::CachedLayer;
use xebec_format::PAGE_SIZE;

/// How long a reader waits for a page that is on its way; then its span is fetched.
const LONGEST: Duration = Duration::from_secs(20);
/// How long while nothing at all comes.
const STALLED: Duration = Duration::from_secs(3);

/// Tells readers that more has come; when it goes, nothing more comes.
pub type Coming = watch::Sender<()>;

/// Pages of one layer that are on their way.
#[derive(Default)]
pub struct Arrivals(Mutex<Vec<Expected>>);

struct Expected {
    /// Page numbers, ascending and apart.
    pages: Vec<Range<u64>>,
    more: watch::Receiver<()>,
}

impl Arrivals {
    /// Pages (ascending and apart) are on their way, as long as the sender of `more` is there.
    pub fn expect(&self, pages: Vec<Range<u64>>, more: watch::Receiver<()>) {
        let mut all = self.lock();
        all.retain(|expected| expected.more.has_changed().is_ok());
        all.push(Expected { pages, more });
    }

    /// Waits until nothing of a range of bytes that is missing is on its way any more; not longer than 20 s, and not
    /// than 3 s for nothing.
    pub async fn wait(&self, layer: &CachedLayer, range: &Range<u64>) {
        let patience = Instant::now() + LONGEST;
        while let Some(mut more) = self.awaited(layer, range) {
            let until = patience.min(Instant::now() + STALLED);
            match tokio::time::timeout_at(until, more.changed()).await {
                Ok(Ok(())) => {}
                // This one is over; another may bring it.
                Ok(Err(_)) => self.lock().retain(|expected| expected.more.has_changed().is_ok()),
                Err(_) => return,
            }
        }
    }

    /// What brings a missing page of the range.
    fn awaited(&self, layer: &CachedLayer, range: &Range<u64>) -> Option<watch::Receiver<()>> {
        let pages = range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE);
        let mut all = self.lock();
        all.iter_mut().find_map(|expected| {
            // Before it is looked what is missing, so that what comes in between wakes.
            expected.more.borrow_and_update();
            let missing = layer.presence().missing(pages.clone());
            let comes = |run: &Range<u64>| {
                let after = expected.pages.partition_point(|known| known.end <= run.start);
                expected
                    .pages
                    .get(after)
                    .is_some_and(|known| known.start < run.end)
            };
            missing.iter().any(comes).then(|| expected.more.clone())
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Expected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
