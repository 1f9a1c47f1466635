//! Limits of time for what may hang, and of how fast is read.

use std::io;
use std::time::{Duration, Instant};

/// What this gives, unless that takes longer. A directory of another host may hang for ever; then a thread hangs with it, and its caller goes on.
///
/// # Errors
/// Those of `work`, and `TimedOut`.
pub async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(stalled(limit)),
    }
}

/// The error of something that has given nothing for so long.
pub fn stalled(limit: Duration) -> io::Error {
    let text = format!("it makes no progress for {} s", limit.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Keeps reading at a rate.
pub struct Pace {
    rate: Option<u64>,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    /// At so many bytes a second; as fast as it goes, if none.
    pub fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// Waits as long as so many bytes should take.
    pub async fn keep(&mut self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
        self.bytes += bytes;
        let due = Duration::from_millis(self.bytes.saturating_mul(1000) / rate);
        let ahead = due.saturating_sub(self.begun.elapsed());
        if !ahead.is_zero() {
            tokio::time::sleep(ahead).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time is the runtime's: it goes on when nothing else can.
    #[tokio::test(start_paused = true)]
    async fn what_hangs_is_an_error_and_what_is_slow_is_none() {
        let limit = Duration::from_secs(600);
        let slow = async {
            tokio::time::sleep(limit / 2).await;
            Ok(7)
        };
        assert_eq!(within(limit, slow).await.unwrap(), 7);
        let hung: io::Result<()> = within(limit, std::future::pending()).await;
        let error = hung.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("600 s"), "{error}");
    }
}
