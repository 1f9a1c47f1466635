//! Requests for what an upstream has. Before the store is looked at, the upstream is asked for what is missing or may have changed.
//!
//! While nothing may be written, upstreams are not asked, since what they send is kept: what is here is answered as it is, and the rest
//! is refused for a time.

use hyper::header::RETRY_AFTER;
use hyper::{Method, StatusCode};
use xebec_policy::mode::ModeRefusal;
use xebec_store::{Blob, Digest, RepositoryName, StoreError};
use xebec_upstream::{Found, Freshness, Upstream, UpstreamError};

use super::call::{Call, Outcome, What};
use super::failure;
use super::part::{self, Sent};
use super::reply::Answer;
use crate::body;
use crate::error::{ApiError, Code};
use crate::route::Reference;
use xebec_events::EventKind;

/// When a client may ask again for what an upstream that is away has.
const AWAY: &str = "5";
/// The same while nothing is to be kept here.
const NOT_KEPT: &str = "30";

/// Brings the manifest that a reference names into the store, if its repository is of an upstream and that has it. If the reference is
/// the fallback tag of a manifest, that manifest is `listed`, and its referrers come. Returns the text that the client is to be told,
/// if any.
pub(crate) async fn manifest(
    call: &Call<'_>,
    repository: &RepositoryName,
    reference: &Reference,
    listed: Option<&Digest>,
) -> Result<Option<String>, ApiError> {
    let Some(upstream) = call.registry.upstreams.of(repository) else {
        return Ok(None);
    };
    if let Some(refusal) = keeps_nothing(call) {
        let is_here = is_here(call, repository, reference, listed).await;
        if matches!(is_here, Ok(true)) {
            upstream.counts().hit();
        }
        return unless_here(is_here, refusal);
    }
    let found = match reference {
        Reference::Digest(digest) => upstream
            .refresh_manifest(repository, digest)
            .await
            .map(|()| Freshness::Fresh),
        Reference::Tag(tag) => {
            let refreshed = match listed {
                Some(subject) => list(call, upstream, repository, subject).await?,
                None => None,
            };
            match (upstream.refresh_tag(repository, tag).await, refreshed) {
                // Referrers that are here make a list, though the tag itself cannot be asked for.
                (Err(_), Some(freshness)) => Ok(freshness),
                (found, _) => found,
            }
        }
    };
    told(found)
}

/// The same for what refers to a manifest.
pub(crate) async fn referrers(
    call: &Call<'_>,
    repository: &RepositoryName,
    subject: &Digest,
) -> Result<Option<String>, ApiError> {
    match call.registry.upstreams.of(repository) {
        Some(_) if let Some(refusal) = keeps_nothing(call) => unless_here(Ok(true), refusal),
        Some(upstream) => told(upstream.refresh_referrers(repository, subject).await),
        None => Ok(None),
    }
}

/// Brings what refers to a manifest into the store; `None` if there is nothing then.
async fn list(
    call: &Call<'_>,
    upstream: &Upstream,
    repository: &RepositoryName,
    subject: &Digest,
) -> Result<Option<Freshness>, ApiError> {
    let refreshed = upstream.refresh_referrers(repository, subject).await;
    let freshness = refreshed.map_err(|error| refused(&error))?;
    let store = &call.registry.store;
    let listed = store.bare_referrers(repository, subject, None, 1, None).await;
    let listed = listed.map_err(|error| failure::of("listing referrers", &error))?;
    Ok((!listed.items.is_empty()).then_some(freshness))
}

/// Why nothing is to be kept now, if so.
fn keeps_nothing(call: &Call<'_>) -> Option<ModeRefusal> {
    call.registry.mode.now().refusal(true)
}

async fn is_here(
    call: &Call<'_>,
    repository: &RepositoryName,
    reference: &Reference,
    listed: Option<&Digest>,
) -> Result<bool, StoreError> {
    let store = &call.registry.store;
    let named = match reference {
        Reference::Digest(digest) => store.has_manifest(repository, digest).await?,
        Reference::Tag(tag) => store.tag(repository, tag).await?.is_some(),
    };
    match listed {
        Some(subject) if !named => {
            let referrers = store.referrers(repository, subject, None, 1, None).await?;
            Ok(!referrers.items.is_empty())
        }
        _ => Ok(named),
    }
}

/// A manifest that is here is answered, and the client is told that it was not compared.
fn unless_here(is_here: Result<bool, StoreError>, refusal: ModeRefusal) -> Result<Option<String>, ApiError> {
    let ModeRefusal { detail, .. } = refusal;
    match is_here.map_err(|error| failure::of("looking for what an upstream has", &error))? {
        true => Ok(Some(format!(
            "this is a copy that was not compared with its upstream: {detail}"
        ))),
        false => Err(kept_nowhere(&detail)),
    }
}

/// The answer about what only an upstream has while nothing is kept.
fn kept_nowhere(detail: &str) -> ApiError {
    let detail =
        format!("{detail}; what is not here is not fetched from its upstream meanwhile; try again later");
    ApiError::new(Code::Unavailable, detail).with_header(RETRY_AFTER, NOT_KEPT)
}

fn told(found: Result<Freshness, UpstreamError>) -> Result<Option<String>, ApiError> {
    match found {
        Ok(freshness) => Ok(freshness.warning()),
        // The store says what it has instead.
        Err(UpstreamError::NotFound(_)) => Ok(None),
        Err(error) => Err(refused(&error)),
    }
}

/// Where a blob is that the store's repository lacks.
pub(crate) enum Elsewhere {
    /// It is the repository's from now on.
    Here(Blob),
    /// At the upstream: this is the answer, while it comes in.
    There(Answer),
    /// Nowhere.
    Nowhere,
}

/// Looks for a blob at the upstream, and sends it as `media_type` if it has to come from there.
pub(crate) async fn blob(
    call: &Call<'_>,
    repository: &RepositoryName,
    digest: &Digest,
    media_type: &'static str,
) -> Result<Elsewhere, ApiError> {
    let Some(upstream) = call.registry.upstreams.of(repository) else {
        return Ok(Elsewhere::Nowhere);
    };
    if let Some(refusal) = keeps_nothing(call) {
        return Err(kept_nowhere(&refusal.detail));
    }
    match upstream.blob(repository, digest).await {
        Ok(Found::Here(blob)) => Ok(Elsewhere::Here(blob)),
        Ok(Found::There(size)) => {
            let answer = send(call, upstream, repository, (digest, size), media_type).await;
            answer.map(Elsewhere::There)
        }
        Err(UpstreamError::NotFound(_)) => Ok(Elsewhere::Nowhere),
        Err(error) => Err(refused(&error)),
    }
}

async fn send(
    call: &Call<'_>,
    upstream: &Upstream,
    repository: &RepositoryName,
    (digest, size): (&Digest, u64),
    media_type: &'static str,
) -> Outcome {
    let sent = part::sent(call.parts, digest, size)?;
    let answer = part::answer(digest, media_type, size, &sent, true);
    let range = match sent {
        _ if call.parts.method == Method::HEAD => return Ok(answer),
        Sent::Nothing => return Ok(answer),
        Sent::Whole => 0..size,
        Sent::Part(range) => range,
    };
    let length = range.end - range.start;
    let stream = upstream.read(repository, digest, size, range).await;
    let stream = stream.map_err(|error| refused(&error))?;
    let what = What {
        digest: Some(digest),
        media_type: Some(media_type),
        size: Some(length),
        ..What::default()
    };
    call.tell(EventKind::PullBlob, repository, what);
    Ok(part::with_body(answer, body::streamed(length, stream)))
}

/// The answer when an upstream does not give content that only it has. The answer never says that there is no such content.
fn refused(error: &UpstreamError) -> ApiError {
    let said = |code| ApiError::new(code, error.to_string());
    match error {
        UpstreamError::Limited { after, .. } => {
            said(Code::TooManyRequests).with_header(RETRY_AFTER, after.as_secs().max(1).to_string())
        }
        UpstreamError::Refused { .. } => said(Code::Denied),
        UpstreamError::Away { .. } | UpstreamError::Busy(..) => {
            said(Code::Unavailable).with_header(RETRY_AFTER, AWAY)
        }
        UpstreamError::NoRoom(_) => said(Code::Denied).with_status(StatusCode::INSUFFICIENT_STORAGE),
        UpstreamError::NotFound(_) | UpstreamError::Wrong { .. } => {
            said(Code::Unknown).with_status(StatusCode::BAD_GATEWAY)
        }
        UpstreamError::Store(error) => failure::of("reading what an upstream has", error),
        UpstreamError::Host { .. } => said(Code::Unknown),
    }
}
