//! Metrics for Prometheus, which `docs/operations.md` lists, in the OpenMetrics text format.
//!
//! Most values are counted elsewhere and only read here, at each request. Counters begin at zero with each worker, which
//! Prometheus' `rate` recognizes as a restart; `xebec_worker_restarts_total` alone goes on, from the journal.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use xebec_cache::fill::FillStats;
use xebec_fill::fill_service::FillService;
use xebec_images::images::Images;
use xebec_images::inventory;
use xebec_kernel::clock::since_1970;
use xebec_kernel::journal::Journal;
use xebec_kernel::process;
use xebec_snapshotter::lazy::Reason;
use xebec_views::views::Views;

use crate::openmetrics::{counter, gauge};
use crate::snapshot_service::Snapshots;
use crate::start_table::StartTable;
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Reads the metrics.
pub(crate) struct Metrics {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) starts: Arc<StartTable>,
    pub(crate) snapshots: Arc<Snapshots>,
}

impl Metrics {
    /// The metrics as text.
    ///
    /// # Errors
    /// None, in practice: the text is written to memory.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        self.register_readers(&mut registry);
        self.register_fills(&mut registry);
        self.starts.counts.register(&mut registry);
        self.register_cache(&mut registry);
        self.register_processes(&mut registry);
        self.register_snapshots(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn register_readers(&self, registry: &mut Registry) {
        let waits = self.fills.waits();
        let journal = self.journal.counters();
        waits.metrics().register(registry);
        gauge(
            registry,
            "xebec_readers_waiting",
            "Readers that wait for missing pages",
            journal.owed,
        );
        registry.register_with_unit(
            "xebec_oldest_reader_wait",
            "Time that the oldest waiting reader has waited; 0 if no reader waits",
            Unit::Seconds,
            ConstGauge::new(journal.oldest.unwrap_or_default().as_secs_f64()),
        );
        counter(
            registry,
            "xebec_events",
            "Fanotify events: reads of layers that are not complete",
            self.fills.events(),
        );
        let hits = self.fills.stats().hits.load(Ordering::Relaxed);
        counter(
            registry,
            "xebec_event_hits",
            "Events whose pages were all present",
            hits,
        );
        counter(
            registry,
            "xebec_queue_overflows",
            "Times that the kernel dropped events; any value above 0 is an alarm",
            journal.overflows,
        );
    }

    /// Fetches, runtime images and registries.
    fn register_fills(&self, registry: &mut Registry) {
        let fills = self.fills.stats();
        for (name, help, value) in fill_counters(fills) {
            counter(registry, name, help, value.load(Ordering::Relaxed));
        }
        let network = self.images.clients().stats();
        for (name, help, value) in [
            (
                "xebec_registry_requests",
                "HTTP requests to registries and token servers",
                network.requests,
            ),
            (
                "xebec_registry_retries",
                "Requests that failed and were tried again",
                network.retries,
            ),
            (
                "xebec_registry_tokens",
                "Tokens obtained from token servers",
                network.tokens,
            ),
        ] {
            counter(registry, name, help, value);
        }
        byte_counter(
            registry,
            "xebec_fill_written",
            "Plain bytes written to the cache",
            fills.bytes_written.load(Ordering::Relaxed),
        );
        byte_counter(
            registry,
            "xebec_fill_copied",
            "Plain bytes of these that other layers of this host had",
            fills.bytes_copied.load(Ordering::Relaxed),
        );
        byte_counter(
            registry,
            "xebec_registry_received",
            "Bytes of all response bodies from registries and token servers",
            network.bytes_received,
        );
        register_sources(registry, fills);
    }

    fn register_snapshots(&self, registry: &mut Registry) {
        let Some(figures) = self.snapshots.figures() else {
            return;
        };
        let kinds: Family<KindLabel, Gauge> = Family::default();
        for (kind, count) in [
            ("active", figures.active),
            ("view", figures.views),
            ("committed", figures.committed - figures.committed_lazy),
            ("lazy", figures.committed_lazy),
        ] {
            let label = KindLabel { kind };
            kinds
                .get_or_create(&label)
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        registry.register(
            "xebec_snapshots",
            "Containerd's snapshots, by kind; lazy: committed snapshots of lazy layers",
            kinds,
        );
        counter(
            registry,
            "xebec_layers_admitted",
            "Layers admitted as lazy, which containerd does not fetch",
            figures.lazy,
        );
        let reasons: Family<ReasonLabel, Counter> = Family::default();
        // A series that is there from the start has a rate from the start.
        for reason in Reason::ALL.map(Reason::name) {
            let count = figures.unpacked.get(reason).copied().unwrap_or_default();
            reasons.get_or_create(&ReasonLabel { reason }).inc_by(count);
        }
        registry.register(
            "xebec_layers_unpacked",
            "Layers that containerd fetched and unpacked, by reason",
            reasons,
        );
    }

    /// Layers and views, and their sizes.
    fn register_cache(&self, registry: &mut Registry) {
        let served = self.fills.all();
        let complete = served.iter().filter(|layer| layer.layer().is_complete()).count();
        let (held, all) = (self.views.held().len(), self.views.list().len());
        for (name, help, count) in [
            ("xebec_layers_served", "Layers of mounted views", served.len()),
            (
                "xebec_layers_complete",
                "Layers of mounted views that are complete on this host",
                complete,
            ),
            ("xebec_views", "Mounted views that are in use", held),
            (
                "xebec_views_lingering",
                "Mounted views that are kept for the next start",
                all.saturating_sub(held),
            ),
        ] {
            gauge(registry, name, help, count as u64);
        }
        let cached = inventory::used_bytes(&self.images);
        registry.register_with_unit(
            "xebec_cache",
            "Disk space that cached layers take",
            Unit::Bytes,
            ConstGauge::new(i64::try_from(cached).unwrap_or(i64::MAX)),
        );
    }

    fn register_processes(&self, registry: &mut Registry) {
        let journal = self.journal.counters();
        counter(
            registry,
            "xebec_worker_restarts",
            "Workers that died and were replaced, since the daemon started",
            u64::from(journal.deaths),
        );
        let worker = self.fills.waits().started_ms() as f64 / 1e3;
        let keeper = start_of(journal.keeper_pid.unsigned_abs());
        for (name, help, at) in [
            (
                "xebec_worker_start_time",
                "Time when the worker started, since 1970",
                Some(worker),
            ),
            (
                "xebec_keeper_start_time",
                "Time when the keeper started, since 1970",
                keeper,
            ),
        ] {
            if let Some(at) = at {
                registry.register_with_unit(name, help, Unit::Seconds, ConstGauge::new(at));
            }
        }
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        gauge(
            registry,
            "process_open_fds",
            "Open descriptors of the worker",
            descriptors,
        );
        gauge(
            registry,
            "process_max_fds",
            "The worker's limit of open descriptors",
            process::open_file_limit(),
        );
        registry.register(
            "xebec_build",
            "The daemon's version",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
    }
}

/// The counters of fills: a metric's name, its help, and its value.
fn fill_counters(fills: &FillStats) -> [(&'static str, &'static str, &AtomicU64); 8] {
    [
        (
            "xebec_fill_requests",
            "Span fetches that succeeded",
            &fills.requests,
        ),
        ("xebec_fill_spans", "Spans verified and written", &fills.spans),
        (
            "xebec_fill_joins",
            "Spans that were in flight for another reader",
            &fills.joins,
        ),
        ("xebec_fill_failures", "Span fetches that failed", &fills.failures),
        (
            "xebec_fill_refetches",
            "Span fetches repeated because the bytes failed the digest check",
            &fills.refetches,
        ),
        (
            "xebec_runtime_image_pages",
            "Pages injected from runtime images",
            &fills.injected_pages,
        ),
        (
            "xebec_runtime_image_pages_compared",
            "Pages of runtime images that were compared with their layer",
            &fills.checked_pages,
        ),
        (
            "xebec_runtime_image_pages_wrong",
            "Pages of runtime images that failed the digest check",
            &fills.mismatches,
        ),
    ]
}

/// Where the bytes of fills came from.
fn register_sources(registry: &mut Registry, fills: &FillStats) {
    let sources: Family<SourceLabel, Counter> = Family::default();
    let sums = fills.sources.lock();
    for (source, bytes) in sums.iter() {
        let label = SourceLabel {
            source: source.to_string(),
        };
        sources.get_or_create(&label).inc_by(*bytes);
    }
    registry.register_with_unit(
        "xebec_fill_fetched",
        "Compressed bytes for fills, by registry or mirror; spool: from a whole blob download; cache: from this host",
        Unit::Bytes,
        sources,
    );
}

fn byte_counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register_with_unit(name, help, Unit::Bytes, ConstCounter::new(value));
}

/// When a process started, in seconds since 1970.
fn start_of(pid: u32) -> Option<f64> {
    let ticks = process::start_time(pid)? as f64 / rustix::param::clock_ticks_per_second() as f64;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    Some(since_1970().as_secs_f64() - uptime + ticks)
}
