//! Answers with content that has a digest: conditions, and single ranges.

use std::ops::Range;

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName,
    IF_NONE_MATCH, IF_RANGE, RANGE,
};
use hyper::http::request::Parts;
use xebec_store::Digest;

use super::call::header;
use super::reply::{self, Answer};
use crate::body::AnswerBody;
use crate::error::{ApiError, Code};
use crate::request::Wanted;

/// The part of some content that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All of it.
    Whole,
    /// A part.
    Part(Range<u64>),
    /// Nothing: the client has it.
    Nothing,
}

/// The part that a request wants of content with this digest.
///
/// # Errors
/// A range that lies outside of it (416).
pub(crate) fn sent(parts: &Parts, digest: &Digest, size: u64) -> Result<Sent, ApiError> {
    let tag = entity_tag(digest);
    let values = |name: HeaderName| parts.headers.get_all(name).into_iter();
    let is_known = values(IF_NONE_MATCH)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|known| known.trim().trim_start_matches("W/"))
        .any(|known| known == tag || known == "*");
    if is_known {
        return Ok(Sent::Nothing);
    }
    // Content by digest never changes, so a condition by date holds, too; one by another tag is of other content.
    let is_other =
        header(&parts.headers, IF_RANGE).is_some_and(|value| value.starts_with('"') && value != tag);
    let range = header(&parts.headers, RANGE).filter(|_| !is_other);
    match range.map(|range| Wanted::parse(range, size)) {
        None | Some(Wanted::Whole) => Ok(Sent::Whole),
        Some(Wanted::Part(range)) => Ok(Sent::Part(range)),
        Some(Wanted::Outside) => Err(ApiError::new(
            Code::RangeInvalid,
            format!("the content has {size} bytes, and the range lies outside of them"),
        )
        .with_header(CONTENT_RANGE, format!("bytes */{size}"))),
    }
}

fn entity_tag(digest: &Digest) -> String {
    format!("\"{digest}\"")
}

/// The answer without its body: status and headers of content, or of a part of it.
pub(crate) fn answer(digest: &Digest, media_type: &str, size: u64, sent: &Sent, lasting: bool) -> Answer {
    let answer = match sent {
        Sent::Whole => reply::with(reply::status(StatusCode::OK), CONTENT_LENGTH, size.to_string()),
        Sent::Part(range) => {
            let answer = reply::status(StatusCode::PARTIAL_CONTENT);
            let answer = reply::with(answer, CONTENT_LENGTH, (range.end - range.start).to_string());
            let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            reply::with(answer, CONTENT_RANGE, text)
        }
        Sent::Nothing => reply::status(StatusCode::NOT_MODIFIED),
    };
    let answer = reply::with(answer, ACCEPT_RANGES, "bytes");
    let answer = reply::with(answer, CONTENT_TYPE, media_type);
    let answer = reply::with(answer, ETAG, entity_tag(digest));
    // Content by digest never changes; a tag may name other content later. Either is for those who may read it.
    let caching = match lasting {
        true => "private, max-age=31536000, immutable",
        false => "no-cache",
    };
    reply::with_digest(reply::with(answer, CACHE_CONTROL, caching), digest)
}

/// The answer with its body.
pub(crate) fn with_body(answer: Answer, body: AnswerBody) -> Answer {
    answer.map(|_| body)
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use xebec_store::Algorithm;

    use super::*;

    fn request(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn conditions_and_ranges_decide_what_is_sent() {
        let digest = Digest::of(Algorithm::Sha256, b"abc");
        let tag = format!("\"{digest}\"");
        let sent = |headers: &[(&str, &str)]| super::sent(&request(headers), &digest, 3);
        assert_eq!(sent(&[]).unwrap(), Sent::Whole);
        assert_eq!(sent(&[("range", "bytes=1-")]).unwrap(), Sent::Part(1..3));
        assert_eq!(
            sent(&[("range", "bytes=1-"), ("if-range", &tag)]).unwrap(),
            Sent::Part(1..3)
        );
        assert_eq!(
            sent(&[("range", "bytes=1-"), ("if-range", "\"x\"")]).unwrap(),
            Sent::Whole
        );
        let many = format!("\"x\", W/{tag}");
        assert_eq!(sent(&[("if-none-match", &many)]).unwrap(), Sent::Nothing);
        let outside = sent(&[("range", "bytes=3-")]).unwrap_err();
        assert_eq!(outside.status(), StatusCode::RANGE_NOT_SATISFIABLE);
        assert_eq!(outside.headers()["content-range"], "bytes */3");
    }
}
