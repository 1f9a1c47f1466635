//! `/v2/NAME/blobs/uploads/`: blobs come in, in one piece, in several, or by being mounted from another repository.
//!
//! An upload's `Range` header says which bytes are safely here; a client that was cut off goes on after them.

use std::io;

use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderName, LOCATION, RANGE};
use hyper::{Method, StatusCode};
use xebec_access::Action;
use xebec_policy::quota::Reservation;
use xebec_store::{AppendError, Blob, Digest, RepositoryName, StoreError, UploadId};

use super::call::{Call, Outcome, What};
use super::failure;
use super::quota::{self, Counted};
use super::reply::{self, Answer};
use crate::error::{ApiError, Code};
use crate::request::{percent_encode, upload_range};
use xebec_events::EventKind;

const UPLOAD_UUID: HeaderName = HeaderName::from_static("docker-upload-uuid");
/// With so many repositories that have a blob it is tried whether the caller may read it there.
const MOST_SOURCES: usize = 32;

/// Begins an upload, or does all of it at once: by a mount, or with the blob in this request.
pub(crate) async fn begin(call: &mut Call<'_>, repository: &RepositoryName) -> Outcome {
    if let Some(text) = call.query.get("mount") {
        let digest = digest(text)?;
        if let Some(blob) = mount(call, repository, &digest).await? {
            let from = call.query.get("from").and_then(|from| from.parse().ok());
            let what = What {
                digest: Some(&digest),
                size: Some(blob.size),
                from: from.as_ref(),
                ..What::default()
            };
            call.tell(EventKind::MountBlob, repository, what);
            return Ok(created(repository, &digest));
        }
    }
    let whole = call.query.get("digest").map(digest).transpose()?;
    let begun = call.registry.store.begin_upload(repository).await;
    let id = begun.map_err(|error| failure::of("beginning the upload", &error))?;
    match whole {
        // With a mount that did not succeed, the digest is that of the mount.
        Some(digest) if !call.body.is_empty() || is_said_to_be_empty(call) => {
            let finished = append_and_finish(call, repository, &id, &digest, None).await;
            if finished.is_err() {
                // The client has no address to go on at.
                let _ = call.registry.store.cancel_upload(repository, &id).await;
            }
            finished
        }
        _ => Ok(progress(StatusCode::ACCEPTED, repository, &id, 0)),
    }
}

/// A blob of no bytes is one, too.
fn is_said_to_be_empty(call: &Call<'_>) -> bool {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    call.query
        .get("digest")
        .is_some_and(|digest| digest.ends_with(empty))
}

/// The blob, if it is there already and the caller may have it.
async fn mount(
    call: &Call<'_>,
    repository: &RepositoryName,
    digest: &Digest,
) -> Result<Option<Blob>, ApiError> {
    let store = &call.registry.store;
    let named: Vec<RepositoryName> = match call.query.get("from") {
        // A name that is none is one that has no blobs; the client uploads, as the specification has it.
        Some(from) => from.parse().into_iter().collect(),
        None => {
            let found = store.repositories_with(digest, MOST_SOURCES).await;
            found.map_err(|error| failure::of("looking up the blob", &error))?
        }
    };
    let mut readable = Vec::new();
    for from in named {
        if call.may(&from, Action::Pull) {
            readable.push(from);
        }
    }
    let failed = |error: StoreError| failure::of("mounting the blob", &error);
    let mounted = store.mount_from_any(repository, digest, &readable).await;
    match mounted.map_err(failed)? {
        // Of one whose object is gone the client sends the bytes.
        Some(blob) if store.is_whole(&blob).await.map_err(failed)? => Ok(Some(blob)),
        _ => Ok(None),
    }
}

/// How far an upload is.
pub(crate) async fn state(call: &Call<'_>, repository: &RepositoryName, id: &UploadId) -> Outcome {
    let size = size(call, repository, id).await?;
    Ok(progress(StatusCode::NO_CONTENT, repository, id, size))
}

/// Takes one more part.
pub(crate) async fn append(call: &mut Call<'_>, repository: &RepositoryName, id: &UploadId) -> Outcome {
    let at = offset(call)?;
    let room = quota::room(call, repository, quota::announced(call)).await?;
    let size = add(call, repository, id, at, room).await?;
    Ok(progress(StatusCode::ACCEPTED, repository, id, size))
}

/// Takes the last part, if there is one, and makes the upload a blob.
pub(crate) async fn finish(call: &mut Call<'_>, repository: &RepositoryName, id: &UploadId) -> Outcome {
    let text = call.query.get("digest").ok_or_else(|| {
        let detail = "the parameter \"digest\" is missing: the last request of an upload says which digest the blob has";
        ApiError::new(Code::DigestInvalid, detail)
    })?;
    let digest = digest(text)?;
    let at = offset(call)?;
    append_and_finish(call, repository, id, &digest, at).await
}

/// Gives an upload up.
pub(crate) async fn cancel(call: &Call<'_>, repository: &RepositoryName, id: &UploadId) -> Outcome {
    let canceled = call.registry.store.cancel_upload(repository, id).await;
    match canceled.map_err(|error| failure::of("giving the upload up", &error))? {
        true => Ok(reply::status(StatusCode::NO_CONTENT)),
        false => Err(unknown(repository, id)),
    }
}

async fn append_and_finish(
    call: &mut Call<'_>,
    repository: &RepositoryName,
    id: &UploadId,
    digest: &Digest,
    at: Option<u64>,
) -> Outcome {
    if !call.body.is_empty() || at.is_some() {
        let room = match is_here(call, repository, digest).await? {
            true => None,
            false => quota::room(call, repository, quota::announced(call)).await?,
        };
        add(call, repository, id, at, room).await?;
    }
    let finished = call.registry.store.finish_upload(repository, id, digest).await;
    let blob = finished.map_err(|error| failure::of("finishing the upload", &error))?;
    let what = What {
        digest: Some(digest),
        size: Some(blob.size),
        ..What::default()
    };
    call.tell(EventKind::PushBlob, repository, what);
    Ok(created(repository, digest))
}

/// Whether the request brings what the repository has already. That needs no room.
async fn is_here(call: &Call<'_>, repository: &RepositoryName, digest: &Digest) -> Result<bool, ApiError> {
    if !call.registry.quotas.cover(repository.as_str()) {
        return Ok(false);
    }
    let there = call.registry.store.peek_blob(repository, digest).await;
    let there = there.map_err(|error| failure::of("looking up the blob", &error))?;
    Ok(there.is_some_and(|blob| Some(blob.size) == quota::announced(call)))
}

/// Adds the request's body to the upload, and says how many bytes it has now. An upload counts for the quotas by what it has; `room` is
/// for what comes.
async fn add(
    call: &mut Call<'_>,
    repository: &RepositoryName,
    id: &UploadId,
    at: Option<u64>,
    mut room: Option<Reservation>,
) -> Result<u64, ApiError> {
    let is_announced = quota::announced(call).is_some();
    let growing = room.as_mut().filter(|_| !is_announced);
    let body = Counted::new(&mut *call.body, growing);
    let appended = call.registry.store.append(repository, id, at, body).await;
    match appended {
        Ok(size) => Ok(size),
        Err(AppendError::WrongOffset { at }) => Err(ApiError::new(
            Code::RangeInvalid,
            format!("the upload has {at} bytes; go on there, or ask for its state with GET"),
        )
        .with_header(RANGE, range(at))
        .with_header(LOCATION, place(repository, id))),
        Err(error) => {
            let has_no_room = match &error {
                AppendError::Body(cause) => cause.kind() == io::ErrorKind::QuotaExceeded,
                AppendError::Store(cause) => matches!(cause, StoreError::Full { .. }),
                _ => false,
            };
            if has_no_room {
                // The bytes that have come would take the room of others until the upload times out.
                let _ = call.registry.store.cancel_upload(repository, id).await;
            }
            Err(failure::of_append(&error))
        }
    }
}

async fn size(call: &Call<'_>, repository: &RepositoryName, id: &UploadId) -> Result<u64, ApiError> {
    let size = call.registry.store.upload(repository, id).await;
    let size = size.map_err(|error| failure::of("looking up the upload", &error))?;
    size.ok_or_else(|| unknown(repository, id))
}

/// Where the body belongs, if the request says so. It must be as long as it says.
fn offset(call: &Call<'_>) -> Result<Option<u64>, ApiError> {
    let Some(text) = call.header(CONTENT_RANGE) else {
        return Ok(None);
    };
    let Some(range) = upload_range(text) else {
        return Err(ApiError::new(
            Code::BlobUploadInvalid,
            format!("Content-Range {text:?} is not understood: write FIRST-LAST, as in 0-1023"),
        ));
    };
    let length = call
        .header(CONTENT_LENGTH)
        .and_then(|text| text.parse::<u64>().ok());
    match length {
        Some(length) if length != range.end - range.start => Err(ApiError::new(
            Code::SizeInvalid,
            format!(
                "Content-Range says that {} bytes come, and Content-Length {length}",
                range.end - range.start
            ),
        )),
        _ => Ok(Some(range.start)),
    }
}

fn digest(text: &str) -> Result<Digest, ApiError> {
    text.parse()
        .map_err(|error: xebec_store::InvalidDigest| ApiError::new(Code::DigestInvalid, error.to_string()))
}

/// The bytes that are here, as the specification writes them. It has no way to say that there are none, and clients take `0-0` for it.
fn range(size: u64) -> String {
    format!("0-{}", size.saturating_sub(1))
}

fn place(repository: &RepositoryName, id: &UploadId) -> String {
    format!("/v2/{repository}/blobs/uploads/{id}")
}

fn progress(status: StatusCode, repository: &RepositoryName, id: &UploadId, size: u64) -> Answer {
    let answer = reply::with(reply::status(status), LOCATION, place(repository, id));
    let answer = reply::with(answer, RANGE, range(size));
    let answer = reply::with(answer, UPLOAD_UUID, id.as_str());
    match status {
        StatusCode::NO_CONTENT => answer,
        _ => reply::with(answer, CONTENT_LENGTH, "0"),
    }
}

/// The answer to a blob that is here now.
pub(crate) fn created(repository: &RepositoryName, digest: &Digest) -> Answer {
    let place = format!("/v2/{repository}/blobs/{}", percent_encode(&digest.to_string()));
    let answer = reply::with(reply::status(StatusCode::CREATED), LOCATION, place);
    reply::with_digest(reply::with(answer, CONTENT_LENGTH, "0"), digest)
}

fn unknown(repository: &RepositoryName, id: &UploadId) -> ApiError {
    ApiError::new(
        Code::BlobUploadUnknown,
        format!("{repository} has no upload {id}; it was finished or given up, so begin another with POST"),
    )
}

/// Carries out a request for one upload.
pub(crate) async fn one(call: &mut Call<'_>, repository: &RepositoryName, id: &UploadId) -> Outcome {
    match call.parts.method {
        Method::PATCH => append(call, repository, id).await,
        Method::PUT => finish(call, repository, id).await,
        Method::DELETE => cancel(call, repository, id).await,
        _ => state(call, repository, id).await,
    }
}
