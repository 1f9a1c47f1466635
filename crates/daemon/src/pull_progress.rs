//! Reports how far a pull has come while it goes on: the fetches of a layer do not report to the command that waits for them.

use std::pin::pin;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use xebec_fill::fill_service::ServedLayer;
use xebec_images::images::Report;
use xebec_oci::Reference;
use xebec_protocol::wire::{Reply, Waiting};

/// How often it is told: as often as a person can read it.
const EACH: Duration = Duration::from_millis(250);

/// A pull of all of an image's layers, one after the other.
pub(crate) struct PullProgress<'a> {
    reference: &'a Reference,
    /// Compressed bytes of the layers that are in.
    done: u64,
    /// Those of all layers.
    total: u64,
    report: &'a Report,
    /// It was told that the registry is waited for.
    waits: bool,
}

impl<'a> PullProgress<'a> {
    /// Of an image whose layers have `total` bytes.
    pub(crate) fn new(reference: &'a Reference, total: u64, report: &'a Report) -> Self {
        Self {
            reference,
            done: 0,
            total,
            report,
            waits: false,
        }
    }

    /// Does `work`, which brings all of a layer of `size` bytes in, and tells how far it has come.
    pub(crate) async fn layer<T, E>(
        &mut self,
        served: &ServedLayer,
        size: u64,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        let mut ticks = tokio::time::interval(EACH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let worked = loop {
            tokio::select! {
                worked = &mut work => break worked,
                _ = ticks.tick() => self.tell(served, size),
            }
        };
        self.waits_for(None);
        self.is_over(size, worked.is_ok());
        worked
    }

    /// A layer of `size` bytes is in, or will not be.
    fn is_over(&mut self, size: u64, is_in: bool) {
        if is_in {
            self.done += size;
            self.say(self.done);
        }
    }

    fn tell(&mut self, served: &ServedLayer, size: u64) {
        let presence = served.layer().presence();
        let share = presence.present() as f64 / presence.pages().max(1) as f64;
        self.say(self.done + (size as f64 * share.min(1.0)) as u64);
        self.waits_for(served.filler().pausing());
    }

    fn say(&self, done: u64) {
        (self.report)(Reply::bytes(self.reference.to_string(), done, self.total));
    }

    fn waits_for(&mut self, problem: Option<(String, u32)>) {
        let registry = self.reference.registry().to_owned();
        match problem {
            Some((why, tried)) => {
                self.waits = true;
                let waiting = Waiting {
                    why,
                    tried,
                    tries: None,
                    next_ms: None,
                    left_ms: None,
                };
                (self.report)(Reply::waits(registry, waiting));
            }
            None if std::mem::take(&mut self.waits) => (self.report)(Reply::waits_no_more(registry)),
            None => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_layer_that_failed_does_not_count() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let report: Report = Arc::new({
            let told = told.clone();
            move |reply| match reply {
                Reply::Progress { done, total, .. } => told.lock().push((done, total)),
                reply => unreachable!("{reply:?}"),
            }
        });
        let reference: Reference = "r.example/app:1".parse().unwrap();
        let mut progress = PullProgress::new(&reference, 30, &report);
        progress.is_over(10, true);
        progress.is_over(20, false);
        assert_eq!(*told.lock(), [(10, Some(30))]);
        progress.is_over(20, true);
        assert_eq!(told.lock().last(), Some(&(30, Some(30))));
    }
}
