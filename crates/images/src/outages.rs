//! Tells the caller that asked for an image for which registry the request waits.

use std::sync::Arc;

use xebec_oci::{Listener, Outage};
use xebec_protocol::wire::{Reply, Waiting};

use crate::images::Report;

/// Does `work`, and reports whenever a call to a registry that it makes is tried again.
pub async fn reporting<T>(report: &Report, work: impl Future<Output = T>) -> T {
    let report = report.clone();
    let listener: Listener = Arc::new(move |outage| report(progress(outage)));
    xebec_oci::listening(listener, work).await
}

fn progress(outage: Outage) -> Reply {
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match outage {
        Outage::Waits {
            registry,
            why,
            tried,
            tries,
            pause,
            left,
        } => Reply::waits(
            registry,
            Waiting {
                why,
                tried,
                tries,
                next_ms: Some(milliseconds(pause)),
                left_ms: Some(milliseconds(left)),
            },
        ),
        Outage::Over { registry } => Reply::waits_no_more(registry),
    }
}
