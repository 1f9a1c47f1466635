//! Times of a log: written as RFC 3339 in UTC with nine digits of a second, and read as users give them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use xebec_kernel::clock::{rfc3339, since_1970};

const DAY: u64 = 86_400;

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
        let (date, rest) = text.split_once(['T', 't', ' '])?;
        let (time, offset) = split_offset(rest)?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
        let seconds = day_of(date)?.checked_mul(DAY)?.checked_add(seconds_of(time)?)?;
        let seconds = i64::try_from(seconds).ok()?.checked_sub(offset)?;
        let nanoseconds = nanoseconds_of(fraction)?;
        Some(Self(Duration::new(u64::try_from(seconds).ok()?, nanoseconds)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = rfc3339(self.0.as_secs());
        write!(f, "{}.{:09}Z", whole.trim_end_matches('Z'), self.0.subsec_nanos())
    }
}

/// As docker takes them: how long ago it was, a date, a time by RFC 3339, or seconds since 1970.
impl FromStr for Time {
    type Err = TimeParseError;

    fn from_str(text: &str) -> Result<Self, TimeParseError> {
        let seconds = || {
            let seconds: f64 = text.parse().ok()?;
            Duration::try_from_secs_f64(seconds).ok().map(Self)
        };
        let date = || Some(Self(Duration::from_secs(day_of(text)?.checked_mul(DAY)?)));
        let local = || Self::from_rfc3339(&format!("{text}Z"));
        let ago = || Some(Self(since_1970().saturating_sub(duration_of(text)?)));
        let found = Self::from_rfc3339(text).or_else(seconds).or_else(date);
        let found = found.or_else(local).or_else(ago);
        found.ok_or_else(|| TimeParseError(text.to_owned()))
    }
}

/// The time of a day, and the seconds by which its clock is ahead of UTC.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let (time, offset) = text.split_at_checked(at)?;
    let (sign, offset) = match offset.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, offset.strip_prefix('+')?),
    };
    let (hours, minutes) = offset.split_once(':')?;
    Some((
        time,
        sign * (number(hours, 23)? * 3600 + number(minutes, 59)? * 60).cast_signed(),
    ))
}

fn seconds_of(time: &str) -> Option<u64> {
    let mut parts = time.split(':');
    let (hours, minutes) = (number(parts.next()?, 23)?, number(parts.next()?, 59)?);
    let seconds = parts.next().map_or(Some(0), |text| number(text, 60))?;
    parts
        .next()
        .is_none()
        .then_some(hours * 3600 + minutes * 60 + seconds)
}

fn nanoseconds_of(fraction: &str) -> Option<u32> {
    let digits: String = fraction.chars().take(9).collect();
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// Two digits.
fn number(text: &str, most: u64) -> Option<u64> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= most)
}

/// Days since 1970 of `YYYY-MM-DD`, by the rules of the Gregorian calendar: years begin in March, so that a leap day ends one.
fn day_of(date: &str) -> Option<u64> {
    let mut parts = date.split('-');
    let year = parts.next().filter(|year| year.len() == 4)?;
    let year: u64 = year.parse().ok()?;
    let (month, day) = (number(parts.next()?, 12)?, number(parts.next()?, 31)?);
    if parts.next().is_some() || year < 1970 || month == 0 || day == 0 {
        return None;
    }
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days.checked_sub(BEFORE_1970)
}

/// The days from March of the year 0 to 1970.
const BEFORE_1970: u64 = 719_468;

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
        for day in (0..200_000).step_by(17) {
            let text = rfc3339(day * DAY);
            assert_eq!(text.split_once('T').and_then(|(date, _)| day_of(date)), Some(day));
        }
    }

    #[test]
    fn users_give_times_in_many_ways() {
        let at = |text: &str| text.parse::<Time>().unwrap().0;
        let whole = Duration::from_secs(1_475_712_989);
        assert_eq!(at("2016-10-06T02:16:29+02:00"), whole);
        assert_eq!(at("2016-10-06T00:16:29"), whole);
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
