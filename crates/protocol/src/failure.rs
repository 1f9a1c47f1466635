//! The failure of a command, in the form in which it crosses from the daemon to the command line.

use std::{fmt, io};

use serde::{Deserialize, Serialize};
use xebec_cache::store::StoreError;

/// The kinds of failure that a script may want to tell apart; each is an exit code of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The request itself is wrong: a reference, a path, an option.
    Usage,
    /// The image, a layer or a mount is not there.
    NotFound,
    /// The registry cannot be reached or refused.
    Registry,
    /// The image cannot start lazily and laziness was required.
    NotLazy,
    /// The index found is not trusted enough for the image as it was named.
    Trust,
    /// Bytes do not have their digest.
    Integrity,
    /// The host: kernel features, file system, permissions, the container runtime.
    Host,
}

impl FailureKind {
    /// The exit code of the command line. Container tools use 125 for their own failures; the others stay clear of it, of 126 and
    /// 127 (command not runnable, not found) and of 128 + signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Registry => 4,
            Self::NotLazy => 5,
            Self::Trust => 6,
            Self::Integrity => 7,
            Self::Host => 125,
        }
    }
}

/// A failure: its kind, and a message that names the thing and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind, which decides the exit code.
    pub kind: FailureKind,
    /// The message, for people.
    pub message: String,
}

impl Failure {
    /// A failure of `kind`.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string(),
        }
    }

    /// A failure of the host while `doing` something.
    pub fn host(doing: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(FailureKind::Host, format_args!("{doing}: {error}"))
    }

    /// A failure of the host below the root directory while `doing` something. If its disk is full, the message tells how to make room.
    pub fn on_root_disk(doing: impl fmt::Display, error: &io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::StorageFull => "the disk of the root directory is full",
            io::ErrorKind::QuotaExceeded => "the disk quota of the root directory is used up",
            _ => return Self::host(doing, error),
        };
        let message =
            format!("{problem}: `xebec cache gc --to SIZE` and `xebec rmi` make room ({doing}: {error})");
        Self::new(FailureKind::Host, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Io { what, path, error } => {
                Self::on_root_disk(format_args!("{what} {}", path.display()), error)
            }
            StoreError::Index { .. } | StoreError::Digest(_) => Self::new(FailureKind::Host, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_what_makes_room() {
        let written = |kind: io::ErrorKind| {
            let error = StoreError::Io {
                what: "write",
                path: "/r/layers/index".into(),
                error: kind.into(),
            };
            Failure::from(error).message
        };
        for (kind, problem) in [
            (
                io::ErrorKind::StorageFull,
                "the disk of the root directory is full: ",
            ),
            (
                io::ErrorKind::QuotaExceeded,
                "the disk quota of the root directory is used up: ",
            ),
        ] {
            let said = written(kind);
            assert!(said.starts_with(problem), "{said}");
            assert!(said.contains("`xebec cache gc --to SIZE`"), "{said}");
            assert!(said.contains("(write /r/layers/index: "), "{said}");
        }
        let said = written(io::ErrorKind::NotFound);
        assert!(said.starts_with("write /r/layers/index: "), "{said}");
    }
}
