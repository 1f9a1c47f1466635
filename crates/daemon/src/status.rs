//! The daemon's report of itself, and of the pages that readers touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::{FillService, ServedLayer};
use xebec_format::PAGE_SIZE;
use xebec_format::layer::{Entry, EntryKind, LayerIndex};
use xebec_images::images::Images;
use xebec_kernel::journal::{Custody, Journal};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Counters, SnapshotStatus, Status, Touched, ViewStatus};
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::{ViewRecord, Views};

use crate::explain::Explanations;
use crate::snapshot_service::Snapshots;

/// Reports the status of the daemon.
pub(crate) struct StatusReports {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) explanations: Arc<Explanations>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// How many bytes the cache may have, if it is limited.
    pub(crate) cache_limit: Option<u64>,
    /// Whether containerd is to be served.
    pub(crate) serves_containerd: bool,
}

impl StatusReports {
    fn snapshots_problem(&self) -> Option<String> {
        let is_missed = self.serves_containerd && !self.snapshots.are_served();
        match is_missed {
            true => Some("the daemon has no socket for it; its log says why. After a change of the settings, reload the service".to_owned()),
            false => self.snapshots.problem(),
        }
    }

    /// The status of the daemon.
    pub(crate) fn status(&self) -> Status {
        let journal = self.journal.counters();
        let (views, lingering): (Vec<_>, Vec<_>) =
            self.views.list().into_iter().partition(ViewRecord::is_held);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // While the service is stopped there is none, and its process id may be somebody else's.
            keeper_pid: match self.journal.custody() {
                Custody::Left => 0,
                _ => journal.keeper_pid.unsigned_abs(),
            },
            worker_pid: std::process::id(),
            restarts: u64::from(journal.deaths),
            keepers: journal.keepers,
            journal_version: xebec_kernel::journal::VERSION,
            queue: journal.owed,
            oldest_wait_ms: journal.oldest.map(|waited| waited.as_millis() as u64),
            oldest_reader: self.explanations.oldest_reader().map(Box::new),
            ending: self.fills.is_refusing(),
            cache_limit: self.cache_limit,
            counters: self.counters(),
            views: views.into_iter().map(|view| self.view_status(view)).collect(),
            lingering_views: lingering.len(),
            suspects: self.suspects.status(),
            snapshots_problem: self.snapshots_problem(),
            snapshots: self.snapshots.figures().map(|figures| SnapshotStatus {
                active: figures.active,
                views: figures.views,
                committed: figures.committed,
                committed_lazy: figures.committed_lazy,
                lazy: figures.lazy,
                unpacked: figures
                    .unpacked
                    .into_iter()
                    .map(|(reason, layers)| (reason.to_owned(), layers))
                    .collect(),
            }),
        }
    }

    fn counters(&self) -> Counters {
        let network = self.images.clients().stats();
        let fills = self.fills.stats();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            network_requests: network.requests,
            network_bytes: network.bytes_received,
            network_retries: network.retries,
            events: self.fills.events(),
            hits: count(&fills.hits),
            joins: count(&fills.joins),
            spans: count(&fills.spans),
            bytes_fetched: count(&fills.bytes),
            bytes_written: count(&fills.bytes_written),
            failures: count(&fills.failures),
        }
    }

    fn view_status(&self, record: ViewRecord) -> ViewStatus {
        let is_complete = |key: LayerKey| {
            let served = self.fills.find(key);
            served.is_some_and(|served| served.layer().is_complete())
        };
        let complete = record.layers.iter().filter(|pair| is_complete((**pair).into()));
        ViewStatus {
            complete_layers: complete.count(),
            view: record.name,
            path: record.path,
            reference: record.reference,
            holders: record.holders,
            layers: record.layers.len(),
        }
    }

    /// The files and pages of a view that were touched since it was mounted.
    pub(crate) fn touched(&self, view: &str) -> Result<Touched, Failure> {
        let views = self.views.list();
        let record = views
            .iter()
            .find(|record| record.name == view)
            .ok_or_else(|| Failure::new(FailureKind::NotFound, format!("no view {view} is mounted")))?;
        let mut touched = Touched::default();
        for pair in &record.layers {
            let key: LayerKey = (*pair).into();
            let Some(served) = self.fills.find(key) else {
                continue;
            };
            touched.pages += served.touched_pages();
            let bytes = self.images.store().index_bytes(key)?;
            let index =
                LayerIndex::decode(&bytes).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
            touched.files += touched_files(&index, &served);
        }
        Ok(touched)
    }
}

/// How many files of a layer have a page that was asked for.
fn touched_files(index: &LayerIndex, served: &ServedLayer) -> u64 {
    let is_touched = |entry: &&Entry| match &entry.kind {
        EntryKind::File { extents, .. } => extents.iter().any(|extent| {
            let first = extent.data_offset / PAGE_SIZE;
            let end = (extent.data_offset + extent.length).div_ceil(PAGE_SIZE);
            (first..end).any(|page| served.is_touched(page))
        }),
        _ => false,
    };
    index.entries.iter().filter(is_touched).count() as u64
}
