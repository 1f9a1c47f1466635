//! Header values that decide what happens next: `Retry-After`, `Content-Range`, `Link`, and the life of a
//! presigned URL.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use reqwest::header::{HeaderMap, LINK, RETRY_AFTER};

use crate::error::Fault;

/// Longest life that a redirect's URL may claim.
const MAX_REDIRECT_LIFE: Duration = Duration::from_secs(3600);
/// Life of a redirect's URL that does not say.
const DEFAULT_REDIRECT_LIFE: Duration = Duration::from_secs(60);
/// A presigned URL is given up this long before it ends, so that a request sent in time also arrives in time.
const REDIRECT_MARGIN: Duration = Duration::from_secs(15);

/// The wait that `Retry-After` asks for: seconds, or a date (RFC 9110, section 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// `Content-Range: bytes first-last/size`; the size may be `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
    /// Size of the whole.
    pub(crate) size: Option<u64>,
}

/// Reads a `Content-Range`; `None` if it is not one that describes bytes.
pub(crate) fn content_range(text: &str) -> Option<ContentRange> {
    let (range, size) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let start: u64 = first.trim().parse().ok()?;
    let end = last.trim().parse::<u64>().ok()?.checked_add(1)?;
    let size = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    (start < end && size.is_none_or(|size| end <= size)).then_some(ContentRange { start, end, size })
}

/// The URL of `Link: <…>; rel="next"` (RFC 8288), for lists in pages.
pub(crate) fn next_link(text: &str) -> Option<&str> {
    text.split(',').find_map(|link| {
        let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let next = parameters.split(';').any(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or_default();
            key.trim().eq_ignore_ascii_case("rel")
                && value.trim().trim_matches('"').eq_ignore_ascii_case("next")
        });
        next.then_some(url)
    })
}

/// Where a list in pages goes on after the page at `here`, by the headers of that page; `None` at its end. A list stays at its
/// server.
pub(crate) fn next_page(here: &Url, headers: &HeaderMap) -> Result<Option<Url>, Fault> {
    let link = headers.get(LINK).and_then(|link| next_link(link.to_str().ok()?));
    match link.map(|link| here.join(link)) {
        None => Ok(None),
        // A page that leads to itself has no end.
        Some(Ok(next)) if next == *here => Ok(None),
        Some(Ok(next)) if next.origin() == here.origin() => Ok(Some(next)),
        Some(_) => Err(Fault::Protocol(
            "the next page of the list is elsewhere".to_owned(),
        )),
    }
}

/// How long a redirect's URL may be used again: what S3 (`X-Amz-Expires`), Google (`X-Goog-Expires`),
/// CloudFront and older schemes (`Expires`, seconds since 1970) and Azure (`se`) write into it, less a margin.
pub(crate) fn redirect_life(url: &Url, now: SystemTime) -> Duration {
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let parameter = |name: &str| {
        url.query_pairs()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.into_owned())
    };
    let signed = |date: &str, life: &str| {
        let life: u64 = parameter(life)?.parse().ok()?;
        let start = parameter(date)
            .and_then(|text| compact_date(&text))
            .unwrap_or(since_epoch);
        start.checked_add(life)
    };
    let end = signed("X-Amz-Date", "X-Amz-Expires")
        .or_else(|| signed("X-Goog-Date", "X-Goog-Expires"))
        .or_else(|| parameter("Expires")?.parse().ok())
        .or_else(|| compact_date(&parameter("se")?.replace(['-', ':'], "")));
    match end {
        Some(end) => Duration::from_secs(end.saturating_sub(since_epoch))
            .saturating_sub(REDIRECT_MARGIN)
            .min(MAX_REDIRECT_LIFE),
        None => DEFAULT_REDIRECT_LIFE,
    }
}

/// Seconds since 1970 of `20260131T235959Z`.
fn compact_date(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    if text.len() != 16 || text.get(8..9)? != "T" || text.get(15..16)? != "Z" {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 in the proleptic Gregorian calendar, with years that start in March.
    let (y, m) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + (day - 1) - 719_468;
    Some(((days * 24 + part(9, 11)?) * 60 + part(11, 13)?) * 60 + part(13, 15)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn retry_after_in_seconds_or_as_a_date() {
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, at(784_111_777))
        };
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            asked("Sun, 06 Nov 1994 08:49:39 GMT"),
            Some(Duration::from_secs(2))
        );
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:30 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("soon"), None);
    }

    #[test]
    fn content_ranges() {
        let range = |start, end, size| Some(ContentRange { start, end, size });
        assert_eq!(content_range("bytes 0-499/1000"), range(0, 500, Some(1000)));
        assert_eq!(content_range("bytes 5-5/*"), range(5, 6, None));
        for text in [
            "",
            "bytes",
            "bytes */1000",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "items 0-1/2",
            "bytes 0-1",
        ] {
            assert_eq!(content_range(text), None, "{text}");
        }
        assert_eq!(content_range("bytes 0-18446744073709551615/*"), None);
    }

    #[test]
    fn links() {
        assert_eq!(next_link("</v2/x?n=1>; rel=\"next\""), Some("/v2/x?n=1"));
        assert_eq!(next_link("<a>; rel=prev, <b>; title=x; rel=next"), Some("b"));
        assert_eq!(next_link("<a>; rel=prev"), None);
        assert_eq!(next_link("nonsense"), None);
    }

    #[test]
    fn the_next_page_is_at_the_same_server() {
        let next = |link: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(to) = link {
                headers.insert(LINK, format!("<{to}>; rel=next").parse().unwrap());
            }
            let here: Url = "https://a/v2/x/tags/list?n=1".parse().unwrap();
            next_page(&here, &headers).map(|next| next.map(String::from))
        };
        let wanted = || Ok(Some("https://a/v2/x/tags/list?n=1&last=b".to_owned()));
        assert_eq!(next(Some("/v2/x/tags/list?n=1&last=b")), wanted());
        assert_eq!(next(Some("https://a:443/v2/x/tags/list?n=1&last=b")), wanted());
        for end in [None, Some("/v2/x/tags/list?n=1")] {
            assert_eq!(next(end), Ok(None));
        }
        for elsewhere in [
            "http://a/v2/x",
            "https://b/v2/x",
            "https://a:444/v2/x",
            "https://[",
        ] {
            assert!(next(Some(elsewhere)).is_err(), "{elsewhere}");
        }
    }

    #[test]
    fn lives_of_presigned_urls() {
        let life = |query: &str| {
            let url: Url = format!("https://cdn.example/x?{query}").parse().unwrap();
            redirect_life(&url, at(1_700_000_000)).as_secs()
        };
        assert_eq!(life("X-Amz-Date=20231114T221320Z&X-Amz-Expires=600"), 585);
        assert_eq!(life("X-Amz-Date=20231114T220320Z&X-Amz-Expires=600"), 0);
        assert_eq!(life("X-Goog-Date=20231114T221320Z&X-Goog-Expires=300"), 285);
        assert_eq!(life("Expires=1700000100&Signature=x"), 85);
        assert_eq!(life("se=2023-11-14T22%3A14%3A20Z&sig=x"), 45);
        assert_eq!(life("Expires=9999999999"), 3600);
        assert_eq!(life("token=x"), 60);
    }

    proptest! {
        #[test]
        fn dates_agree_with_httpdate(seconds in 0u64..250_000_000_000) {
            let date = httpdate::HttpDate::from(at(seconds)).to_string();
            let months = ["Jan","Feb","Mar","Apr","May","Jun","Jul","Aug","Sep","Oct","Nov","Dec"];
            let month = months.iter().position(|m| *m == &date[8..11]).unwrap() + 1;
            let compact = format!("{}{month:02}{}T{}Z", &date[12..16], &date[5..7], date[17..25].replace(':', ""));
            prop_assert_eq!(compact_date(&compact), Some(seconds));
        }

        #[test]
        fn never_panic(text in "\\PC{0,40}") {
            let _ = (content_range(&text), next_link(&text), compact_date(&text));
        }
    }
}
