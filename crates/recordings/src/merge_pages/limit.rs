//! How much profiles may add: `--limit`.

use std::fmt;
use std::str::FromStr;

/// How many pages profiles may add to what is recorded of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many percent of the recorded pages.
    Percent(u32),
    /// So many pages.
    Pages(u64),
}

impl Default for Limit {
    /// A fifth: more than a start that was recorded in earnest misses, and little enough not to bring in a service's
    /// whole life when its probe comes late.
    fn default() -> Self {
        Self::Percent(20)
    }
}

impl Limit {
    pub(super) fn of(self, recorded: u64) -> u64 {
        match self {
            Self::Percent(percent) => recorded.saturating_mul(u64::from(percent)).div_ceil(100),
            Self::Pages(pages) => pages,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Pages),
        };
        parsed.ok_or_else(|| format!("{text} is neither a share, as 20%, nor a number of pages, as 500"))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Pages(pages) => write!(f, "{pages}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_numbers() {
        let parsed = |text: &str| text.parse::<Limit>();
        for text in ["20%", "0%", "300%", "0", "500"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        for text in ["", "%", "-1", "20 %", "a", "99999999999%", "1.5%", "20%%"] {
            assert!(parsed(text).is_err(), "{text}");
        }
        let of = |text: &str, recorded| parsed(text).unwrap().of(recorded);
        assert_eq!((of("20%", 10), of("20%", 11), of("0%", 11)), (2, 3, 0));
        assert_eq!((of("7", 1), of("100%", u64::MAX)), (7, u64::MAX / 100 + 1));
    }
}
