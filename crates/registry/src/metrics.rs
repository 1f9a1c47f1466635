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

    /// The figures in the OpenMetrics text format.
    ///
    /// # Errors
    /// None, in practice: the text is written to memory.
    pub fn text(&self) -> Result<String, fmt::Error> {
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
        let text = metrics.text().unwrap();
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
                .text()
                .unwrap()
                .contains("xebec_registry_requests_under_way 0")
        );
    }

    /// Names of figures in a text, with the labels that follow each name where there are any.
    fn names(text: &str) -> std::collections::BTreeSet<&str> {
        let is_other = |character: char| !character.is_ascii_alphanumeric() && character != '_';
        text.split(is_other)
            .filter(|word| word.starts_with("xebec_registry_"))
            .collect()
    }

    #[test]
    fn the_dashboard_shows_figures_that_there_are() {
        let metrics = Metrics::new();
        metrics.answered("blob", "GET", 200, Duration::from_millis(3));
        metrics.refused("connections");
        let text = metrics.text().unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let samples = samples.join("\n");
        let exported = names(&samples);
        let dashboard = include_str!("../../../packaging/grafana/xebec-registry.json");
        let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let shown = names(dashboard);
        assert!(
            shown.len() > 5 && parsed["panels"].as_array().unwrap().len() > 5,
            "{shown:?}"
        );
        let unknown: Vec<&&str> = shown.difference(&exported).collect();
        assert!(unknown.is_empty(), "{unknown:?} are not among {exported:?}");
        for label in ["kind", "status", "reason", "version"] {
            assert!(dashboard.contains(&format!("{{{{{label}}}}}")), "{label}");
            assert!(
                samples.contains(&format!("{label}=\"")),
                "{label} is no label of {text}"
            );
        }
    }
}
