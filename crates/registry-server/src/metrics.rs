//! Figures for Prometheus. No label has a value that a client chooses.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_store::Collected;

/// From half a millisecond to a minute.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0, 60.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    kind: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Figures that requests and connections count.
#[derive(Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<KindLabel, Histogram, fn() -> Histogram>,
    under_way: Gauge,
    connections: Gauge,
    refused: Family<ReasonLabel, Counter>,
    received: Counter,
    sent: Counter,
    indexed: Family<OutcomeLabel, Counter>,
    predicted: Family<OutcomeLabel, Counter>,
    deduplicated: Family<OutcomeLabel, Counter>,
    assembled: Family<OutcomeLabel, Counter>,
    assembled_of: Counter,
    spared: Counter,
    collections: Family<OutcomeLabel, Counter>,
    collected: Counter,
    collected_last: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            under_way: Gauge::default(),
            connections: Gauge::default(),
            refused: Family::default(),
            received: Counter::default(),
            sent: Counter::default(),
            indexed: Family::default(),
            predicted: Family::default(),
            deduplicated: Family::default(),
            assembled: Family::default(),
            assembled_of: Counter::default(),
            spared: Counter::default(),
            collections: Family::default(),
            collected: Counter::default(),
            collected_last: Gauge::default(),
        }
    }

    /// A request has been answered, apart from its body, `after` it came.
    pub fn answered(&self, kind: &'static str, method: &str, status: u16, after: Duration) {
        let method = match method {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let labels = RequestLabels { kind, method, status };
        self.requests.get_or_create(&labels).inc();
        self.durations
            .get_or_create(&KindLabel { kind })
            .observe(after.as_secs_f64());
    }

    /// Counts one more request that is under way, until what is returned is dropped.
    pub fn begin_request(&self) -> Held {
        Held::new(&self.under_way)
    }

    /// Counts one more connection, until what is returned is dropped.
    pub fn begin_connection(&self) -> Held {
        Held::new(&self.connections)
    }

    /// A connection or request was refused since there are too many.
    pub fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Bytes of bodies, in and out.
    pub fn moved(&self, received: u64, sent: u64) {
        self.received.inc_by(received);
        self.sent.inc_by(sent);
    }

    /// An attempt to index a manifest came to this.
    pub fn indexed(&self, outcome: &'static str) {
        self.indexed.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// An attempt to predict a runtime image came to this.
    pub fn predicted(&self, outcome: &'static str) {
        self.predicted.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// An attempt to take a blob apart came to this.
    pub fn deduplicated(&self, outcome: &'static str) {
        self.deduplicated.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A layer was put together of so many bytes that came, and has so many.
    pub fn assembled(&self, received: u64, size: u64) {
        self.assembled
            .get_or_create(&OutcomeLabel { outcome: "done" })
            .inc();
        self.assembled_of.inc_by(received);
        self.spared.inc_by(size.saturating_sub(received));
    }

    /// None was, and the client pushes the blob.
    pub fn not_assembled(&self, outcome: &'static str) {
        self.assembled.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A collection has ended; what it took, if it did not fail.
    pub fn collected(&self, collected: Option<&Collected>) {
        let outcome = if collected.is_some() { "done" } else { "failed" };
        self.collections.get_or_create(&OutcomeLabel { outcome }).inc();
        if let Some(collected) = collected {
            self.collected.inc_by(collected.object_bytes);
            let now = milliseconds_since_1970() / 1000;
            self.collected_last.set(i64::try_from(now).unwrap_or(i64::MAX));
        }
    }

    /// The figures in the OpenMetrics text format, with `more`.
    ///
    /// # Errors
    /// None, in practice: the text is written to memory.
    pub fn text(&self, more: impl FnOnce(&mut Registry)) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("xebec_registry");
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The version of this program", Info::new(version));
        registry.register(
            "requests",
            "Requests by kind, method and status",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from a request's head to its answer's head",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "requests_under_way",
            "Requests whose answers are not complete",
            self.under_way.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "refused",
            "Connections and requests that were refused since there were too many",
            self.refused.clone(),
        );
        registry.register_with_unit(
            "received",
            "Bytes of requests' bodies",
            Unit::Bytes,
            self.received.clone(),
        );
        registry.register_with_unit("sent", "Bytes of answers' bodies", Unit::Bytes, self.sent.clone());
        let help = "Attempts to index a manifest by what they came to";
        registry.register("indexed", help, self.indexed.clone());
        let help = "Attempts to predict a runtime image by what they came to";
        registry.register("predicted", help, self.predicted.clone());
        let help = "Attempts to take a blob apart, so that each file is kept once, by what they came to";
        registry.register("deduplicated", help, self.deduplicated.clone());
        let help =
            "Layers of pushes that were to be put together of files that are here, by what they came to";
        registry.register("assembled", help, self.assembled.clone());
        let help = "Bytes that came for layers that were put together";
        registry.register_with_unit("assembled_received", help, Unit::Bytes, self.assembled_of.clone());
        let help = "Bytes of such layers that did not have to come";
        registry.register_with_unit("assembled_spared", help, Unit::Bytes, self.spared.clone());
        registry.register(
            "collections",
            "Collections by what they came to",
            self.collections.clone(),
        );
        let help = "Bytes of objects that collections deleted";
        registry.register_with_unit("collected", help, Unit::Bytes, self.collected.clone());
        let help = "When the last collection that did not fail ended, since 1970; 0 before the first";
        registry.register_with_unit("collected_last", help, Unit::Seconds, self.collected_last.clone());
        more(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// Something that is counted while it lasts.
#[derive(Debug)]
pub struct Held(Gauge);

impl Held {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_prometheus_reads_them() {
        let metrics = Metrics::new();
        metrics.answered("blob", "GET", 200, Duration::from_millis(3));
        metrics.answered("none", "BREW\n", 405, Duration::ZERO);
        let held = metrics.begin_request();
        metrics.moved(3, 5);
        let text = metrics.text(|_| {}).unwrap();
        for line in [
            "xebec_registry_requests_total{kind=\"blob\",method=\"GET\",status=\"200\"} 1",
            "xebec_registry_requests_total{kind=\"none\",method=\"other\",status=\"405\"} 1",
            "xebec_registry_requests_under_way 1",
            "xebec_registry_sent_bytes_total 5",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        drop(held);
        assert!(
            metrics
                .text(|_| {})
                .unwrap()
                .contains("xebec_registry_requests_under_way 0")
        );
    }
}
