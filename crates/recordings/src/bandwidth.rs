//! How fast a registry's bytes come: when reading over a gap is cheaper than another request.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

/// The bridge before anything was measured, in bytes: 10 ms at 25 MB/s, between a near registry and a far one.
const UNKNOWN: u64 = 256 << 10;
/// Limits of a bridge, in bytes. The smallest is a segment: with smaller ones a measurement that went wrong
/// would ask for each by itself.
const LEAST: u64 = 64 << 10;
const MOST: u64 = 8 << 20;
/// Weight of the newest measurement.
const NEWEST: f64 = 0.5;
/// Answers with less than this say nothing about bandwidth.
const TELLING: u64 = 64 << 10;
/// So do those whose bytes came within less: they had piled up before somebody looked.
const TELLING_TIME: Duration = Duration::from_millis(1);

/// Measurements of registries, by host.
#[derive(Debug, Default)]
pub struct Bandwidths(Mutex<HashMap<String, Bandwidth>>);

#[derive(Clone, Copy, Debug)]
struct Bandwidth {
    /// From a request to the first byte of its answer, in seconds.
    delay: f64,
    /// Bytes a second once they come.
    bandwidth: f64,
}

impl Bandwidths {
    /// Notes one answer of a registry: how long its first bytes took, how long the rest, and how much the rest was.
    pub fn note(&self, registry: &str, delay: Duration, rest: Duration, bytes: u64) {
        if bytes < TELLING || rest < TELLING_TIME {
            return;
        }
        let new = Bandwidth {
            delay: delay.as_secs_f64(),
            bandwidth: bytes as f64 / rest.as_secs_f64(),
        };
        let mut bandwidths = self.0.lock();
        let pace = bandwidths.entry(registry.to_owned()).or_insert(new);
        pace.delay += (new.delay - pace.delay) * NEWEST;
        pace.bandwidth += (new.bandwidth - pace.bandwidth) * NEWEST;
    }

    /// The longest gap, in bytes, that takes less time to read over than another request would.
    pub fn bridge(&self, registry: &str) -> u64 {
        let bandwidths = self.0.lock();
        match bandwidths.get(registry) {
            Some(pace) => ((pace.delay * pace.bandwidth) as u64).clamp(LEAST, MOST),
            None => UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_registry_gets_longer_bridges() {
        let bandwidths = Bandwidths::default();
        assert_eq!(bandwidths.bridge("a"), UNKNOWN);
        let second = Duration::from_secs(1);
        bandwidths.note("near", Duration::from_millis(1), second, 100_000_000);
        bandwidths.note("far", Duration::from_millis(50), second, 100_000_000);
        assert_eq!(bandwidths.bridge("near"), 100_000);
        assert_eq!(bandwidths.bridge("far"), 5_000_000);
        bandwidths.note("near", second, second, 10);
        assert_eq!(bandwidths.bridge("near"), 100_000, "a short answer says nothing");
        bandwidths.note("near", second, Duration::from_micros(900), 100_000_000);
        assert_eq!(
            bandwidths.bridge("near"),
            100_000,
            "nor does one that had piled up"
        );
        bandwidths.note("near", Duration::from_millis(3), second, 100_000_000);
        assert_eq!(bandwidths.bridge("near"), 200_000);
    }
}
