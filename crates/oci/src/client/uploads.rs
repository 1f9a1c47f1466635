//! Where the upload of a blob is, and where it goes on when it was stopped.

use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::Url;
use reqwest::header::{LOCATION, RANGE};
use xebec_format::digest::Digest;

use crate::error::Fault;
use crate::reference::Repository;
use crate::transport::authority::authority;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;

/// Size of a piece when a blob is sent in pieces; proxies commonly refuse bodies above 100 MiB, some above 32.
pub(super) const PIECE: u64 = 16 << 20;
/// Largest smallest piece that a registry may ask for (`OCI-Chunk-Min-Length`).
const MAX_PIECE: u64 = 1 << 30;

/// An upload is given up that takes no further piece so often in one push.
const MOST_STUCK: u32 = 3;

/// Keeps where uploads go on that are stopped.
pub trait Uploads: std::fmt::Debug + Send + Sync {
    /// Where the upload of a blob to this repository goes on, if one was stopped.
    fn place(&self, repository: &Repository, blob: &Digest) -> Option<String>;
    /// It goes on there now; `None` if it is over.
    fn goes_on(&self, repository: &Repository, blob: &Digest, place: Option<&str>);
}

/// Where the upload of a blob is kept.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) uploads: &'a dyn Uploads,
    pub(super) repository: &'a Repository,
    pub(super) blob: &'a Digest,
    /// How often in this push an upload took no further piece.
    pub(super) stuck: &'a AtomicU32,
}

impl Kept<'_> {
    /// The place, unless it is one without TLS and the registry has TLS: it may have got TLS since.
    pub(super) fn place(&self, endpoint: &Endpoint) -> Option<Url> {
        let place = self.uploads.place(self.repository, self.blob)?;
        let place = Url::parse(&place).ok();
        let is_plain = endpoint.server.scheme.get() == Some(&"http");
        place.filter(|place| place.scheme() == "https" || (is_plain && place.scheme() == "http"))
    }

    /// The upload takes no further piece: whether that was so too often.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_STUCK
    }

    pub(super) fn note(&self, place: Option<&Url>) {
        let place = place.map(Url::as_str);
        self.uploads.goes_on(self.repository, self.blob, place);
    }
}

/// An upload that was begun.
pub(super) struct Begun {
    pub(super) place: Url,
    /// The bytes that the registry has.
    pub(super) offset: u64,
    /// The bytes of a piece.
    pub(super) piece: u64,
}

impl Begun {
    pub(super) fn read(answer: &Answer) -> Result<Self, Fault> {
        let least = answer
            .header("oci-chunk-min-length")
            .and_then(|text| text.parse::<u64>().ok());
        Ok(Self {
            place: next_place(answer)?,
            offset: 0,
            piece: PIECE.max(least.unwrap_or(0)).min(MAX_PIECE),
        })
    }

    /// One that goes on. `Range` says `0-0` for no byte and for one; then it begins anew, as with any other that is not understood.
    pub(super) fn resumed(answer: &Answer) -> Option<Self> {
        let (first, last) = answer.header(RANGE.as_str())?.split_once('-')?;
        let last: u64 = last.trim().parse().ok()?;
        let begun = Self::read(answer).ok()?;
        (first.trim().trim_start_matches("bytes=") == "0" && last > 0).then(|| Self {
            offset: last.saturating_add(1),
            ..begun
        })
    }
}

/// Where an upload goes on. Registries behind a proxy that ends TLS often say `http` for themselves.
pub(super) fn next_place(answer: &Answer) -> Result<Url, Fault> {
    let location = answer.header(LOCATION.as_str()).unwrap_or_default();
    let wrong = || {
        Fault::Protocol(format!(
            "the registry names {location:?} as the place of an upload"
        ))
    };
    let mut next = answer.url().join(location).map_err(|_| wrong())?;
    if location.is_empty() || !matches!(next.scheme(), "http" | "https") {
        return Err(wrong());
    }
    if answer.url().scheme() == "https" && next.scheme() == "http" {
        if next.host_str() != answer.url().host_str() {
            return Err(Fault::Protocol(format!(
                "upload to {} without TLS",
                authority(&next)
            )));
        }
        next.set_scheme("https").map_err(|()| wrong())?;
        next.set_port(answer.url().port()).map_err(|()| wrong())?;
    }
    Ok(next)
}

/// The place at which the upload ends.
pub(super) fn with_digest(mut place: Url, digest: &Digest) -> Url {
    place.query_pairs_mut().append_pair("digest", &digest.to_string());
    place
}
