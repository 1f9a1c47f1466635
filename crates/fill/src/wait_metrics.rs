//! Waits of readers that are over, counted for Prometheus.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use xebec_cache::progress::{Phase, Phases};

/// Bounds of the histogram of waits, in seconds: from a span on the same network to the default `fill_wait`.
const WAIT_BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

type Seconds = Counter<f64, std::sync::atomic::AtomicU64>;

/// The metrics of the waits of readers.
pub struct WaitMetrics {
    waits: Family<ResultLabel, Histogram, fn() -> Histogram>,
    phases: Family<PhaseLabel, Seconds>,
}

impl Default for WaitMetrics {
    fn default() -> Self {
        let new: fn() -> Histogram = || Histogram::new(WAIT_BUCKETS);
        let metrics = Self {
            waits: Family::new_with_constructor(new),
            phases: Family::default(),
        };
        // A series that is there from the start has a rate from the start.
        for result in ["served", "refused"] {
            drop(metrics.waits.get_or_create(&ResultLabel { result }));
        }
        metrics
    }
}

impl WaitMetrics {
    /// Registers both metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "xebec_reader_wait",
            "How long readers waited whose pages were missing",
            Unit::Seconds,
            self.waits.clone(),
        );
        registry.register_with_unit(
            "xebec_reader_wait_phase",
            "What they waited for: queue, token, registry, body, pause, verify, disk",
            Unit::Seconds,
            self.phases.clone(),
        );
    }

    /// Counts a wait that is over: how long it was, whether the reader got its pages, and what it was spent on.
    pub(crate) fn count(&self, waited: Duration, is_served: bool, phases: Phases) {
        let result = match is_served {
            true => "served",
            false => "refused",
        };
        self.waits
            .get_or_create(&ResultLabel { result })
            .observe(waited.as_secs_f64());
        self.count_time(waited, phases);
    }

    /// Counts the phases of a further event of a read that is counted already.
    pub(crate) fn count_time(&self, waited: Duration, mut phases: Phases) {
        phases.add(Phase::Queue, waited.saturating_sub(phases.total()));
        for phase in Phase::ALL {
            let label = PhaseLabel { phase: phase.name() };
            self.phases
                .get_or_create(&label)
                .inc_by(phases.of(phase).as_secs_f64());
        }
    }
}
