//! The clock by which waiting is counted.

use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a boot share.
pub(super) fn monotonic_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// How long ago `since` was, which is a time of [`super::Owed::since`].
pub fn waited_since(since: u64) -> Duration {
    Duration::from_nanos(monotonic_nanoseconds().saturating_sub(since))
}
