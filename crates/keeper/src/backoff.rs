//! How long to wait before a worker is started again.

use std::time::Duration;

/// The second restart in a row waits this long; each further one twice as long as the one before.
const FIRST_DELAY: Duration = Duration::from_millis(10);

/// A worker that lived this long was healthy: the count starts again.
const HEALTHY: Duration = Duration::from_secs(5);

/// Delays between restarts: none at first, because readers wait, then growing, so that a worker that cannot
/// start does not eat the machine.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(longest: Duration) -> Backoff {
        Backoff {
            next: Duration::ZERO,
            longest,
        }
    }

    /// The delay after a worker that lived for `lifetime`.
    pub(crate) fn after(&mut self, lifetime: Duration) -> Duration {
        if lifetime >= HEALTHY {
            self.next = Duration::ZERO;
        }
        let delay = self.next;
        self.next = (delay * 2).max(FIRST_DELAY).min(self.longest);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_limit_and_starts_again_after_a_healthy_worker() {
        let mut backoff = Backoff::new(Duration::from_millis(35));
        let mut after = |seconds| backoff.after(Duration::from_secs(seconds)).as_millis();
        assert_eq!(
            [after(0), after(1), after(0), after(0), after(4)],
            [0, 10, 20, 35, 35]
        );
        assert_eq!([after(5), after(0)], [0, 10]);
    }

    #[test]
    fn never_waits_when_the_limit_is_zero() {
        let mut backoff = Backoff::new(Duration::ZERO);
        for _ in 0..5 {
            assert_eq!(backoff.after(Duration::ZERO), Duration::ZERO);
        }
    }
}
