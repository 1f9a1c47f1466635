//! The limits that all calls to one registry share: places, a budget of retries, and the time for which it wants to be left alone.
//!
//! Retries of all calls draw from one bucket, so that a registry which comes back is not met by everyone at once; when the bucket is
//! empty a retry waits for its turn. A `Retry-After` holds back every call to that registry, not only the one that was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::allowance::Allowance;
use crate::config::Budget;

/// Longest time for which a `Retry-After` is obeyed: what asks for more is a mistake or an attack, and would keep all
/// readers of that registry waiting long after it could serve them.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The status of a registry that is asked too often.
const THROTTLED: u16 = 429;

/// Until when a registry wants to be left alone.
#[derive(Debug, Clone, Copy)]
struct Closing {
    until: Instant,
    /// It is there and throttles: that a request under way still succeeds says nothing about the next one.
    throttles: bool,
}

/// The limits that all calls to one registry share.
#[derive(Debug)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
    closed: Mutex<Option<Closing>>,
    /// Until when nothing is left of what the registry allows, as it said last.
    used_up: Mutex<Option<Instant>>,
    /// Calls that wait for the registry to come back, and what wakes them.
    sleepers: AtomicUsize,
    is_back: Notify,
}

/// A token bucket that may go into debt: the caller that draws the missing token waits for it.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    burst: f64,
    per_second: f64,
    filled: Instant,
}

impl Bucket {
    /// Takes a token and says how long to wait for it.
    fn draw(&mut self, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled = now;
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-self.tokens / self.per_second)
        }
    }
}

impl Gate {
    pub(crate) fn new(budget: &Budget) -> Self {
        let places = budget
            .max_concurrent_per_registry
            .clamp(1, Semaphore::MAX_PERMITS);
        let burst = f64::from(budget.retry_burst);
        Self {
            places: Arc::new(Semaphore::new(places)),
            streams: Arc::new(Semaphore::new(places)),
            bucket: Mutex::new(Bucket {
                tokens: burst,
                burst,
                per_second: budget.retries_per_second.clamp(0.01, 1e6),
                filled: Instant::now(),
            }),
            closed: Mutex::new(None),
            used_up: Mutex::new(None),
            sleepers: AtomicUsize::new(0),
            is_back: Notify::new(),
        }
    }

    /// Notes that a call got what it asked for: those that wait for the registry to come back go on.
    pub(crate) fn succeeded(&self) {
        let reopened = {
            let mut closed = self.closed.lock();
            closed.take_if(|closing| !closing.throttles).is_some()
        };
        if !reopened && self.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        {
            // The turns that sleepers were waiting for are not needed any more.
            let mut bucket = self.bucket.lock();
            bucket.tokens = bucket.tokens.max(0.0);
        }
        self.is_back.notify_waiters();
    }

    /// Waits for `pause`, or until another call had success.
    pub(super) async fn sleep(&self, pause: Duration) {
        struct Sleeper<'a>(&'a AtomicUsize);
        impl Drop for Sleeper<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        let _counted = Sleeper(&self.sleepers);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.is_back.notified() => {}
        }
    }

    /// Waits for a place among the requests under way, and for the end of a `Retry-After`.
    pub(crate) async fn enter(&self, stream: bool) -> Option<OwnedSemaphorePermit> {
        let places = if stream { &self.streams } else { &self.places };
        let permit = places.clone().acquire_owned().await.ok();
        loop {
            let mut back = std::pin::pin!(self.is_back.notified());
            // A success between the look at the closing and the wait counts, too.
            back.as_mut().enable();
            let closed = *self.closed.lock();
            match closed {
                Some(Closing { until, .. }) if until > Instant::now() => tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = back => {}
                },
                _ => return permit,
            }
        }
    }

    /// Holds back every call for `time`, [`MAX_RETRY_AFTER`] at most, because of an answer with status `code`.
    pub(super) fn close_for(&self, code: u16, time: Duration) {
        let Some(until) = Instant::now().checked_add(time.min(MAX_RETRY_AFTER)) else {
            return;
        };
        let throttles = code == THROTTLED;
        let mut closed = self.closed.lock();
        *closed = Some(closed.map_or(Closing { until, throttles }, |old| Closing {
            until: old.until.max(until),
            throttles: throttles || (old.throttles && old.until > Instant::now()),
        }));
    }

    /// Whether every call is held back now.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
            .lock()
            .is_some_and(|closing| closing.until > Instant::now())
    }

    /// Notes what the registry said is left of its limit.
    pub(super) fn allows(&self, allowance: Allowance) {
        let until = Instant::now().checked_add(allowance.over);
        *self.used_up.lock() = until.filter(|_| allowance.left == 0);
    }

    /// For how long nothing is left of it.
    pub(crate) fn used_up_for(&self) -> Option<Duration> {
        let until = *self.used_up.lock();
        let left = until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn draw_retry(&self) -> Duration {
        self.bucket.lock().draw(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_success_reopens_a_registry_that_was_away_but_not_one_that_throttles() {
        for (code, is_reopened) in [(503, true), (429, false)] {
            let gate = Gate::new(&Budget::default());
            let start = Instant::now();
            gate.close_for(code, Duration::from_secs(50));
            let (entered, ()) = tokio::join!(
                async {
                    gate.enter(false).await;
                    start.elapsed()
                },
                async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    gate.succeeded();
                }
            );
            assert_eq!(
                entered < Duration::from_secs(2),
                is_reopened,
                "{code}: {entered:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_limit_is_what_was_said_last() {
        let gate = Gate::new(&Budget::default());
        assert_eq!(gate.used_up_for(), None);
        let over = Duration::from_secs(30);
        gate.allows(Allowance { left: 0, over });
        assert_eq!(gate.used_up_for(), Some(over));
        // It holds nothing back by itself: not every request counts.
        assert!(gate.enter(false).await.is_some());
        gate.allows(Allowance { left: 1, over });
        assert_eq!(gate.used_up_for(), None);
        gate.allows(Allowance { left: 0, over });
        tokio::time::advance(over).await;
        assert_eq!(gate.used_up_for(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_bounded_and_streams_have_their_own() {
        let budget = Budget {
            max_concurrent_per_registry: 1,
            ..Budget::default()
        };
        let gate = Gate::new(&budget);
        let held = gate.enter(false).await;
        assert!(gate.enter(true).await.is_some());
        let waits = tokio::time::timeout(Duration::from_secs(1), gate.enter(false)).await;
        assert!(waits.is_err());
        drop(held);
        assert!(gate.enter(false).await.is_some());
    }
}
