//! Answers to requests that are not carried out: the codes of the distribution specification, each with a detail that says what is
//! wrong and what to do.

use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;
use xebec_access::Refusal;
use xebec_policy::immutability::ImmutableTag;
use xebec_policy::mode::ModeRefusal;

use crate::route::RouteError;

/// The most errors of one answer; a manifest may lack thousands of blobs.
const MAX_ERRORS: usize = 32;

/// The codes of the specification, and those of the CNCF registry that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The repository lacks the blob.
    BlobUnknown,
    /// The request does not go on with the upload.
    BlobUploadInvalid,
    /// There is no such upload.
    BlobUploadUnknown,
    /// A digest that is none, or not that of the bytes.
    DigestInvalid,
    /// A manifest names a blob or manifest that the repository lacks.
    ManifestBlobUnknown,
    /// Not a manifest.
    ManifestInvalid,
    /// The repository lacks the manifest.
    ManifestUnknown,
    /// No name of a repository.
    NameInvalid,
    /// There is no such repository.
    NameUnknown,
    /// No tag.
    TagInvalid,
    /// Too large, or not as long as it was said to be.
    SizeInvalid,
    /// The part is not the one that comes next, or lies outside.
    RangeInvalid,
    /// A page of a length that is no number.
    PaginationNumberInvalid,
    /// Log in first.
    Unauthorized,
    /// Not by this caller.
    Denied,
    /// Not by this registry, or not by this method.
    Unsupported,
    /// Later.
    TooManyRequests,
    /// The registry cannot now.
    Unavailable,
    /// The registry failed.
    Unknown,
}

impl Code {
    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            Self::BlobUnknown => "BLOB_UNKNOWN",
            Self::BlobUploadInvalid => "BLOB_UPLOAD_INVALID",
            Self::BlobUploadUnknown => "BLOB_UPLOAD_UNKNOWN",
            Self::DigestInvalid => "DIGEST_INVALID",
            Self::ManifestBlobUnknown => "MANIFEST_BLOB_UNKNOWN",
            Self::ManifestInvalid => "MANIFEST_INVALID",
            Self::ManifestUnknown => "MANIFEST_UNKNOWN",
            Self::NameInvalid => "NAME_INVALID",
            Self::NameUnknown => "NAME_UNKNOWN",
            Self::TagInvalid => "TAG_INVALID",
            Self::SizeInvalid => "SIZE_INVALID",
            Self::RangeInvalid => "RANGE_INVALID",
            Self::PaginationNumberInvalid => "PAGINATION_NUMBER_INVALID",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Denied => "DENIED",
            Self::Unsupported => "UNSUPPORTED",
            Self::TooManyRequests => "TOOMANYREQUESTS",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The status that goes with it.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BlobUnknown | Self::BlobUploadUnknown | Self::ManifestUnknown | Self::NameUnknown => {
                StatusCode::NOT_FOUND
            }
            Self::BlobUploadInvalid
            | Self::DigestInvalid
            | Self::ManifestBlobUnknown
            | Self::ManifestInvalid
            | Self::NameInvalid
            | Self::TagInvalid
            | Self::SizeInvalid
            | Self::PaginationNumberInvalid => StatusCode::BAD_REQUEST,
            Self::RangeInvalid => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Unsupported => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The meaning of the code, for people.
    fn message(self) -> &'static str {
        match self {
            Self::BlobUnknown => "the repository does not have this blob",
            Self::BlobUploadInvalid => "the request does not go on with the upload",
            Self::BlobUploadUnknown => "there is no such upload",
            Self::DigestInvalid => "the digest is not that of the content, or is none",
            Self::ManifestBlobUnknown => "the manifest names what the repository does not have",
            Self::ManifestInvalid => "the manifest is not valid",
            Self::ManifestUnknown => "the repository does not have this manifest",
            Self::NameInvalid => "the repository's name is not valid",
            Self::NameUnknown => "there is no such repository",
            Self::TagInvalid => "the tag is not valid",
            Self::SizeInvalid => "the content does not have the length that is expected",
            Self::RangeInvalid => "the range is not the one that is expected",
            Self::PaginationNumberInvalid => "the length of a page is no number",
            Self::Unauthorized => "log in first",
            Self::Denied => "this is not allowed",
            Self::Unsupported => "this is not supported",
            Self::TooManyRequests => "there are too many requests",
            Self::Unavailable => "the registry cannot do this now",
            Self::Unknown => "the registry failed",
        }
    }
}

/// An answer that says why a request was not carried out.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    code: Code,
    details: Vec<String>,
    /// Elsewhere: most errors have none, and each function that may fail returns as many bytes as this has.
    headers: Box<HeaderMap>,
}

#[derive(Serialize)]
struct Body<'a> {
    errors: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    code: &'a str,
    message: &'a str,
    detail: &'a str,
}

impl ApiError {
    /// An error with one detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self::several(code, vec![detail.into()])
    }

    /// One with a detail for each thing that is wrong.
    pub fn several(code: Code, mut details: Vec<String>) -> Self {
        details.truncate(MAX_ERRORS);
        Self {
            status: code.status(),
            code,
            details,
            headers: Box::default(),
        }
    }

    /// The same with another status than its code's own.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The same with one more header. A value that no header can have is left out.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.insert(name, value);
        }
        self
    }

    /// The registry failed, or what it depends on. The client learns no more than that: the cause is in the log.
    pub fn internal(doing: &str, cause: &dyn std::fmt::Display) -> Self {
        tracing::error!("{doing}: {cause}");
        Self::new(
            Code::Unknown,
            format!("{doing} failed; the registry's log has the cause, by this answer's X-Request-Id"),
        )
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Headers of its own.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The body of the answer.
    pub fn body(&self) -> String {
        let errors = self.details.iter().map(|detail| Entry {
            code: self.code.text(),
            message: self.code.message(),
            detail,
        });
        let errors = errors.collect();
        serde_json::to_string(&Body { errors }).unwrap_or_default()
    }
}

impl From<RouteError> for ApiError {
    fn from(error: RouteError) -> Self {
        let code = match &error {
            RouteError::Name(_) => Code::NameInvalid,
            RouteError::Digest(_) => Code::DigestInvalid,
            RouteError::Tag(_) => Code::TagInvalid,
            // An id that this registry does not give out is one that it does not know.
            RouteError::Upload(_) => Code::BlobUploadUnknown,
            RouteError::TooLong => Code::NameInvalid,
            RouteError::Encoding => Code::NameInvalid,
            RouteError::Unknown => {
                return Self::new(Code::Unsupported, error.to_string()).with_status(StatusCode::NOT_FOUND);
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unauthorized { challenge, detail } => {
                Self::new(Code::Unauthorized, detail).with_header(hyper::header::WWW_AUTHENTICATE, challenge)
            }
            Refusal::Denied { detail } => Self::new(Code::Denied, detail),
            Refusal::Unavailable { detail, retry_after } => {
                Self::new(Code::Unavailable, detail).with_header(RETRY_AFTER, retry_after.to_string())
            }
        }
    }
}

impl From<ModeRefusal> for ApiError {
    fn from(refusal: ModeRefusal) -> Self {
        match refusal.retry_after {
            None => Self::new(Code::Unsupported, refusal.detail),
            Some(seconds) => {
                Self::new(Code::Unavailable, refusal.detail).with_header(RETRY_AFTER, seconds.to_string())
            }
        }
    }
}

impl From<ImmutableTag> for ApiError {
    fn from(refusal: ImmutableTag) -> Self {
        Self::new(Code::Denied, refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_code_and_details() {
        let error = ApiError::several(
            Code::ManifestBlobUnknown,
            vec!["a".to_owned(), "b \"c\"".to_owned()],
        );
        let body: serde_json::Value = serde_json::from_str(&error.body()).unwrap();
        assert_eq!(body["errors"][0]["code"], "MANIFEST_BLOB_UNKNOWN");
        assert_eq!(body["errors"][1]["detail"], "b \"c\"");
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn answers_are_bounded() {
        let error = ApiError::several(Code::ManifestBlobUnknown, vec!["x".to_owned(); 10_000]);
        assert!(error.body().len() < 8192);
    }

    #[test]
    fn a_refusal_tells_how_to_log_in() {
        let refusal = Refusal::Unauthorized {
            challenge: "Basic realm=\"x\"".to_owned(),
            detail: "log in".to_owned(),
        };
        let error = ApiError::from(refusal);
        assert_eq!(error.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(error.headers()["www-authenticate"], "Basic realm=\"x\"");
    }
}
