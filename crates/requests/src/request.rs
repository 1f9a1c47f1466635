//! Headers and queries of requests. Pure: text in, a value or nothing out.
//!
//! * [`Wanted`]: the part of a blob that `Range` asks for.
//! * [`upload_range`]: where the bytes of an upload's request belong, by `Content-Range`.
//! * [`Accept`]: which media types a client takes.
//! * [`Query`]: the parameters after the question mark.
//! * [`Paging`]: which part of a list is asked for.

use std::ops::Range;

use crate::route::percent_decode;

/// The most parameters that a query has: an image may get this many tags by one push.
pub const MAX_PARAMETERS: usize = 128;
/// The most media types of an `Accept` header that are looked at.
pub const MAX_ACCEPTED: usize = 64;
/// The most entries of one page of a list.
pub const MAX_PAGE: usize = 1000;

/// The part of a blob that a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: there is no range, or one that is not understood, which HTTP says to leave aside.
    Whole,
    /// This part, which is not empty.
    Part(Range<u64>),
    /// The range lies outside of the blob (416).
    Outside,
}

impl Wanted {
    /// Reads the value of a `Range` header for a blob of `size` bytes. Several ranges count as none: the blob comes whole.
    pub fn parse(header: &str, size: u64) -> Self {
        let Some((unit, spec)) = header.split_once('=') else {
            return Self::Whole;
        };
        let spec = spec.trim();
        if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
            return Self::Whole;
        }
        let Some((first, last)) = spec.split_once('-') else {
            return Self::Whole;
        };
        match (number(first), number(last), first.is_empty(), last.is_empty()) {
            (Some(first), Some(last), ..) if first <= last && first < size => {
                Self::Part(first..last.saturating_add(1).min(size))
            }
            (Some(_), Some(_), ..) => Self::Outside,
            (Some(first), None, _, true) if first < size => Self::Part(first..size),
            (Some(_), None, _, true) => Self::Outside,
            (None, Some(0), true, _) => Self::Outside,
            (None, Some(count), true, _) if size > 0 => Self::Part(size.saturating_sub(count)..size),
            (None, Some(_), true, _) => Self::Outside,
            _ => Self::Whole,
        }
    }
}

/// Digits alone; a number that is too large counts as the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Reads `Content-Range` of a request that carries a part of an upload: `0-1023`, as the distribution specification has it, or
/// `bytes 0-1023/*` as HTTP does.
pub fn upload_range(header: &str) -> Option<Range<u64>> {
    let text = header.trim();
    let text = match text.strip_prefix("bytes ") {
        Some(text) => text.split_once('/').map_or(text, |(range, _)| range),
        None => text,
    };
    let (first, last) = text.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last && last < u64::MAX).then(|| first..last + 1)
}

/// The media types that a client takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    /// Without those of weight 0.
    types: Vec<String>,
}

impl Accept {
    /// Reads the values of all `Accept` headers of a request.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let entries = values.into_iter().flat_map(|value| value.split(','));
        let types = entries.filter_map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let media_type = parts.next().filter(|text| !text.is_empty())?;
            let refused = parts.any(|part| {
                let weight = part.strip_prefix("q=").map(str::parse::<f32>);
                matches!(weight, Some(Ok(weight)) if weight <= 0.0)
            });
            (!refused).then(|| media_type.to_ascii_lowercase())
        });
        Self {
            types: types.take(MAX_ACCEPTED).collect(),
        }
    }

    /// Whether the client takes `media_type`. One that names nothing takes everything, and so does one that names no type of
    /// manifests at all, such as a browser.
    pub fn takes(&self, media_type: &str) -> bool {
        let is_general = |accepted: &str| matches!(accepted, "*/*" | "application/*" | "application/json");
        self.types.is_empty()
            || self
                .types
                .iter()
                .any(|accepted| is_general(accepted) || accepted.eq_ignore_ascii_case(media_type))
    }

    /// The types, for messages.
    pub fn shown(&self) -> String {
        self.types.join(", ")
    }
}

/// The parameters of a query, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Reads what stands after the question mark. None if it is not encoded as a query, or has more than [`MAX_PARAMETERS`].
    pub fn parse(query: &str) -> Option<Self> {
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if parameters.len() == MAX_PARAMETERS {
                return None;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((percent_decode(name, true)?, percent_decode(value, true)?));
        }
        Some(Self { parameters })
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        let parameter = self.parameters.iter().find(|(known, _)| known == name);
        parameter.map(|(_, value)| value.as_str())
    }

    /// All values of a parameter, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let of_name = self.parameters.iter().filter(move |(known, _)| known == name);
        of_name.map(|(_, value)| value.as_str())
    }
}

/// The part of a list that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// As many at most.
    pub count: usize,
    /// Those after this one.
    pub last: Option<String>,
}

impl Paging {
    /// Reads `n` and `last`. None if `n` is no number. Without `n`, or with more than [`MAX_PAGE`], a page has that many entries
    /// and the answer links to the next.
    pub fn of(query: &Query) -> Option<Self> {
        let count = match query.get("n") {
            None => MAX_PAGE,
            Some(text) => usize::try_from(number(text)?).unwrap_or(MAX_PAGE).min(MAX_PAGE),
        };
        let last = query.get("last").filter(|last| !last.is_empty());
        Some(Self {
            count,
            last: last.map(str::to_owned),
        })
    }
}

/// `text` as a part of a query: what has no meaning of its own in URLs stays as it is.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn single_ranges_are_read_as_http_has_them() {
        let wanted = |header: &str| Wanted::parse(header, 4000);
        assert_eq!(wanted("bytes=500-1499"), Wanted::Part(500..1500));
        assert_eq!(wanted("bytes=500-"), Wanted::Part(500..4000));
        assert_eq!(wanted("bytes=-500"), Wanted::Part(3500..4000));
        assert_eq!(wanted("bytes=-5000"), Wanted::Part(0..4000));
        assert_eq!(wanted("bytes=2000-5000"), Wanted::Part(2000..4000));
        assert_eq!(wanted("bytes=0-0"), Wanted::Part(0..1));
        assert_eq!(wanted("Bytes = 0-0"), Wanted::Part(0..1));
        assert_eq!(wanted("bytes=0-99999999999999999999999"), Wanted::Part(0..4000));
        for outside in ["bytes=4000-", "bytes=5000-10000", "bytes=500-0", "bytes=-0"] {
            assert_eq!(wanted(outside), Wanted::Outside, "{outside}");
        }
        for whole in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "lines=1-2",
            "bytes=0-1,3-4",
            "bytes=+1-2",
        ] {
            assert_eq!(wanted(whole), Wanted::Whole, "{whole}");
        }
        assert_eq!(Wanted::parse("bytes=0-", 0), Wanted::Outside);
        assert_eq!(Wanted::parse("bytes=-1", 0), Wanted::Outside);
    }

    #[test]
    fn parts_of_uploads_say_where_they_belong() {
        assert_eq!(upload_range("0-1023"), Some(0..1024));
        assert_eq!(upload_range("bytes 10-10/*"), Some(10..11));
        assert_eq!(upload_range("bytes 10-19/20"), Some(10..20));
        for wrong in [
            "",
            "-",
            "5-4",
            "a-b",
            "0-",
            "-5",
            "0-18446744073709551615",
            "0--5",
            "bytes=0-5",
        ] {
            assert_eq!(upload_range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn clients_get_what_they_take() {
        let index = "application/vnd.oci.image.index.v1+json";
        let accept = |values: &[&str]| Accept::parse(values.iter().copied());
        assert!(accept(&[]).takes(index));
        assert!(accept(&["", "text/html, */*;q=0.8"]).takes(index));
        assert!(accept(&["a/b", "application/vnd.OCI.image.index.v1+json; q=0.5"]).takes(index));
        assert!(accept(&["application/json"]).takes(index));
        assert!(!accept(&["application/vnd.oci.image.manifest.v1+json"]).takes(index));
        assert!(!accept(&["a/b, application/vnd.oci.image.index.v1+json;q=0"]).takes(index));
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("digest=sha256%3Aab&tag=a&tag=b&x&y=a+b").unwrap();
        assert_eq!(query.get("digest"), Some("sha256:ab"));
        assert_eq!(query.all("tag").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(query.get("x"), Some(""));
        assert_eq!(query.get("y"), Some("a b"));
        assert_eq!(query.get("z"), None);
        assert_eq!(Query::parse("a=%"), None);
        assert_eq!(Query::parse(&"a&".repeat(MAX_PARAMETERS + 1)), None);
    }

    #[test]
    fn pages_are_bounded() {
        let paging = |query: &str| Paging::of(&Query::parse(query).unwrap());
        let of = |count: usize, last: Option<&str>| {
            Some(Paging {
                count,
                last: last.map(str::to_owned),
            })
        };
        assert_eq!(paging(""), of(MAX_PAGE, None));
        assert_eq!(paging("n=0"), of(0, None));
        assert_eq!(paging("n=5&last=a"), of(5, Some("a")));
        assert_eq!(paging("n=99999999999999999999"), of(MAX_PAGE, None));
        for wrong in ["n=-1", "n=a", "n="] {
            assert_eq!(paging(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_part_lies_in_its_blob(header in "(bytes=)?[0-9]{0,21}-?[0-9]{0,21}(,[0-9]-)?", size: u64) {
            if let Wanted::Part(part) = Wanted::parse(&header, size) {
                prop_assert!(part.start < part.end && part.end <= size);
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,100}", size: u64) {
            let _ = Wanted::parse(&text, size);
            if let Some(range) = upload_range(&text) {
                prop_assert!(range.start < range.end);
            }
            let _ = Accept::parse([text.as_str()]).takes(&text);
            let _ = Query::parse(&text).map(|query| Paging::of(&query));
        }

        #[test]
        fn what_is_encoded_is_decoded_to_the_same(text in ".{0,60}") {
            let query = Query::parse(&format!("last={}", percent_encode(&text))).unwrap();
            prop_assert_eq!(query.get("last"), Some(text.as_str()));
        }
    }
}
