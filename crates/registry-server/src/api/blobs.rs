//! `/v2/NAME/blobs/DIGEST`: blobs are read, whole or in part, and deleted.

use hyper::header::{IF_MATCH, IF_RANGE};
use hyper::{Method, StatusCode};
use xebec_store::{Blob, Digest, RepositoryName, StoreError};

use super::call::{Call, Outcome, What};
use super::failure;
use super::part::{self, Sent};
use super::reply::{self, Answer};
use super::through::{self, Elsewhere};
use crate::body;
use crate::error::{ApiError, Code};
use xebec_events::EventKind;

/// The media type of all blobs: only their manifests know what they are.
const MEDIA_TYPE: &str = "application/octet-stream";

/// Sends a blob, a part of it, or only its size and digest.
pub(crate) async fn read(call: &Call<'_>, repository: &RepositoryName, digest: &Digest) -> Outcome {
    let store = &call.registry.store;
    // A client that asks whether a blob is here may push a manifest next that names it.
    let found = match call.parts.method == Method::HEAD {
        true => store.blob(repository, digest).await,
        false => store.peek_blob(repository, digest).await,
    };
    let blob = found.map_err(|error| failure::of("looking up the blob", &error))?;
    if let Some(blob) = blob
        && let Some(answer) = send(call, repository, &blob).await?
    {
        if let Some(upstream) = call.registry.upstreams.of(repository) {
            upstream.counts().hit();
        }
        return Ok(answer);
    }
    let answer = match through::blob(call, repository, digest, MEDIA_TYPE).await? {
        Elsewhere::Here(blob) => send(call, repository, &blob).await?,
        Elsewhere::There(answer) => Some(answer),
        Elsewhere::Nowhere => None,
    };
    answer.ok_or_else(|| unknown(repository, digest))
}

/// Nothing if the blob's object is gone: then it is absent from now on, and to be had again like any other that is not here.
async fn send(call: &Call<'_>, repository: &RepositoryName, blob: &Blob) -> Result<Option<Answer>, ApiError> {
    let sent = part::sent(call.parts, &blob.digest, blob.size)?;
    let answer = part::answer(&blob.digest, MEDIA_TYPE, blob.size, &sent, true);
    let range = match sent {
        // A client that is told that it is here does not send it.
        _ if call.parts.method == Method::HEAD => return Ok(is_whole(call, blob).await?.then_some(answer)),
        Sent::Nothing => return Ok(Some(answer)),
        Sent::Whole => 0..blob.size,
        Sent::Part(range) => range,
    };
    let length = range.end - range.start;
    let answer = match redirected(call, blob).await? {
        Some(_) if !is_whole(call, blob).await? => return Ok(None),
        Some(redirect) => redirect,
        None => match call.registry.store.read(blob, range).await {
            Ok(stream) => part::with_body(answer, body::streamed(length, stream)),
            Err(StoreError::Lost(_)) => return Ok(None),
            Err(error) => return Err(failure::of("reading the blob", &error)),
        },
    };
    let what = What {
        digest: Some(&blob.digest),
        media_type: Some(MEDIA_TYPE),
        size: Some(length),
        ..What::default()
    };
    call.tell(EventKind::PullBlob, repository, what);
    Ok(Some(answer))
}

async fn is_whole(call: &Call<'_>, blob: &Blob) -> Result<bool, ApiError> {
    let is_whole = call.registry.store.is_whole(blob).await;
    is_whole.map_err(|error| failure::of("looking for the blob's object", &error))
}

/// The answer that sends the client to the object store, if it is to go there. Its range it asks for again by itself.
async fn redirected(call: &Call<'_>, blob: &Blob) -> Result<Option<Answer>, ApiError> {
    let Some(lasting) = call.registry.settings.redirect else {
        return Ok(None);
    };
    // These name the content as it is called here. The object store has another name for it, and would take it for other content.
    let headers = &call.parts.headers;
    if headers.contains_key(IF_RANGE) || headers.contains_key(IF_MATCH) {
        return Ok(None);
    }
    let signed = call.registry.store.signed_address(blob, lasting).await;
    let address = signed.map_err(|error| failure::of("signing the address of the blob", &error))?;
    Ok(address.map(|address| reply::redirect(&address, &blob.digest, lasting)))
}

/// Takes a blob out of a repository. Others keep it.
pub(crate) async fn delete(call: &Call<'_>, repository: &RepositoryName, digest: &Digest) -> Outcome {
    let is_held = call.registry.immutability.holding(repository);
    let store = &call.registry.store;
    let deleted = store.delete_blob_unless(repository, digest, is_held).await;
    match deleted.map_err(|error| failure::of_deletion(call.registry, "deleting the blob", &error))? {
        true => {
            let what = What {
                digest: Some(digest),
                ..What::default()
            };
            call.tell(EventKind::DeleteBlob, repository, what);
            Ok(reply::status(StatusCode::ACCEPTED))
        }
        false => Err(unknown(repository, digest)),
    }
}

fn unknown(repository: &RepositoryName, digest: &Digest) -> ApiError {
    ApiError::new(
        Code::BlobUnknown,
        format!(
            "{repository} does not have {digest}; push it there, or mount it from a repository that has it"
        ),
    )
}
