//! `/v2/NAME/manifests/REFERENCE`: manifests are pulled, pushed and deleted, and tags with them.

use std::io;
use std::time::Duration;

use hyper::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION};
use hyper::{Method, StatusCode};
use xebec_store::{Algorithm, Digest, Manifest, ManifestWithin, NewManifest, RepositoryName, Tag};
use xebec_upstream::manifest::{DOCKER_MANIFEST, Facts, OCI_MANIFEST, is_index, usual_platform};

use super::call::{Call, Outcome, What};
use super::failure;
use super::fallback_tag;
use super::part::{self, Sent};
use super::quota;
use super::reply;
use super::{through, watch};
use crate::body;
use crate::error::{ApiError, Code};
use crate::memory::Room;
use crate::request::{Accept, percent_encode};
use crate::route::Reference;
use xebec_events::EventKind;
use xebec_policy::quota::Reservation;

/// Tells a client that the registry knows subjects, so that it need not keep a fallback tag.
const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
/// The tags that a push by digest has set.
const OCI_TAG: HeaderName = HeaderName::from_static("oci-tag");
/// The most tags of one push.
const MAX_TAGS: usize = 64;
/// A body that is kept in memory comes in this time, and a second more for each so many bytes.
const SMALL_BODY_TIME: Duration = Duration::from_secs(60);
const SLOWEST: u64 = 32 << 10;

/// Room for a manifest before its size is known: nearly all have fewer bytes.
const USUAL: u64 = 64 << 10;

/// Sends a manifest, or only its size, digest and media type.
pub(crate) async fn read(call: &Call<'_>, repository: &RepositoryName, reference: &Reference) -> Outcome {
    let values = call.parts.headers.get_all(ACCEPT).into_iter();
    let accept = Accept::parse(values.filter_map(|value| value.to_str().ok()));
    let (found, warning) = find(call, repository, reference, &accept).await?;
    let answer = match found {
        Found::List(content) => listing(call, content),
        Found::Manifest(manifest) => send(call, repository, reference, &manifest)?,
    };
    Ok(match warning {
        Some(warning) => reply::with_warning(answer, &warning),
        None => answer,
    })
}

/// The content that a reference names, with room in memory for it.
pub(crate) enum Found {
    Manifest(Manifest),
    /// The list for a fallback tag, made just now.
    List(bytes::Bytes),
}

/// Finds the manifest that a reference names, here or at the upstream, and what the client is to be told of it.
pub(crate) async fn find(
    call: &Call<'_>,
    repository: &RepositoryName,
    reference: &Reference,
    accept: &Accept,
) -> Result<(Found, Option<String>), ApiError> {
    let listed = match reference {
        Reference::Tag(tag) => fallback_tag::subject(call, repository, tag).await?,
        Reference::Digest(_) => None,
    };
    let warning = through::manifest(call, repository, reference, listed.as_ref()).await?;
    let max = call.registry.settings.max_manifest;
    // Most manifests are small. One that is not is read once more, when there is room for it.
    let mut most = match listed {
        Some(_) => max,
        None => max.min(USUAL),
    };
    loop {
        let room = call.room(most).await?;
        match named(call, repository, reference, (listed.as_ref(), accept), most).await? {
            Named::Larger(size) => most = size,
            Named::List(list, warning) => {
                return Ok((Found::List(room.hold(list)), warning.map(str::to_owned)));
            }
            Named::Manifest(mut manifest) => {
                let memory = &call.registry.memory;
                manifest.content = memory.share(&manifest.digest, manifest.content, room);
                return Ok((Found::Manifest(manifest), warning));
            }
        }
    }
}

/// The content that a reference names.
enum Named {
    Manifest(Manifest),
    /// The list for a fallback tag, and what the client is told of it.
    List(Vec<u8>, Option<&'static str>),
    /// A manifest of so many bytes, for which there is no room yet.
    Larger(u64),
}

/// Looks up a manifest of at most so many bytes. A client that names a digest wants these bytes and no others; by a tag it may get the
/// list of what refers to `listed`, or a manifest that it knows.
async fn named(
    call: &Call<'_>,
    repository: &RepositoryName,
    reference: &Reference,
    (listed, accept): (Option<&Digest>, &Accept),
    most: u64,
) -> Result<Named, ApiError> {
    let store = &call.registry.store;
    let found = match reference {
        Reference::Digest(digest) => store.manifest_within(repository, digest, most).await,
        Reference::Tag(tag) => store.tagged_manifest_within(repository, tag, most).await,
    };
    let found = match found.map_err(|error| failure::of("looking up the manifest", &error))? {
        Some(ManifestWithin::Larger(size)) => return Ok(Named::Larger(size)),
        Some(ManifestWithin::Whole(manifest)) => Some(manifest),
        None => None,
    };
    if let Some(subject) = listed
        && let Some((list, warning)) =
            fallback_tag::listing(call, repository, subject, found.as_ref()).await?
    {
        return Ok(Named::List(list, warning));
    }
    match (found, reference) {
        (Some(manifest), Reference::Tag(_)) => acceptable(call, repository, manifest, accept, most).await,
        (Some(manifest), Reference::Digest(_)) => Ok(Named::Manifest(manifest)),
        (None, _) => Err(unknown(repository, reference)),
    }
}

/// The list of what refers to a manifest, made just now.
fn listing(call: &Call<'_>, content: bytes::Bytes) -> reply::Answer {
    let digest = Digest::of(Algorithm::Sha256, &content);
    let size = content.len() as u64;
    let answer = part::answer(
        &digest,
        xebec_upstream::manifest::OCI_INDEX,
        size,
        &Sent::Whole,
        false,
    );
    match call.parts.method == Method::HEAD {
        true => answer,
        false => part::with_body(answer, body::full(content)),
    }
}

/// The manifest itself if the client takes its type; of an index for a client that knows none, the manifest of the usual platform.
async fn acceptable(
    call: &Call<'_>,
    repository: &RepositoryName,
    mut manifest: Manifest,
    accept: &Accept,
    most: u64,
) -> Result<Named, ApiError> {
    if accept.takes(&manifest.media_type) {
        return Ok(Named::Manifest(manifest));
    }
    if is_index(&manifest.media_type)
        && (accept.takes(OCI_MANIFEST) || accept.takes(DOCKER_MANIFEST))
        && let Some(digest) = usual_platform(&manifest.content)
    {
        // The room is for one manifest.
        manifest.content = bytes::Bytes::new();
        let usual = call
            .registry
            .store
            .manifest_within(repository, &digest, most)
            .await;
        match usual.map_err(|error| failure::of("looking up the manifest", &error))? {
            Some(ManifestWithin::Whole(usual)) if accept.takes(&usual.media_type) => {
                return Ok(Named::Manifest(usual));
            }
            Some(ManifestWithin::Larger(size)) => return Ok(Named::Larger(size)),
            _ => {}
        }
    }
    Err(ApiError::new(
        Code::ManifestUnknown,
        format!(
            "the manifest has the type {}, and the client takes only {}; use a client that knows that type, or ask by digest ({})",
            manifest.media_type,
            accept.shown(),
            manifest.digest
        ),
    ))
}

fn send(call: &Call<'_>, repository: &RepositoryName, reference: &Reference, manifest: &Manifest) -> Outcome {
    let size = manifest.content.len() as u64;
    let sent = part::sent(call.parts, &manifest.digest, size)?;
    let lasting = matches!(reference, Reference::Digest(_));
    let answer = part::answer(&manifest.digest, &manifest.media_type, size, &sent, lasting);
    if call.parts.method == Method::HEAD {
        // A client that asks for a digest may be about to push an index that lists it: retention leaves it for that. A client that
        // asks for a tag only looks whether it was moved.
        if lasting {
            let store = &call.registry.store;
            store.note_pull(repository, &manifest.digest, None, manifest.pulled);
        }
        return Ok(answer);
    }
    let content = match sent {
        Sent::Nothing => return Ok(answer),
        Sent::Whole => manifest.content.clone(),
        Sent::Part(range) => {
            let place = |at: u64| {
                usize::try_from(at)
                    .unwrap_or(usize::MAX)
                    .min(manifest.content.len())
            };
            manifest.content.slice(place(range.start)..place(range.end))
        }
    };
    pulled(call, repository, reference, manifest);
    Ok(part::with_body(answer, body::full(content)))
}

/// A client gets this manifest.
pub(crate) fn pulled(
    call: &Call<'_>,
    repository: &RepositoryName,
    reference: &Reference,
    manifest: &Manifest,
) {
    let tags = match reference {
        Reference::Tag(tag) => std::slice::from_ref(tag),
        Reference::Digest(_) => &[],
    };
    call.registry
        .store
        .note_pull(repository, &manifest.digest, tags.first(), manifest.pulled);
    let what = What {
        digest: Some(&manifest.digest),
        tags,
        media_type: Some(&manifest.media_type),
        size: Some(manifest.content.len() as u64),
        ..What::default()
    };
    call.tell(EventKind::PullManifest, repository, what);
}

/// Takes a manifest, under a tag or its digest, and further tags that the query names.
pub(crate) async fn put(call: &mut Call<'_>, repository: &RepositoryName, reference: &Reference) -> Outcome {
    let tags = tags(call, reference)?;
    let (content, _memory) = content(call).await?;
    let digest = match reference {
        Reference::Tag(_) => Digest::of(Algorithm::Sha256, &content),
        Reference::Digest(digest) => digest.clone(),
    };
    let actual = Digest::of(digest.algorithm(), &content);
    if actual != digest {
        let detail = format!("the manifest's digest is {actual}, and the request says {digest}");
        return Err(ApiError::new(Code::DigestInvalid, detail));
    }
    let facts = Facts::read(&content, call.header(CONTENT_TYPE))
        .map_err(|error| ApiError::new(Code::ManifestInvalid, error.to_string()))?;
    let size = content.len() as u64;
    let media_type = facts.media_type.clone();
    let subject = facts.subject.clone();
    let has_foreign = facts.references.iter().any(|reference| !reference.required);
    let mut manifest = stored(call, &digest, content, facts);
    let immutable = |tag: &&Tag| {
        let rules = &call.registry.immutability;
        rules.rule_for(repository.as_str(), tag.as_str()).is_some()
    };
    // The store compares in the transaction of the push, so that of two pushes at once one is refused.
    manifest.immutable = tags.iter().filter(immutable).cloned().collect();
    let _room = room(call, repository, &digest, size).await?;
    let put = call
        .registry
        .store
        .put_manifest(repository, &manifest, &tags)
        .await;
    put.map_err(|error| failure::of_manifest(repository, &error))?;
    let what = What {
        digest: Some(&digest),
        tags: &tags,
        media_type: Some(&media_type),
        size: Some(size),
        ..What::default()
    };
    call.tell(EventKind::PushManifest, repository, what);
    watch::pushed(call, repository, &digest, &tags, subject.as_ref());
    Ok(accepted(
        repository,
        reference,
        &digest,
        subject.as_ref(),
        &tags,
        has_foreign,
    ))
}

/// Room for a manifest by the quotas. One that the repository has already, which gets another tag perhaps, needs none.
async fn room(
    call: &Call<'_>,
    repository: &RepositoryName,
    digest: &Digest,
    size: u64,
) -> Result<Option<Reservation>, ApiError> {
    if !call.registry.quotas.cover(repository.as_str()) {
        return Ok(None);
    }
    let here = call.registry.store.has_manifest(repository, digest).await;
    match here.map_err(|error| failure::of("looking up the manifest", &error))? {
        true => Ok(None),
        false => quota::room(call, repository, Some(size)).await,
    }
}

fn stored(call: &Call<'_>, digest: &Digest, content: bytes::Bytes, facts: Facts) -> NewManifest {
    let mut references = facts.references;
    if call.registry.settings.sparse {
        for reference in &mut references {
            reference.required = false;
        }
    }
    NewManifest {
        digest: digest.clone(),
        media_type: facts.media_type,
        content,
        references,
        subject: facts.subject,
        artifact_type: facts.artifact_type,
        annotations: facts.annotations,
        immutable: Vec::new(),
        is_pushed: true,
    }
}

fn accepted(
    repository: &RepositoryName,
    reference: &Reference,
    digest: &Digest,
    subject: Option<&Digest>,
    tags: &[Tag],
    has_foreign: bool,
) -> reply::Answer {
    let place = format!(
        "/v2/{repository}/manifests/{}",
        percent_encode(&digest.to_string())
    );
    let answer = reply::with(reply::status(StatusCode::CREATED), LOCATION, place);
    let answer = reply::with(answer, CONTENT_LENGTH, "0");
    let mut answer = reply::with_digest(answer, digest);
    if let Some(subject) = subject {
        answer = reply::with(answer, OCI_SUBJECT, subject.to_string());
    }
    if matches!(reference, Reference::Digest(_)) {
        for tag in tags {
            answer = reply::with(answer, OCI_TAG, tag.as_str());
        }
    }
    if has_foreign {
        let text = "the image has layers that may not be distributed; this registry need not have them, and the image specification \
                    advises against such layers";
        answer = reply::with_warning(answer, text);
    }
    answer
}

/// The tags that the request wants the manifest to have.
fn tags(call: &Call<'_>, reference: &Reference) -> Result<Vec<Tag>, ApiError> {
    let mut tags = match reference {
        Reference::Tag(tag) => vec![tag.clone()],
        Reference::Digest(_) => Vec::new(),
    };
    for text in call.query.all("tag") {
        let tag = text
            .parse()
            .map_err(|error: xebec_store::InvalidName| ApiError::new(Code::TagInvalid, error.to_string()))?;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    match tags.len() <= MAX_TAGS {
        true => Ok(tags),
        false => Err(ApiError::new(
            Code::TagInvalid,
            format!(
                "the request names {} tags; this registry takes {MAX_TAGS} at once",
                tags.len()
            ),
        )),
    }
}

/// The request's body, if it is as small as a manifest.
async fn content(call: &mut Call<'_>) -> Result<(bytes::Bytes, Room), ApiError> {
    let limit = call.registry.settings.max_manifest;
    small_body(call, limit).await?.ok_or_else(|| {
        let detail = format!(
            "a manifest has {limit} bytes at most; put what is large into a blob that the manifest names"
        );
        ApiError::new(Code::SizeInvalid, detail).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    })
}

/// The request's body, with room in memory for it; `None` if it has more bytes than `limit`.
pub(crate) async fn small_body(
    call: &mut Call<'_>,
    limit: u64,
) -> Result<Option<(bytes::Bytes, Room)>, ApiError> {
    let coming = quota::announced(call).unwrap_or(limit).min(limit);
    let room = call.registry.incoming.room(call.parts, coming).await?;
    // It holds its room meanwhile: it may take its time, but not as much as it likes.
    let time = SMALL_BODY_TIME + Duration::from_secs(coming / SLOWEST);
    let read = tokio::time::timeout(time, call.body.read(limit)).await;
    match read.unwrap_or_else(|_| Err(late(time))) {
        Ok(content) => Ok(content.map(|content| (content, room))),
        Err(error) => Err(failure::of_body(&error)),
    }
}

fn late(time: Duration) -> io::Error {
    let text = format!("a body of this size comes in {} s at most", time.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Deletes a manifest with its tags, or a tag alone.
pub(crate) async fn delete(call: &Call<'_>, repository: &RepositoryName, reference: &Reference) -> Outcome {
    let store = &call.registry.store;
    let (deleted, kind, what) = match reference {
        Reference::Tag(tag) => {
            let rules = &call.registry.immutability;
            rules.check_removal(repository.as_str(), tag.as_str())?;
            let what = What {
                tags: std::slice::from_ref(tag),
                ..What::default()
            };
            (
                store.delete_tag(repository, tag).await,
                EventKind::DeleteTag,
                what,
            )
        }
        Reference::Digest(digest) => {
            let what = What {
                digest: Some(digest),
                ..What::default()
            };
            let is_held = call.registry.immutability.holding(repository);
            let deleted = store.delete_manifest_unless(repository, digest, is_held).await;
            (deleted, EventKind::DeleteManifest, what)
        }
    };
    match deleted.map_err(|error| failure::of_deletion(call.registry, "deleting the manifest", &error))? {
        true => {
            call.tell(kind, repository, what);
            Ok(reply::status(StatusCode::ACCEPTED))
        }
        false => Err(unknown(repository, reference)),
    }
}

fn unknown(repository: &RepositoryName, reference: &Reference) -> ApiError {
    let detail = match reference {
        Reference::Tag(tag) => {
            format!("{repository} has no tag {tag}; /v2/{repository}/tags/list has those that there are")
        }
        Reference::Digest(digest) => format!("{repository} does not have the manifest {digest}"),
    };
    ApiError::new(Code::ManifestUnknown, detail)
}
