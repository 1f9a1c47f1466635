//! Work that is waited for a while at most: it finds facts that a command would like to have, and can do without.

use std::sync::mpsc;
use std::time::Duration;

/// The result of `work`; nothing if it takes longer than `time`. The work then goes on beside the command, until that ends at the latest.
pub(crate) fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    let thread = std::thread::Builder::new().name("bounded".to_owned());
    // Nobody may wait for the answer any more.
    let running = thread.spawn(move || _ = answer.send(work()));
    running.ok().and_then(|_| answered.recv_timeout(time).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_is_not_waited_for() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (never, wait) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(1), move || wait.recv().is_ok());
        assert_eq!(late, None);
        drop(never);
    }
}
