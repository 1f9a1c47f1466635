//! Times of a log: written as RFC 3339 in UTC with nine digits of a second, and read as users give them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use xebec_kernel::clock::{parse_rfc3339, rfc3339, since_1970};

/// A time since 1970. Its text is RFC 3339, so that texts sort as times do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// Not a time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time; write it as 10m, 2h30m, 2026-01-31, 2026-01-31T12:00:00Z, or in seconds since 1970"
)]
pub struct TimeParseError(String);

impl Time {
    /// The time now.
    pub fn now() -> Self {
        Self(since_1970())
    }

    /// The time in so many milliseconds since 1970.
    pub fn from_milliseconds(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }

    /// The time by RFC 3339, with any number of digits of a second and any offset. `None` before 1970.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let (seconds, nanoseconds) = parse_rfc3339(text)?;
        Some(Self(Duration::new(u64::try_from(seconds).ok()?, nanoseconds)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = rfc3339(self.0.as_secs());
        write!(f, "{}.{:09}Z", whole.trim_end_matches('Z'), self.0.subsec_nanos())
    }
}

/// As docker takes them: how long ago it was, a date, a time by RFC 3339 or a part of one, or seconds since 1970.
impl FromStr for Time {
    type Err = TimeParseError;

    fn from_str(text: &str) -> Result<Self, TimeParseError> {
        let seconds = || {
            let seconds: f64 = text.parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok().map(Self)
        };
        let date = || Self::from_rfc3339(&format!("{text}T00:00:00Z"));
        let written = || Self::from_rfc3339(&completed(text)?);
        let ago = || Some(Self(since_1970().saturating_sub(duration_of(text)?)));
        let found = written().or_else(seconds).or_else(date).or_else(ago);
        found.ok_or_else(|| TimeParseError(text.to_owned()))
    }
}

/// A user's time as all of RFC 3339: the user may separate date and time by a space or a small letter, and may leave out the
/// seconds or the offset.
fn completed(text: &str) -> Option<String> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let end = rest.find(|character: char| !(character.is_ascii_digit() || character == ':'));
    let (time, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
    let seconds = if time.len() == "00:00".len() { ":00" } else { "" };
    let offset = if rest.contains(['Z', 'z', '+', '-']) {
        ""
    } else {
        "Z"
    };
    Some(format!(
        "{date}T{time}{seconds}{}{offset}",
        rest.to_ascii_uppercase()
    ))
}

/// `1h30m`, `90s`, `500ms`.
fn duration_of(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut whole = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|character: char| !(character.is_ascii_digit() || character == '.'))?;
        let (value, tail) = rest.split_at_checked(end)?;
        let end = tail
            .find(|character: char| character.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end)?;
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = value.parse::<f64>().ok()? * seconds;
        whole = whole.checked_add(Duration::try_from_secs_f64(part).ok()?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(whole)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (1_475_712_989, 669_794_202, "2016-10-06T00:16:29.669794202Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000000000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000000Z"),
        ] {
            let time = Time(Duration::new(seconds, nanoseconds));
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        }
    }

    #[test]
    fn users_give_times_in_many_ways() {
        let at = |text: &str| text.parse::<Time>().unwrap().0;
        let whole = Duration::from_secs(1_475_712_989);
        assert_eq!(at("2016-10-06T02:16:29+02:00"), whole);
        for text in [
            "2016-10-06T00:16:29",
            "2016-10-06 00:16:29",
            "2016-10-06 00:16:29Z",
            "2016-10-06t00:16:29z",
            "2016-10-06T00:16:29.000",
        ] {
            assert_eq!(at(text), whole, "{text}");
        }
        let minute = Duration::from_secs(1_475_712_960);
        assert_eq!(at("2016-10-06T00:16"), minute);
        assert_eq!(at("2016-10-06T02:16+02:00"), minute);
        assert_eq!(at("1475712989"), whole);
        assert_eq!(at("2016-10-06"), Duration::from_secs(1_475_712_000));
        let ago = since_1970() - at("1h30m");
        assert!(
            ago >= Duration::from_secs(5399) && ago < Duration::from_secs(5410),
            "{ago:?}"
        );
        for wrong in [
            "",
            "yesterday",
            "2016-13-01",
            "2016-02-30",
            "1969-12-31",
            "2016-10-06T25:00:00Z",
            "1x",
            "é",
            "m",
            "-5",
        ] {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
    }
}
