//! Counters of starts, for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use xebec_protocol::start_report::{Learned, StartReport};

use crate::openmetrics::counter;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RecordingLabel {
    recording: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PagesLabel {
    pages: &'static str,
}

/// Sums over starts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    with: AtomicU64,
    refused: AtomicU64,
    without: AtomicU64,
    touched: AtomicU64,
    unused: AtomicU64,
    missed: AtomicU64,
    profiles: AtomicU64,
}

impl Counts {
    /// Counts a start that is over.
    pub(crate) fn count(&self, report: &StartReport) {
        let add = |count: &AtomicU64, more: u64| {
            count.fetch_add(more, Ordering::Relaxed);
        };
        match (&report.recorded, &report.loaded) {
            (Some(recorded), _) => {
                add(&self.with, 1);
                add(&self.touched, recorded.touched);
                add(&self.unused, recorded.unused);
            }
            (None, Some(_)) => add(&self.refused, 1),
            (None, None) => add(&self.without, 1),
        }
        add(&self.missed, report.missed_pages);
        if matches!(report.learned, Some(Learned::Kept { .. })) {
            add(&self.profiles, 1);
        }
    }

    /// Adds the counts to the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let starts: Family<RecordingLabel, Counter> = Family::default();
        for (recording, count) in [
            ("used", &self.with),
            ("refused", &self.refused),
            ("none", &self.without),
        ] {
            starts
                .get_or_create(&RecordingLabel { recording })
                .inc_by(read(count));
        }
        registry.register(
            "xebec_starts",
            "Starts that ended, by whether they used a runtime image",
            starts,
        );
        let all: Family<PagesLabel, Counter> = Family::default();
        for (pages, count) in [
            ("touched", &self.touched),
            ("unused", &self.unused),
            ("missed", &self.missed),
        ] {
            all.get_or_create(&PagesLabel { pages }).inc_by(read(count));
        }
        registry.register(
            "xebec_start_pages",
            "Recorded pages that starts read or did not read, and pages that starts fetched outside of their recordings",
            all,
        );
        counter(
            registry,
            "xebec_start_profiles",
            "Profiles of starts that were kept",
            read(&self.profiles),
        );
    }
}
