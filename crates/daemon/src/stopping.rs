//! A daemon that is told to stop gives up the work that its requests wait for: images that are prepared or brought in, and
//! registries that do not answer. A command that heard nothing would ask again, and start another daemon while the first one ends.

use tokio::sync::watch;
use xebec_protocol::failure::{Failure, FailureKind};

/// Whether the daemon was told to stop.
#[derive(Debug)]
pub(crate) struct Stopping(watch::Sender<bool>);

impl Default for Stopping {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stopping {
    /// Gives up the work that requests wait for from now on; or not any more.
    pub(crate) fn set(&self, stopping: bool) {
        self.0.send_replace(stopping);
    }

    /// The result of `work`, unless the daemon is told to stop meanwhile.
    pub(crate) async fn unless_told<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut stopping = self.0.subscribe();
        tokio::select! {
            // In this order: work that is given up must not begin anything new.
            biased;
            Ok(_) = stopping.wait_for(|stopping| *stopping) => Err(told()),
            worked = work => worked,
        }
    }
}

fn told() -> Failure {
    let message = "the daemon was told to stop before this was done; what came so far is kept, and the same command goes on \
                   from there with another daemon";
    Failure::new(FailureKind::Host, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_is_given_up_and_what_begins_later_is_not() {
        let stopping = Stopping::default();
        let waits = stopping.unless_told(std::future::pending::<Result<(), Failure>>());
        let (given_up, ()) = tokio::join!(waits, async { stopping.set(true) });
        let said = given_up.unwrap_err().message;
        assert!(said.contains("told to stop"), "{said}");
        stopping.unless_told(async { Ok(()) }).await.unwrap_err();
        stopping.set(false);
        stopping.unless_told(async { Ok(()) }).await.unwrap();
    }
}
