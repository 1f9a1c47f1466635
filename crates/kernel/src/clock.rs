//! The clock of the machine, as it is written down: since 1970, zero while it is set to a time before; or since the machine was
//! started.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The time since 1970.
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time since 1970 in whole seconds, for records.
pub fn seconds_since_1970() -> u64 {
    since_1970().as_secs()
}

/// The time since 1970 in whole milliseconds.
pub fn milliseconds_since_1970() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// By a clock that nobody sets.
pub fn milliseconds_since_start() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = Duration::from_secs(now.tv_sec.unsigned_abs());
    let rest = Duration::from_nanos(now.tv_nsec.unsigned_abs());
    u64::try_from((seconds + rest).as_millis()).unwrap_or(u64::MAX)
}
