//! Errors of snapshots, in the classes that clients tell apart.

use std::io;
use std::path::Path;

/// The class of an error, by what a client can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such snapshot.
    NotFound,
    /// There is one by that key already.
    AlreadyExists,
    /// Not in the state that the snapshot is in.
    FailedPrecondition,
    /// Never.
    InvalidArgument,
    /// Make room.
    ResourceExhausted,
    /// Try again later: something elsewhere does not answer.
    Unavailable,
    /// Look into the log.
    Internal,
}

/// Why an operation was not done. Nothing of it was, then.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SnapshotError {
    /// Its class.
    pub kind: ErrorKind,
    /// The message: which thing is wrong, and how.
    pub message: String,
}

impl SnapshotError {
    /// An error of a class.
    pub fn new(kind: ErrorKind, message: impl std::fmt::Display) -> SnapshotError {
        let message = message.to_string();
        SnapshotError { kind, message }
    }

    pub(crate) fn not_found(key: &str) -> SnapshotError {
        SnapshotError::new(ErrorKind::NotFound, format!("snapshot {key:?} does not exist"))
    }

    pub(crate) fn exists(key: &str) -> SnapshotError {
        SnapshotError::new(
            ErrorKind::AlreadyExists,
            format!("snapshot {key:?} exists already"),
        )
    }

    pub(crate) fn precondition(message: impl std::fmt::Display) -> SnapshotError {
        SnapshotError::new(ErrorKind::FailedPrecondition, message)
    }

    pub(crate) fn invalid(message: impl std::fmt::Display) -> SnapshotError {
        SnapshotError::new(ErrorKind::InvalidArgument, message)
    }

    /// An error of the file system; a full one is told apart.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> SnapshotError {
        let message = format!("cannot {doing} {}: {error}", path.display());
        SnapshotError::new(kind_of(error), message)
    }

    /// An error of the store; a full disk is told apart.
    pub(crate) fn store(error: impl Into<redb::Error>) -> SnapshotError {
        let error = error.into();
        let kind = match &error {
            redb::Error::Io(error) => kind_of(error),
            // Of another operation at the same time; it is opened again for the next.
            redb::Error::PreviousIo => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        };
        SnapshotError::new(kind, format!("the snapshots' store: {error}"))
    }
}

fn kind_of(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::ResourceExhausted,
        _ => ErrorKind::Internal,
    }
}
