//! Refusals and failures of the store, as a client is told of them. Causes that lie in the registry go to the log.

use std::io;

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use xebec_store::{AppendError, RepositoryName, StoreError};

use crate::error::{ApiError, Code};
use crate::state::{RETRY_AFTER as WAIT, Registry};

/// The most digests that an answer names.
const MOST_MISSING: usize = 16;

/// The answer to a request that the store did not carry out.
pub(crate) fn of(doing: &str, error: &StoreError) -> ApiError {
    match error {
        StoreError::UnknownUpload { .. } => ApiError::new(Code::BlobUploadUnknown, error.to_string()),
        StoreError::Busy(_) => busy(error),
        StoreError::TooManyUploads { .. } => later(ApiError::new(Code::TooManyRequests, error.to_string())),
        StoreError::DigestMismatch { .. } => ApiError::new(Code::DigestInvalid, error.to_string()),
        StoreError::ImmutableTag { .. } => ApiError::new(Code::Denied, error.to_string()),
        StoreError::ManifestTooLarge { .. } => {
            ApiError::new(Code::SizeInvalid, error.to_string()).with_status(StatusCode::PAYLOAD_TOO_LARGE)
        }
        StoreError::Full { .. } => {
            tracing::error!("{doing}: {error}");
            ApiError::new(Code::Denied, error.to_string()).with_status(StatusCode::INSUFFICIENT_STORAGE)
        }
        StoreError::Unsupported(_) => ApiError::new(Code::Unsupported, error.to_string()),
        // It may answer again in a moment: clients try again.
        StoreError::Database { .. }
        | StoreError::Place { .. }
        | StoreError::Paused(_)
        | StoreError::Object { .. }
        | StoreError::System { .. } => {
            tracing::error!("{doing}: {error}");
            let detail =
                format!("{doing} failed: what the registry keeps its data in did not do it; try again");
            later(ApiError::new(Code::Unavailable, detail))
        }
        StoreError::Lost(_)
        | StoreError::NoRestorer(_)
        | StoreError::Open { .. }
        | StoreError::File { .. }
        | StoreError::BadBackup { .. }
        | StoreError::MissingReferences { .. } => ApiError::internal(doing, error),
    }
}

/// The same for a deletion: what a tag leads to that neither moves nor goes stays, too.
pub(crate) fn of_deletion(registry: &Registry, doing: &str, error: &StoreError) -> ApiError {
    if let StoreError::ImmutableTag { repository, tag, .. } = error
        && let Err(rule) = registry
            .immutability
            .check_removal(repository.as_str(), tag.as_str())
    {
        return ApiError::new(
            Code::Denied,
            format!("this belongs to an image that stays: {rule}"),
        );
    }
    of(doing, error)
}

/// The same for a push of a manifest, which names each digest that is missing.
pub(crate) fn of_manifest(repository: &RepositoryName, error: &StoreError) -> ApiError {
    let StoreError::MissingReferences { missing, .. } = error else {
        return of("storing the manifest", error);
    };
    let detail =
        |digest| format!("{repository} does not have {digest}; push it there, then push the manifest again");
    let details = missing.iter().take(MOST_MISSING).map(detail);
    ApiError::several(Code::ManifestBlobUnknown, details.collect())
}

/// The same for a part of an upload.
pub(crate) fn of_append(error: &AppendError) -> ApiError {
    match error {
        AppendError::Unknown { .. } => ApiError::new(Code::BlobUploadUnknown, error.to_string()),
        AppendError::WrongOffset { .. } => ApiError::new(Code::RangeInvalid, error.to_string()),
        AppendError::Busy(_) => busy(error),
        AppendError::Body(error) => of_body(error),
        AppendError::TooLarge { .. } => {
            ApiError::new(Code::SizeInvalid, error.to_string()).with_status(StatusCode::PAYLOAD_TOO_LARGE)
        }
        AppendError::Store(error) => of("storing the upload", error),
    }
}

/// The answer to a request whose body did not come whole. Most clients are gone by then.
pub(crate) fn of_body(error: &io::Error) -> ApiError {
    if error.kind() == io::ErrorKind::QuotaExceeded {
        return ApiError::new(Code::Denied, error.to_string());
    }
    let detail =
        format!("the request's body broke off: {error}; an upload goes on after what its state says is here");
    let answer = ApiError::new(Code::BlobUploadInvalid, detail);
    match error.kind() {
        io::ErrorKind::TimedOut => answer.with_status(StatusCode::REQUEST_TIMEOUT),
        _ => answer,
    }
}

fn busy(error: &dyn std::fmt::Display) -> ApiError {
    later(ApiError::new(Code::BlobUploadInvalid, error.to_string()).with_status(StatusCode::CONFLICT))
}

fn later(error: ApiError) -> ApiError {
    error.with_header(RETRY_AFTER, WAIT.as_secs().to_string())
}
