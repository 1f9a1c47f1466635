//! The services that keep the cache right while layers come and go.

use std::sync::Arc;

use xebec_views::sharing::SharedContents;

use super::opened::Opened;
use crate::building::Building;
use crate::corrections::Corrections;
use crate::durability::Durability;
use crate::ending::{Ending, EndingParts};
use crate::eviction::Eviction;
use crate::loaded_images::Loadings;
use crate::quota::{Quota, QuotaParts};
use crate::stopping::Stopping;
use crate::view_cleanup::ViewCleanup;

/// The services that keep the cache right while layers come and go.
pub(super) struct CacheServices {
    pub(super) shared: Arc<SharedContents>,
    pub(super) loadings: Arc<Loadings>,
    pub(super) building: Arc<Building>,
    pub(super) corrections: Arc<Corrections>,
    pub(super) durability: Arc<Durability>,
    pub(super) cleanup: Arc<ViewCleanup>,
    pub(super) eviction: Arc<Eviction>,
    pub(super) quota: Arc<Quota>,
    pub(super) ending: Arc<Ending>,
    pub(super) stopping: Arc<Stopping>,
}

impl CacheServices {
    /// Over the parts that are open. One function, since it lists the services in the order in which they depend on each other.
    pub(super) fn new(opened: &Opened) -> Self {
        let Opened {
            images,
            recordings,
            fills,
            views,
            suspects,
            ..
        } = opened;
        let (shared, loadings, building) = <(Arc<SharedContents>, Arc<Loadings>, Arc<Building>)>::default();
        let (store, kept) = (images.store().clone(), recordings.kept().clone());
        let corrections = Corrections::new(store, kept, fills.clone(), views.clone());
        let durability = Durability::new(recordings.clone(), fills.clone(), views.clone(), shared.clone());
        // A layer that is given up takes the notes of its wrong pages with it, so the cleanup reports those first.
        let cleanup = Arc::new(ViewCleanup {
            fills: fills.clone(),
            views: views.clone(),
            suspects: suspects.clone(),
            corrections: corrections.clone(),
            loadings: loadings.clone(),
        });
        let eviction = Arc::new(Eviction {
            store: images.store().clone(),
            fills: fills.clone(),
            views: views.clone(),
            shared: shared.clone(),
        });
        // From here on a writer that meets a full disk gets room.
        let quota = Quota::new(QuotaParts {
            images: images.clone(),
            fills: fills.clone(),
            views: views.clone(),
            eviction: eviction.clone(),
            building: building.clone(),
            limit: opened.cache_limit(),
        });
        // An ending daemon syncs the layers that it serves and gives them up, so these services are made before.
        let stopping = Arc::<Stopping>::default();
        let ending = Ending::new(EndingParts {
            images: opened.images.clone(),
            fills: fills.clone(),
            views: views.clone(),
            suspects: suspects.clone(),
            journal: opened.journal.clone(),
            loadings: loadings.clone(),
            building: building.clone(),
            durability: durability.clone(),
            cleanup: cleanup.clone(),
            stopping: stopping.clone(),
        });
        Self {
            shared,
            loadings,
            building,
            corrections,
            durability,
            cleanup,
            eviction,
            quota,
            ending,
            stopping,
        }
    }
}
