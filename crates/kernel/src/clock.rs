//! The clock of the machine, as it is written down: since 1970, zero while it is set to a time before; or since the machine was
//! started.

mod reading;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

pub use self::reading::parse_rfc3339;

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

/// A time as RFC 3339 has it, in UTC: seconds since 1970.
///
/// The date is found by counting days from 1 March of the year 0, so that a leap day ends its year and 400 years are alike.
pub fn rfc3339(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let (days, rest) = (seconds / DAY + 719_468, seconds % DAY);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + next_year,
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The same with milliseconds: `2026-01-31T09:15:00.250Z`.
pub fn rfc3339_milliseconds(milliseconds: u64) -> String {
    let whole = rfc3339(milliseconds / 1000);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), milliseconds % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
        assert_eq!(rfc3339_milliseconds(951_782_400_007), "2000-02-29T00:00:00.007Z");
    }
    #[test]
    fn what_is_written_is_read() {
        for day in (0..200_000).step_by(17) {
            let seconds = day * 86_400 + day % 86_400;
            let text = rfc3339(seconds);
            assert_eq!(parse_rfc3339(&text), Some((seconds.cast_signed(), 0)), "{text}");
        }
    }
}
