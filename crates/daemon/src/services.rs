//! The services of the worker, each with only those that it uses.
//!
//! They are made from below: a service holds services that are made before it, and knows none that is made later. No service
//! begins to work here; the worker starts them ([`crate::worker`]).

mod cache;
mod mounting;
mod opened;
mod pulling;
mod reporting;

use std::sync::Arc;

use crate::background::Background;
use crate::completion::Completions;
use crate::durability::Durability;
use crate::ending::Ending;
use crate::explain::Explanations;
use crate::history_writer::HistoryWriter;
use crate::metrics::Metrics;
use crate::prefetch_list::PrefetchList;
use crate::proofs::Proofs;
use crate::quota::Quota;
use crate::removal::Removal;
use crate::requests::Requests;
use crate::snapshot_service::Snapshots;
use crate::snapshots::layer_services::LayerServices;
use crate::snapshots::removed_images::RemovedImages;
use crate::upkeep::Upkeep;
use crate::view_cleanup::ViewCleanup;
use crate::view_read_ahead::ViewReadAhead;
use cache::CacheServices;
use mounting::MountServices;
pub(crate) use opened::Opened;
use pulling::PullServices;
use reporting::ReportServices;

/// The services that the worker itself starts, asks and ends.
pub(crate) struct Services {
    /// Answers the command line.
    pub(crate) requests: Arc<Requests>,
    /// The services for containerd's snapshots.
    pub(crate) layers: LayerServices,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) proofs: Arc<Proofs>,
    pub(crate) read_ahead: Arc<ViewReadAhead>,
    pub(crate) history: Arc<HistoryWriter>,
    pub(crate) explanations: Arc<Explanations>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) upkeep: Arc<Upkeep>,
    pub(crate) prefetch_list: Arc<PrefetchList>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) ending: Arc<Ending>,
}

impl Services {
    /// Makes the services over the parts that are open.
    pub(crate) fn new(opened: &Opened) -> Services {
        // 1. The threads for work that blocks. All requests share them, and take turns.
        let background = Background::default();
        // 2. The services that keep the cache right while layers come and go: pages are corrected and synced, layers are evicted, and the
        //    daemon ends only when no reader can see a hole. Every service that brings something in relies on these.
        let cache = CacheServices::new(opened);
        // 3. Those that bring images to this host without a view. A view is built only on layers that were prepared and compared.
        let pulls = PullServices::new(opened, &cache, &background);
        // 4. Those that mount images, load their recordings, and watch their services start.
        let mounts = MountServices::new(opened, &cache, &pulls, &background);
        // 5. Those that report on all of these. They change nothing.
        let reports = ReportServices::new(opened, &mounts);
        // 6. Those that clients ask: the command line, and containerd.
        let made = Made {
            background,
            cache,
            pulls,
            mounts,
            reports,
        };
        let requests = Arc::new(made.requests(opened));
        let layers = made.layers(opened);
        // 7. Those that work without being asked.
        let upkeep = Arc::new(made.upkeep(opened));
        let prefetch_list = Arc::new(PrefetchList {
            prefetches: made.mounts.prefetches.clone(),
            images: opened.images.clone(),
            ending: made.cache.ending.clone(),
            listed: opened.settings.prefetch.clone(),
        });
        let Made {
            cache,
            pulls,
            mounts,
            reports,
            ..
        } = made;
        Services {
            requests,
            layers,
            snapshots: reports.snapshots,
            completions: pulls.completions,
            proofs: pulls.proofs,
            read_ahead: mounts.read_ahead,
            history: reports.history,
            explanations: reports.explanations,
            metrics: reports.metrics,
            quota: cache.quota,
            upkeep,
            prefetch_list,
            durability: cache.durability,
            cleanup: cache.cleanup,
            ending: cache.ending,
        }
    }
}

/// The services that are made so far.
struct Made {
    background: Background,
    cache: CacheServices,
    pulls: PullServices,
    mounts: MountServices,
    reports: ReportServices,
}

impl Made {
    fn requests(&self, opened: &Opened) -> Requests {
        let removal = Removal {
            images: opened.images.clone(),
            kept: opened.recordings.kept().clone(),
            views: opened.views.clone(),
            eviction: self.cache.eviction.clone(),
        };
        Requests {
            ending: self.cache.ending.clone(),
            mounts: self.mounts.mounts.clone(),
            starts: self.mounts.starts.clone(),
            start_reports: self.mounts.start_reports.clone(),
            loadings: self.cache.loadings.clone(),
            pulls: self.pulls.pulls.clone(),
            prefetches: self.mounts.prefetches.clone(),
            quota: self.cache.quota.clone(),
            removal: Arc::new(removal),
            status: self.reports.status.clone(),
            explanations: self.reports.explanations.clone(),
            metrics: self.reports.metrics.clone(),
            clients: opened.images.clients().clone(),
            background: self.background.clone(),
        }
    }

    fn layers(&self, opened: &Opened) -> LayerServices {
        let removed_images = RemovedImages {
            images: opened.images.clone(),
            kept: opened.recordings.kept().clone(),
            views: opened.views.clone(),
            quota: self.cache.quota.clone(),
            eviction: self.cache.eviction.clone(),
        };
        LayerServices {
            images: opened.images.clone(),
            recordings: opened.recordings.clone(),
            bandwidths: self.pulls.bandwidths.clone(),
            views: opened.views.clone(),
            preparation: self.pulls.preparation.clone(),
            load_ahead: self.mounts.load_ahead.clone(),
            mounts: self.mounts.mounts.clone(),
            pulls: self.pulls.pulls.clone(),
            removed_images: Arc::new(removed_images),
            cleanup: self.cache.cleanup.clone(),
            ending: self.cache.ending.clone(),
            background: self.background.clone(),
            docker_config: opened.settings.snapshotter.docker_config.clone(),
            unproven: opened.settings.snapshotter.unproven,
        }
    }

    fn upkeep(&self, opened: &Opened) -> Upkeep {
        Upkeep {
            store: opened.images.store().clone(),
            views: opened.views.clone(),
            durability: self.cache.durability.clone(),
            quota: self.cache.quota.clone(),
        }
    }
}
