//! A layer that is served: the filler of its pages, and the pages that readers touched.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tracing::warn;
use xebec_cache::fill::Filler;
use xebec_cache::layer::CachedLayer;
use xebec_cache::presence::SyncError;
use xebec_format::PAGE_SIZE;

use crate::access_log::Watchers;
use crate::inflight_pages::Arrivals;
use crate::unverified_sources;

/// A layer that is served.
pub struct ServedLayer {
    filler: Arc<Filler>,
    touched: Mutex<Vec<u64>>,
    watchers: Watchers,
    pub(crate) silenced: AtomicBool,
    arrivals: Arrivals,
}

impl ServedLayer {
    /// A layer that `filler` fills, of which nobody has read anything yet.
    pub(crate) fn new(filler: Arc<Filler>) -> Self {
        let words = filler.layer().presence().pages().div_ceil(64) as usize;
        Self {
            filler,
            touched: Mutex::new(vec![0; words]),
            watchers: Watchers::default(),
            silenced: AtomicBool::new(false),
            arrivals: Arrivals::default(),
        }
    }

    /// Makes present pages count after a power cut; before that, syncs the note of which recordings brought pages.
    /// Returns whether there was something to do. Blocks.
    ///
    /// # Errors
    /// As of [`CachedLayer::sync`]. A note that cannot be synced is no error: nothing is lost, and no more pages count.
    pub fn sync(&self) -> Result<bool, SyncError> {
        let layer = self.layer();
        let mut are_noted = true;
        let synced = layer.sync(|| {
            let noted = unverified_sources::sync(layer.directory());
            are_noted = noted.is_ok();
            noted
        });
        match synced {
            Err(error) if !are_noted => {
                warn!(
                    "cannot sync the note of which recording brought pages of {}: {error}",
                    layer.key()
                );
                Ok(false)
            }
            synced => synced,
        }
    }

    /// Whether nobody but the table of served layers knows it, or any part of it.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
            && Arc::strong_count(&self.filler) == 1
            && Arc::strong_count(self.layer()) == 1
    }

    /// The cached layer.
    pub fn layer(&self) -> &Arc<CachedLayer> {
        self.filler.layer()
    }

    /// The filler that brings its spans in.
    pub fn filler(&self) -> &Arc<Filler> {
        &self.filler
    }

    /// The starts that want to know what is asked for.
    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Pages that are on their way by other means than fills.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Whether readers asked for the page since the layer is served.
    pub fn is_touched(&self, page: u64) -> bool {
        let touched = self.touched.lock();
        touched
            .get((page / 64) as usize)
            .is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    /// How many pages readers asked for.
    pub fn touched_pages(&self) -> u64 {
        let touched = self.touched.lock();
        touched.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Notes that readers asked for a range.
    pub(crate) fn touch(&self, range: &Range<u64>) {
        let mut touched = self.touched.lock();
        for page in range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE) {
            if let Some(word) = touched.get_mut((page / 64) as usize) {
                *word |= 1 << (page % 64);
            }
        }
    }
}
