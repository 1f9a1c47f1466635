//! Metrics whose values are counted elsewhere and only read at a request.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// A value that only grows.
pub(crate) fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}

/// A value that goes up and down.
pub(crate) fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(
        name,
        help,
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)),
    );
}
