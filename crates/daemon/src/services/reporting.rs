//! The services that report on the worker, and change nothing.

use std::sync::Arc;

use super::mounting::MountServices;
use super::opened::Opened;
use crate::explain::Explanations;
use crate::history_writer::HistoryWriter;
use crate::metrics::Metrics;
use crate::snapshot_service::Snapshots;
use crate::status::StatusReports;

/// The services that tell of the worker, and change nothing.
pub(super) struct ReportServices {
    /// Containerd is served last; until then there is nothing to tell of it.
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) history: Arc<HistoryWriter>,
    pub(super) explanations: Arc<Explanations>,
    pub(super) status: Arc<StatusReports>,
    pub(super) metrics: Arc<Metrics>,
}

impl ReportServices {
    /// Over the parts that are open.
    pub(super) fn new(opened: &Opened, mounts: &MountServices) -> Self {
        let Opened {
            images, fills, views, ..
        } = opened;
        let snapshots = Arc::new(Snapshots::default());
        let history = HistoryWriter::new(images.paths(), fills, views, &mounts.start_table);
        let explanations = Arc::new(Explanations {
            paths: images.paths().clone(),
            starts: mounts.start_table.clone(),
            store: images.store().clone(),
            records: images.records().clone(),
            fills: fills.clone(),
            views: views.clone(),
        });
        let status = Arc::new(StatusReports {
            images: images.clone(),
            fills: fills.clone(),
            views: views.clone(),
            suspects: opened.suspects.clone(),
            journal: opened.journal.clone(),
            explanations: explanations.clone(),
            snapshots: snapshots.clone(),
            cache_limit: opened.cache_limit(),
            serves_containerd: opened.settings.snapshotter.enabled,
        });
        let metrics = Arc::new(Metrics {
            images: images.clone(),
            fills: fills.clone(),
            views: views.clone(),
            journal: opened.journal.clone(),
            starts: mounts.start_table.clone(),
            snapshots: snapshots.clone(),
        });
        Self {
            snapshots,
            history: Arc::new(history),
            explanations,
            status,
            metrics,
        }
    }
}
