//! The number of requests that a registry still allows, as it announces it before it refuses any.
//!
//! Docker Hub says `ratelimit-remaining: 76;w=21600`: so many pulls within so many seconds. Others say `RateLimit-Remaining: 76` and
//! `RateLimit-Reset: 30`, or both in one: `RateLimit: "name";r=76;t=30` (the drafts of draft-ietf-httpapi-ratelimit-headers).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::HeaderMap;

/// The window of a limit whose answer names no time.
const USUAL_WINDOW: Duration = Duration::from_secs(60);
/// A greater number is no number of seconds: some registries send the time at which the window is over, in seconds since 1970.
const LONGEST_WINDOW: u64 = 366 * 86_400;

/// The rest of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// So many requests.
    pub(crate) left: u64,
    /// Until more are allowed, at most.
    pub(crate) over: Duration,
}

impl Allowance {
    /// The rest of the limit that the headers of an answer state; `None` if they state none.
    pub(crate) fn read(headers: &HeaderMap, now: SystemTime) -> Option<Self> {
        let text = |name| headers.get(name)?.to_str().ok();
        if let Some(all) = text("ratelimit") {
            return Some(Self {
                left: parameter(all, "r")?,
                over: parameter(all, "t").map_or(USUAL_WINDOW, |time| seconds(time, now)),
            });
        }
        let remaining = text("ratelimit-remaining")?;
        let over = match text("ratelimit-reset").and_then(number) {
            Some(reset) => Some(reset),
            None => parameter(remaining, "w"),
        };
        Some(Self {
            left: number(remaining)?,
            over: over.map_or(USUAL_WINDOW, |time| seconds(time, now)),
        })
    }
}

/// The number at the beginning of a value.
fn number(text: &str) -> Option<u64> {
    text.split(';').next()?.trim().parse().ok()
}

/// The number that stands after a value, under a name.
fn parameter(text: &str, name: &str) -> Option<u64> {
    text.split([';', ',']).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        (key.trim() == name).then(|| value.trim().parse().ok())?
    })
}

fn seconds(time: u64, now: SystemTime) -> Duration {
    match time {
        0..=LONGEST_WINDOW => Duration::from_secs(time),
        _ => {
            let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            let left = Duration::from_secs(time).saturating_sub(now);
            left.min(Duration::from_secs(LONGEST_WINDOW))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&'static str, &str)]) -> Option<(u64, u64)> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.insert(*name, value.parse().unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Allowance::read(&headers, now).map(|allowance| (allowance.left, allowance.over.as_secs()))
    }

    #[test]
    fn as_registries_say_it() {
        let hub = [
            ("ratelimit-limit", "100;w=21600"),
            ("ratelimit-remaining", "76;w=21600"),
        ];
        assert_eq!(read(&hub), Some((76, 21_600)));
        let drafts = [("ratelimit-remaining", "0"), ("ratelimit-reset", "30")];
        assert_eq!(read(&drafts), Some((0, 30)));
        let since_1970 = [("ratelimit-remaining", "0"), ("ratelimit-reset", "1700000045")];
        assert_eq!(read(&since_1970), Some((0, 45)));
        let over = [("ratelimit-remaining", "0"), ("ratelimit-reset", "1600000000")];
        assert_eq!(read(&over), Some((0, 0)));
        assert_eq!(read(&[("ratelimit", "\"default\";r=50;t=30")]), Some((50, 30)));
        assert_eq!(read(&[("ratelimit", "limit=10, r=0, t=7")]), Some((0, 7)));
        assert_eq!(read(&[("ratelimit-remaining", "5")]), Some((5, 60)));
    }

    #[test]
    fn nonsense_says_nothing() {
        assert_eq!(read(&[]), None);
        for text in ["", "many", "-1", ";w=5", "1.5"] {
            assert_eq!(read(&[("ratelimit-remaining", text)]), None, "{text}");
        }
        assert_eq!(read(&[("ratelimit", "\"default\"")]), None);
        let huge = u64::MAX.to_string();
        let (left, over) = read(&[("ratelimit-remaining", "0"), ("ratelimit-reset", &huge)]).unwrap();
        assert_eq!((left, over), (0, LONGEST_WINDOW));
    }
}
