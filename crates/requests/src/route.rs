//! From a request's path to the thing that is asked for. Pure: bytes in, a value or an error out.
//!
//! Names of repositories hold slashes, and may hold words such as `manifests` or `blobs`, so a path is read from its end. It is
//! decoded once, before it is read; a slash that was encoded is refused, since a proxy in front may have seen another name. A name that
//! the grammar does not allow (`..`, capital letters, empty components) is an error here, before anything is looked up.

use std::fmt;

use xebec_names::{InvalidName, RepositoryName, Tag, UploadId};
use xebec_objects::{Digest, InvalidDigest};

/// The longest path that is read: a repository's name of 255 bytes, a digest of SHA-512, and room for what is encoded.
pub const MAX_PATH: usize = 2048;

/// The tag or digest by which a manifest is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// By its tag.
    Tag(Tag),
    /// By its digest.
    Digest(Digest),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => tag.fmt(f),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

/// The thing that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/v2/`: whether this is a registry, and whether one has to log in.
    Ping,
    /// `/v2/_catalog`: all repositories.
    Catalog,
    /// `/v2/NAME/tags/list`
    Tags(RepositoryName),
    /// `/v2/NAME/manifests/REFERENCE`
    Manifest(RepositoryName, Reference),
    /// `/v2/NAME/blobs/DIGEST`
    Blob(RepositoryName, Digest),
    /// `/v2/NAME/blobs/uploads/`: where uploads begin.
    Uploads(RepositoryName),
    /// `/v2/NAME/blobs/uploads/ID`
    Upload(RepositoryName, UploadId),
    /// `/v2/NAME/referrers/DIGEST`
    Referrers(RepositoryName, Digest),
    /// `/v2/NAME/_xebec/start/answer`: the answers that a start needs, at once.
    Start(RepositoryName),
    /// `/v2/NAME/_xebec/watch/changes`: what changes there, as it happens.
    Watch(RepositoryName),
    /// `/v2/NAME/_xebec/push/layers`: layers are put together of what is here and what comes.
    Push(RepositoryName),
    /// `/v2/_oci/ext/discover`, for all repositories or one: which endpoints there are beyond the specification.
    Discovery(Option<RepositoryName>),
    /// `/token`: where tokens are given out.
    Token,
    /// `/healthz`: whether the process lives.
    Health,
    /// `/readyz`: whether requests should be sent here.
    Ready,
    /// `/metrics`, for Prometheus.
    Metrics,
}

/// Why a path leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Longer than [`MAX_PATH`].
    #[error("the path has more than {MAX_PATH} bytes")]
    TooLong,
    /// A `%` without two hexadecimal digits, an encoded slash, or bytes that are no text.
    #[error("the path is not encoded as a URL's: \"%\" and two hexadecimal digits, and no encoded slash")]
    Encoding,
    /// No endpoint of this registry.
    #[error("there is no such endpoint; the API of a registry begins at /v2/")]
    Unknown,
    /// The repository's name is not one.
    #[error("{0}")]
    Name(String),
    /// The digest is not one.
    #[error("{0}")]
    Digest(String),
    /// Neither a tag nor a digest.
    #[error("{0}")]
    Tag(String),
    /// Not an upload that this registry began.
    #[error("{0}")]
    Upload(String),
}

impl Route {
    /// Reads the path of a request.
    ///
    /// # Errors
    /// Says what is wrong with the path.
    pub fn parse(path: &str) -> Result<Self, RouteError> {
        if path.len() > MAX_PATH {
            return Err(RouteError::TooLong);
        }
        let path = decode(path)?;
        let rest = match path.as_str() {
            "/v2" | "/v2/" => return Ok(Self::Ping),
            "/v2/_catalog" => return Ok(Self::Catalog),
            "/v2/_oci/ext/discover" => return Ok(Self::Discovery(None)),
            "/token" => return Ok(Self::Token),
            "/healthz" => return Ok(Self::Health),
            "/readyz" => return Ok(Self::Ready),
            "/metrics" => return Ok(Self::Metrics),
            other => other.strip_prefix("/v2/").ok_or(RouteError::Unknown)?,
        };
        // Most names hold no slash after the endpoint's word; an upload's place ends in one.
        let (head, last) = rest.rsplit_once('/').ok_or(RouteError::Unknown)?;
        let Some((name, word)) = head.rsplit_once('/') else {
            // `/v2/tags/list`: the name is missing.
            return Err(match head {
                "tags" | "manifests" | "blobs" | "referrers" | "uploads" => {
                    RouteError::Name("the repository's name is missing before this endpoint".to_owned())
                }
                _ => RouteError::Unknown,
            });
        };
        match (word, last) {
            ("tags", "list") => Ok(Self::Tags(repository(name)?)),
            ("manifests", _) => Ok(Self::Manifest(repository(name)?, Reference::parse(last)?)),
            ("blobs", "uploads") => Ok(Self::Uploads(repository(name)?)),
            ("blobs", _) => Ok(Self::Blob(repository(name)?, digest(last)?)),
            ("referrers", _) => Ok(Self::Referrers(repository(name)?, digest(last)?)),
            ("start", "answer") => Ok(Self::Start(native(name)?)),
            ("watch", "changes") => Ok(Self::Watch(native(name)?)),
            ("push", "layers") => Ok(Self::Push(native(name)?)),
            ("ext", "discover") => {
                let name = name.strip_suffix("/_oci").ok_or(RouteError::Unknown)?;
                Ok(Self::Discovery(Some(repository(name)?)))
            }
            ("uploads", _) => {
                let name = name.strip_suffix("/blobs").ok_or(RouteError::Unknown)?;
                let name = repository(name)?;
                match last {
                    "" => Ok(Self::Uploads(name)),
                    id => id
                        .parse()
                        .map(|id| Self::Upload(name, id))
                        .map_err(|error: InvalidName| RouteError::Upload(error.to_string())),
                }
            }
            _ => Err(RouteError::Unknown),
        }
    }

    /// The repository that it is about.
    pub fn repository(&self) -> Option<&RepositoryName> {
        match self {
            Self::Tags(name)
            | Self::Manifest(name, _)
            | Self::Blob(name, _)
            | Self::Uploads(name)
            | Self::Upload(name, _)
            | Self::Referrers(name, _)
            | Self::Start(name)
            | Self::Watch(name)
            | Self::Push(name) => Some(name),
            Self::Discovery(name) => name.as_ref(),
            Self::Ping | Self::Catalog | Self::Token | Self::Health | Self::Ready | Self::Metrics => None,
        }
    }

    /// The kind of request, for logs and metrics: few values, none of which a client chooses.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Catalog => "catalog",
            Self::Tags(_) => "tags",
            Self::Manifest(..) => "manifest",
            Self::Blob(..) => "blob",
            Self::Uploads(_) | Self::Upload(..) => "upload",
            Self::Referrers(..) => "referrers",
            Self::Start(_) => "start",
            Self::Watch(_) => "watch",
            Self::Push(_) => "push",
            Self::Discovery(_) => "discovery",
            Self::Token => "token",
            Self::Health | Self::Ready | Self::Metrics => "status",
        }
    }

    /// The methods that the endpoint knows, as `Allow` lists them.
    pub fn methods(&self) -> &'static str {
        match self {
            Self::Manifest(..) => "GET, HEAD, PUT, DELETE",
            Self::Blob(..) => "GET, HEAD, DELETE",
            Self::Uploads(_) | Self::Start(_) => "POST",
            Self::Upload(..) => "GET, HEAD, PATCH, PUT, DELETE",
            Self::Token => "GET, HEAD, POST",
            Self::Watch(_) => "GET",
            Self::Push(_) => "GET, POST, PUT",
            _ => "GET, HEAD",
        }
    }

    /// Whether the endpoint knows `method`.
    pub fn allows(&self, method: &str) -> bool {
        self.methods().split(", ").any(|known| known == method)
    }
}

impl Reference {
    /// Reads a tag or a digest. A colon is in no tag, and in every digest.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, RouteError> {
        if text.contains(':') {
            return digest(text).map(Self::Digest);
        }
        text.parse()
            .map(Self::Tag)
            .map_err(|error: InvalidName| RouteError::Tag(error.to_string()))
    }
}

fn repository(name: &str) -> Result<RepositoryName, RouteError> {
    name.parse()
        .map_err(|error: InvalidName| RouteError::Name(error.to_string()))
}

/// The repository of an endpoint beyond the specification.
fn native(name: &str) -> Result<RepositoryName, RouteError> {
    repository(name.strip_suffix("/_xebec").ok_or(RouteError::Unknown)?)
}

fn digest(text: &str) -> Result<Digest, RouteError> {
    text.parse()
        .map_err(|error: InvalidDigest| RouteError::Digest(error.to_string()))
}

/// The path with each `%XX` as the byte that it stands for.
fn decode(path: &str) -> Result<String, RouteError> {
    if !path.contains('%') {
        return Ok(path.to_owned());
    }
    let decoded = percent_decode(path, false).ok_or(RouteError::Encoding)?;
    match decoded.matches('/').count() == path.matches('/').count() {
        true => Ok(decoded),
        false => Err(RouteError::Encoding),
    }
}

/// Decodes `%XX`, and `+` to a space where that is `form` data.
pub(crate) fn percent_decode(text: &str, form: bool) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let (high, low) = (hex_digit(bytes.next()?)?, hex_digit(bytes.next()?)?);
                high << 4 | low
            }
            b'+' if form => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn name(text: &str) -> RepositoryName {
        text.parse().unwrap()
    }

    #[test]
    fn endpoints_are_found_under_names_with_slashes() {
        let parsed = |path: &str| Route::parse(path).unwrap();
        assert_eq!(parsed("/v2/"), Route::Ping);
        assert_eq!(parsed("/v2"), Route::Ping);
        assert_eq!(parsed("/v2/_catalog"), Route::Catalog);
        assert_eq!(parsed("/v2/a/tags/list"), Route::Tags(name("a")));
        assert_eq!(parsed("/v2/a/b/c/tags/list"), Route::Tags(name("a/b/c")));
        assert_eq!(
            parsed("/v2/a/b/manifests/latest"),
            Route::Manifest(name("a/b"), Reference::Tag("latest".parse().unwrap()))
        );
        let digest: Digest = DIGEST.parse().unwrap();
        assert_eq!(
            parsed(&format!("/v2/a/manifests/{DIGEST}")),
            Route::Manifest(name("a"), Reference::Digest(digest.clone()))
        );
        assert_eq!(
            parsed(&format!("/v2/a/blobs/{DIGEST}")),
            Route::Blob(name("a"), digest.clone())
        );
        assert_eq!(
            parsed(&format!("/v2/a/blobs/{}", DIGEST.replace(':', "%3A"))),
            Route::Blob(name("a"), digest.clone())
        );
        assert_eq!(
            parsed(&format!("/v2/a/referrers/{DIGEST}")),
            Route::Referrers(name("a"), digest)
        );
        assert_eq!(
            parsed(&format!("/v2/a/b/{}", xebec_native::START)),
            Route::Start(name("a/b"))
        );
        assert_eq!(
            parsed(&format!("/v2/a/b/{}", xebec_native::WATCH)),
            Route::Watch(name("a/b"))
        );
        assert_eq!(
            parsed(&format!("/v2/a/b/{}", xebec_native::PUSH)),
            Route::Push(name("a/b"))
        );
        assert_eq!(parsed("/v2/_oci/ext/discover"), Route::Discovery(None));
        let discovery = Route::Discovery(Some(name("a/b")));
        assert_eq!(parsed("/v2/a/b/_oci/ext/discover"), discovery);
        assert_eq!(parsed("/v2/a/b/blobs/uploads/"), Route::Uploads(name("a/b")));
        assert_eq!(parsed("/v2/a/b/blobs/uploads"), Route::Uploads(name("a/b")));
    }

    #[test]
    fn names_may_hold_the_words_of_endpoints() {
        assert_eq!(
            Route::parse("/v2/blobs/uploads/tags/list").unwrap(),
            Route::Tags(name("blobs/uploads"))
        );
        assert_eq!(
            Route::parse("/v2/manifests/manifests/manifests").unwrap(),
            Route::Manifest(name("manifests"), Reference::Tag("manifests".parse().unwrap()))
        );
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let refused = |path: &str| Route::parse(path).unwrap_err();
        for path in [
            "/v2/../tags/list",
            "/v2/a/../b/tags/list",
            "/v2/a//b/tags/list",
            "/v2/A/tags/list",
            "/v2/%2e%2e/tags/list",
            "/v2/a%00/tags/list",
            "/v2//tags/list",
            "/v2/tags/list",
            "/v2/./tags/list",
            "/v2/_xebec/_xebec/start/answer",
        ] {
            assert!(
                matches!(refused(path), RouteError::Name(_)),
                "{path}: {:?}",
                refused(path)
            );
        }
        assert_eq!(refused("/v2/a%2fb/tags/list"), RouteError::Encoding);
        assert_eq!(refused("/v2/a%2/tags/list"), RouteError::Encoding);
        assert_eq!(refused("/v2/a%ff/tags/list"), RouteError::Encoding);
        assert_eq!(refused("/v1/search"), RouteError::Unknown);
        assert_eq!(refused("/v2/a/uploads/x"), RouteError::Unknown);
        assert_eq!(refused("/v2/a/_xebec/other"), RouteError::Unknown);
        assert_eq!(refused("/v2/a/ext/discover"), RouteError::Unknown);
        assert!(matches!(
            refused("/v2/a/manifests/sha256:abc"),
            RouteError::Digest(_)
        ));
        assert!(matches!(refused("/v2/a/blobs/latest"), RouteError::Digest(_)));
        assert!(matches!(refused("/v2/a/manifests/.."), RouteError::Tag(_)));
        assert!(matches!(refused("/v2/a/blobs/uploads/.."), RouteError::Upload(_)));
        assert_eq!(refused(&"/v2/a".repeat(1000)), RouteError::TooLong);
    }

    #[test]
    fn methods_are_those_of_the_endpoint() {
        let blob = Route::parse(&format!("/v2/a/blobs/{DIGEST}")).unwrap();
        assert!(blob.allows("GET") && blob.allows("HEAD") && blob.allows("DELETE"));
        assert!(!blob.allows("PUT") && !blob.allows("GET, HEAD") && !blob.allows(""));
        let start = Route::parse("/v2/a/_xebec/start/answer").unwrap();
        assert!(start.allows("POST") && !start.allows("GET"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(path in ".{0,200}") {
            let _ = Route::parse(&path);
            let _ = Route::parse(&format!("/v2/{path}"));
        }

        #[test]
        fn valid_names_come_back_as_they_were(
            name in "[a-z0-9]{1,8}([._-][a-z0-9]{1,8}){0,2}(/[a-z0-9]{1,8}(__[a-z0-9]{1,8})?){0,3}",
            tag in "[A-Za-z0-9_][A-Za-z0-9._-]{0,30}",
        ) {
            let path = format!("/v2/{name}/manifests/{tag}");
            match Route::parse(&path).unwrap() {
                Route::Manifest(repository, reference) => {
                    prop_assert_eq!(repository.to_string(), name);
                    prop_assert_eq!(reference.to_string(), tag);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
