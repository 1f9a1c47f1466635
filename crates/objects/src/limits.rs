//! Limits of time for what may hang.

use std::io;
use std::time::Duration;

/// What this gives, unless that takes longer. A directory of another host may hang for ever; then a thread hangs with it, and its caller goes on.
///
/// # Errors
/// Those of `work`, and `TimedOut`.
pub async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => {
            let text = format!("it makes no progress for {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
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
