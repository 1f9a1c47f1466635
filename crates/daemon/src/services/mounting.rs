//! The services that mount images, and watch the starts of programs on them.

use std::sync::Arc;

use super::cache::CacheServices;
use super::opened::Opened;
use super::pulling::PullServices;
use crate::background::Background;
use crate::containers;
use crate::injections::Injections;
use crate::load_ahead::LoadAhead;
use crate::mounts::Mounts;
use crate::prefetch::Prefetches;
use crate::runtime_images::RuntimeImages;
use crate::start_reports::StartReports;
use crate::start_table::StartTable;
use crate::starts::Starts;
use crate::view_lease::ViewLeases;
use crate::view_read_ahead::ViewReadAhead;

/// The services that mount images, and watch the starts of programs on them.
pub(super) struct MountServices {
    pub(super) read_ahead: Arc<ViewReadAhead>,
    pub(super) load_ahead: Arc<LoadAhead>,
    pub(super) prefetches: Arc<Prefetches>,
    pub(super) start_table: Arc<StartTable>,
    pub(super) start_reports: Arc<StartReports>,
    pub(super) starts: Arc<Starts>,
    pub(super) mounts: Arc<Mounts>,
}

impl MountServices {
    /// Over the parts that are open.
    pub(super) fn new(
        opened: &Opened,
        cache: &CacheServices,
        pulls: &PullServices,
        background: &Background,
    ) -> Self {
        let read_ahead = ViewReadAhead::new(opened.views.clone());
        let runtime_images = Arc::new(runtime_images(opened, cache, pulls, background));
        let load_ahead = Arc::new(LoadAhead {
            preparation: pulls.preparation.clone(),
            runtime_images: runtime_images.clone(),
            cleanup: cache.cleanup.clone(),
            ending: cache.ending.clone(),
        });
        let prefetches = Arc::new(prefetches(cache, pulls, &runtime_images));
        let start_table = Arc::new(StartTable::default());
        let start_reports = Arc::new(start_reports(opened, &start_table));
        let starts = Arc::new(Starts {
            table: start_table.clone(),
            records: opened.images.records().clone(),
            views: opened.views.clone(),
            read_ahead: read_ahead.clone(),
            reports: start_reports.clone(),
            background: background.clone(),
            learns: opened.settings.learn,
        });
        // Last, since a mount goes through all of them.
        let mounts = Arc::new(Mounts {
            images: opened.images.clone(),
            views: opened.views.clone(),
            recording_admission: pulls.recording_admission.clone(),
            preparation: pulls.preparation.clone(),
            integrity: pulls.integrity.clone(),
            runtime_images: runtime_images.clone(),
            building: cache.building.clone(),
            leases: leases(opened, cache),
            starts: starts.clone(),
            read_ahead: read_ahead.clone(),
            completions: pulls.completions.clone(),
            cleanup: cache.cleanup.clone(),
            ending: cache.ending.clone(),
            stopping: cache.stopping.clone(),
            background: background.clone(),
        });
        Self {
            read_ahead,
            load_ahead,
            prefetches,
            start_table,
            start_reports,
            starts,
            mounts,
        }
    }
}

/// A recording's pages are written only where all readers admit them, so injections come first.
fn runtime_images(
    opened: &Opened,
    cache: &CacheServices,
    pulls: &PullServices,
    background: &Background,
) -> RuntimeImages {
    let injections = Injections {
        images: opened.images.clone(),
        views: opened.views.clone(),
        suspects: opened.suspects.clone(),
        recording_admission: pulls.recording_admission.clone(),
        background: background.clone(),
    };
    RuntimeImages {
        store: opened.images.store().clone(),
        fills: opened.fills.clone(),
        views: opened.views.clone(),
        injections: Arc::new(injections),
        loadings: cache.loadings.clone(),
        background: background.clone(),
    }
}

fn prefetches(
    cache: &CacheServices,
    pulls: &PullServices,
    runtime_images: &Arc<RuntimeImages>,
) -> Prefetches {
    Prefetches {
        preparation: pulls.preparation.clone(),
        runtime_images: runtime_images.clone(),
        completions: pulls.completions.clone(),
        cleanup: cache.cleanup.clone(),
        stopping: cache.stopping.clone(),
    }
}

fn start_reports(opened: &Opened, table: &Arc<StartTable>) -> StartReports {
    StartReports {
        table: table.clone(),
        fills: opened.fills.clone(),
        views: opened.views.clone(),
        recordings: opened.recordings.clone(),
        containers: containers::directories(opened.images.paths()),
        history: opened.images.paths().history(),
    }
}

fn leases(opened: &Opened, cache: &CacheServices) -> ViewLeases {
    ViewLeases {
        paths: opened.images.paths().clone(),
        fills: opened.fills.clone(),
        views: opened.views.clone(),
        shared: cache.shared.clone(),
        corrections: cache.corrections.clone(),
        durability: cache.durability.clone(),
    }
}
