//! Pages that turned out to differ from their layer, and were corrected: the alarm, and the views that may have them in memory.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tracing::error;
use xebec_cache::store::{LayerKey, Store};
use xebec_fill::correction_count;
use xebec_fill::fill_service::FillService;
use xebec_fill::page_set::PageSet;
use xebec_fill::served::ServedLayer;
use xebec_fill::unverified_sources;
use xebec_format::digest::Digest;
use xebec_recordings::recording_store::KeptRecordings;
use xebec_views::page_cache_prefill;
use xebec_views::views::Views;

/// Pages that were corrected.
pub(crate) struct Corrections {
    store: Arc<Store>,
    kept: KeptRecordings,
    fills: Arc<FillService>,
    views: Arc<Views>,
    /// Held while corrections are counted, so that no view is named between a correction and its count.
    counting: Mutex<()>,
}

impl Corrections {
    /// Of the layers that are served and the views that are mounted.
    pub(crate) fn new(
        store: Arc<Store>,
        kept: KeptRecordings,
        fills: Arc<FillService>,
        views: Arc<Views>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            kept,
            fills,
            views,
            counting: Mutex::default(),
        })
    }

    /// Whether a recording brought wrong pages here: its other pages do not count either.
    pub(crate) fn is_distrusted(&self, recording: Digest) -> bool {
        self.kept.has_been_wrong(recording)
    }

    fn count(&self) -> MutexGuard<'_, ()> {
        self.counting.lock()
    }

    /// A mark in the name of a view over these layers. It tells the view from those that were built before pages of the layers were
    /// corrected, which may have wrong pages in memory. `None` if no page ever was.
    pub(crate) fn salt(&self, layers: impl Iterator<Item = LayerKey> + Clone) -> Option<String> {
        for served in layers.clone().filter_map(|key| self.fills.find(key)) {
            self.report_mismatches(&served);
        }
        let _one = self.count();
        let counts = layers.map(|key| correction_count::count(&self.store, key));
        let corrections = counts.fold(0, u64::wrapping_add);
        (corrections > 0).then(|| format!("after {corrections} corrections"))
    }

    /// Raises the alarm when pages that a runtime image brought differ from the layer, and uses its recordings no more.
    ///
    /// Any fill may find that out, also one that a reader waits for; so this is called after work that fills many spans, before a
    /// view is named, and at each sweep.
    pub(crate) fn report_mismatches(&self, served: &Arc<ServedLayer>) {
        let key = served.layer().key();
        let (mismatches, noted) = {
            // Nobody names a view between the two.
            let _one = self.count();
            let mismatches = served.layer().take_mismatches();
            if mismatches.is_empty() {
                return;
            }
            (mismatches, correction_count::add(&self.store, key))
        };
        let noted = noted.inspect_err(|failure| error!("{failure}"));
        error!(
            "ALARM: a runtime image brought other contents than {key} has, in its pages {mismatches:?}. Xebec corrected them, and \
             does not use its recordings again. The user who pushed them may have meant harm"
        );
        for injection in unverified_sources::load(&self.store, key).unwrap_or_default() {
            if !injection.evidence.own
                && let Err(failure) = self.kept.distrust(injection.recording)
            {
                error!("{failure}");
            }
        }
        self.views.take_down_unused(|view| view.reads(key));
        let mut wrong = PageSet::default();
        wrong.insert(key, mismatches);
        for view in self.views.held() {
            if view.reads(key) {
                // A process that has not mapped them reads the right bytes from now on.
                if let Some(known) = self.views.known_by_name(&view.name) {
                    page_cache_prefill::forget(&known.tree, &view.path, &wrong);
                }
                error!(
                    "ALARM: {} is mounted with it, for {:?}; stop the containers that run on it",
                    view.reference, view.holders
                );
            }
        }
        if noted.is_ok() {
            served.layer().mismatches_are_heard();
        }
    }
}
