//! Waiting for descriptors.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};

/// Waits until one of them is ready, for no longer than `timeout`; gives how many are.
pub(crate) fn poll(polled: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    Ok(rustix::io::retry_on_intr(|| {
        rustix::event::poll(polled, timeout.as_ref())
    })?)
}
