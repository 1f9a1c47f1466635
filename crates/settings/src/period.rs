//! Lengths of time as the configuration writes them: `90s`, `5m`, `12h`, `30d`, `4w`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::text::Text;

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// Not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a length of time; write a whole number and s, m, h, d or w, as \"30d\"")]
pub struct PeriodError(String);

/// The longest one: a hundred years.
const LONGEST: u64 = 100 * 365 * 86_400;

const UNITS: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let wrong = || PeriodError(text.chars().take(40).collect());
        let unit = UNITS
            .into_iter()
            .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
        let (digits, unit) = unit.ok_or_else(wrong)?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        let seconds = number
            .checked_mul(unit)
            .filter(|seconds| *seconds <= LONGEST)
            .ok_or_else(wrong)?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let unit = UNITS
            .into_iter()
            .find(|(_, unit)| seconds >= *unit && seconds.is_multiple_of(*unit));
        let (name, unit) = unit.unwrap_or(("s", 1));
        write!(f, "{}{name}", seconds / unit)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer).map(|text| text.0)
    }
}

impl Period {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// Reads a [`Period`], for a field that is a [`Duration`].
///
/// # Errors
/// If it is none.
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Period::deserialize(deserializer).map(|period| period.0)
}

/// The same for a field that may be absent.
///
/// # Errors
/// If it is none.
pub fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}
