//! No more bytes in a second than somebody said.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shared by all who bring bytes.
pub(super) struct Rate {
    bytes_per_second: Option<u64>,
    /// When what was brought so far may have come.
    paid: Mutex<Option<Instant>>,
}

impl Rate {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            bytes_per_second,
            paid: Mutex::new(None),
        }
    }

    /// Waits until so many more bytes may have come.
    pub(super) async fn pay(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else {
            return;
        };
        let until = {
            let mut paid = self.paid.lock();
            let now = Instant::now();
            // Bytes that did not come before are not saved up.
            let from = paid.unwrap_or(now).max(now);
            let until = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            *paid = Some(until);
            until
        };
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn several_share_one_rate() {
        let rate = Rate::new(Some(1000));
        let start = Instant::now();
        tokio::join!(rate.pay(500), rate.pay(500), rate.pay(1000));
        let taken = start.elapsed();
        assert!(
            taken >= Duration::from_secs(2) && taken < Duration::from_millis(2100),
            "{taken:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nobody_waits() {
        let start = Instant::now();
        Rate::new(None).pay(usize::MAX).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
