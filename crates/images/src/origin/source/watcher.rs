//! The progress of a call to a registry, as readers and the next origin get to know it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use xebec_cache::progress::{Phase, Progress};
use xebec_oci::{Fault, Observer, Wait};

/// Hands on what the registry client says of a call.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) progress: Arc<Progress>,
    pub(super) faults: UnboundedSender<()>,
    pub(super) received: Mutex<Vec<(String, u64)>>,
}

impl Watcher {
    /// Where bytes came from so far.
    pub(super) fn sources(&self) -> Vec<(String, u64)> {
        let received = self.received.lock();
        received.clone()
    }
}

impl Observer for Watcher {
    fn waits(&self, wait: Wait) {
        self.progress.enter(match wait {
            Wait::Place => Phase::Queue,
            Wait::Token => Phase::Token,
            Wait::Head => Phase::Registry,
            Wait::Body => Phase::Body,
            Wait::Pause => Phase::Pause,
        });
    }

    fn received(&self, from: &str, bytes: u64) {
        let mut received = self.received.lock();
        match received.iter_mut().find(|(host, _)| host == from) {
            Some((_, sum)) => *sum += bytes,
            None => received.push((from.to_owned(), bytes)),
        }
    }

    fn retries(&self, fault: &Fault) {
        self.progress.retry(fault.to_string());
        // Nobody listens any more once another origin was quicker.
        let _ = self.faults.send(());
    }
}
