//! Start-up pages in flight: a view is mounted, and a container made on it, while they come. A reader that needs one of
//! them early waits for it instead of fetching its span; so does another start that needs it.

use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use xebec_cache::layer::CachedLayer;
use xebec_format::PAGE_SIZE;

use crate::page_set::{common, difference, normal};

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
    /// Pages (ascending and apart) are on their way, as long as the sender of `more` is there. Gives those that are on their
    /// way by others already: they need not be brought twice.
    pub fn expect(&self, pages: &[Range<u64>], more: &watch::Receiver<()>) -> Vec<Range<u64>> {
        let mut all = self.0.lock();
        all.retain(|expected| expected.more.has_changed().is_ok());
        let others = all.iter().filter(|expected| !expected.more.same_channel(more));
        let others = normal(others.flat_map(|expected| expected.pages.clone()).collect());
        let own = difference(pages, &others);
        let own: Vec<Range<u64>> = own.into_iter().filter(|run| !run.is_empty()).collect();
        if !own.is_empty() {
            let more = more.clone();
            all.push(Expected { pages: own, more });
        }
        common(pages, &others)
    }

    /// None of these pages comes from the sender of `own` any more.
    pub fn withdraw(&self, own: &watch::Receiver<()>) {
        self.0.lock().retain(|expected| !expected.more.same_channel(own));
    }

    /// Waits until none of these pages that is missing is on its way any more by others than the sender of `own`, however
    /// long that takes.
    pub async fn others_are_over(
        &self,
        layer: &CachedLayer,
        pages: &[Range<u64>],
        own: &watch::Receiver<()>,
    ) {
        for run in pages {
            while let Some(mut more) = self.awaited(layer, run, Some(own)) {
                if more.changed().await.is_err() {
                    self.0
                        .lock()
                        .retain(|expected| expected.more.has_changed().is_ok());
                }
            }
        }
    }

    /// Waits until nothing of a range of bytes that is missing is on its way any more; not longer than 20 s, and not
    /// than 3 s for nothing.
    pub async fn wait(&self, layer: &CachedLayer, range: &Range<u64>) {
        let patience = Instant::now() + LONGEST;
        let pages = range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE);
        while let Some(mut more) = self.awaited(layer, &pages, None) {
            let until = patience.min(Instant::now() + STALLED);
            match tokio::time::timeout_at(until, more.changed()).await {
                Ok(Ok(())) => {}
                // This one is over; another may bring it.
                Ok(Err(_)) => self
                    .0
                    .lock()
                    .retain(|expected| expected.more.has_changed().is_ok()),
                Err(_) => return,
            }
        }
    }

    /// The news of a request that brings a missing page of the run, apart from that of `own`.
    fn awaited(
        &self,
        layer: &CachedLayer,
        pages: &Range<u64>,
        own: Option<&watch::Receiver<()>>,
    ) -> Option<watch::Receiver<()>> {
        let mut all = self.0.lock();
        all.iter_mut().find_map(|expected| {
            if own.is_some_and(|own| expected.more.same_channel(own)) {
                return None;
            }
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
}
