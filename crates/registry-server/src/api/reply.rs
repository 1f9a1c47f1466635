//! Answers, with the headers that all of them have in common.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use xebec_store::Digest;

use crate::body::{self, AnswerBody};
use crate::error::ApiError;

/// An answer.
pub type Answer = Response<AnswerBody>;

/// The warning that a client shows its user, as the specification has it.
const WARNING: HeaderName = HeaderName::from_static("warning");
/// The digest of the content that is answered, or that was pushed.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// The header by which clients know a registry.
const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
/// The header by which hosts learn that it answers starts.
const NATIVE: HeaderName = HeaderName::from_static(xebec_native::HEADER);
/// The longest text of a warning.
const MAX_WARNING: usize = 256;

/// An answer without a body.
pub(crate) fn status(status: StatusCode) -> Answer {
    let mut answer = Response::new(body::empty());
    *answer.status_mut() = status;
    answer
}

/// An answer with a body that is here.
pub(crate) fn bytes(media_type: &str, bytes: impl Into<Bytes>) -> Answer {
    let bytes = bytes.into();
    let length = bytes.len() as u64;
    let answer = Response::new(body::full(bytes));
    with(
        with(answer, CONTENT_TYPE, media_type),
        CONTENT_LENGTH,
        length.to_string(),
    )
}

/// An answer in JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Answer {
    bytes("application/json", serde_json::to_vec(value).unwrap_or_default())
}

/// The same answer with a header. A value that no header can have is left out.
pub(crate) fn with(mut answer: Answer, name: HeaderName, value: impl AsRef<str>) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
        answer.headers_mut().append(name, value);
    }
    answer
}

/// The same answer with the digest of its content.
pub(crate) fn with_digest(answer: Answer, digest: &Digest) -> Answer {
    with(answer, CONTENT_DIGEST, digest.to_string())
}

/// Sends a client to where it reads content with this digest. A client that has the address may read there while it lasts, so it is for
/// this client alone, which may use it again during the first half of that time. The rest is for clocks that differ.
pub(crate) fn redirect(address: &str, digest: &Digest, lasting: Duration) -> Answer {
    let answer = with(status(StatusCode::TEMPORARY_REDIRECT), LOCATION, address);
    let caching = format!("private, max-age={}", lasting.as_secs() / 2);
    with_digest(with(answer, CACHE_CONTROL, caching), digest)
}

/// The same answer with a warning for the client's user.
pub(crate) fn with_warning(answer: Answer, text: &str) -> Answer {
    let text: String = text
        .chars()
        .filter(|character| character.is_ascii_graphic() || *character == ' ')
        .filter(|character| !matches!(character, '"' | '\\'))
        .take(MAX_WARNING)
        .collect();
    with(answer, WARNING, format!("299 - \"{text}\""))
}

/// The answer that an error is.
pub(crate) fn error(error: &ApiError) -> Answer {
    let mut answer = bytes("application/json", error.body());
    *answer.status_mut() = error.status();
    for (name, value) in error.headers() {
        answer.headers_mut().insert(name, value.clone());
    }
    answer
}

/// Marks an answer as one of the API of a registry of Xebec.
pub(crate) fn as_registry(answer: &mut Answer) {
    let headers = answer.headers_mut();
    headers.insert(API_VERSION, HeaderValue::from_static("registry/2.0"));
    headers.insert(NATIVE, HeaderValue::from_static(xebec_native::VERSIONS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_has_the_form_of_the_specification() {
        let answer = with_warning(status(StatusCode::OK), "say \"hello\"\r\nX: y\u{e4}");
        assert_eq!(answer.headers()["warning"], "299 - \"say helloX: y\"");
    }

    #[test]
    fn no_value_becomes_a_header_of_its_own() {
        let answer = with(status(StatusCode::OK), WARNING, "a\r\nb: c");
        assert!(answer.headers().is_empty());
    }
}
