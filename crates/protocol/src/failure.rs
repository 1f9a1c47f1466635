//! What a command failed with, in the form in which it crosses from the daemon to the command line.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// Bytes are not what their digest says.
    Integrity,
    /// The host: kernel features, file system, permissions, the container runtime.
    Host,
}

impl FailureKind {
    /// The exit code of the command line. 125 is what container tools use for their own failures; the others
    /// stay clear of it, of 126 and 127 (command not runnable, not found) and of 128 + signal.
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

/// A failure: its kind, and a message that names the thing and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which kind.
    pub kind: FailureKind,
    /// For people.
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
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<xebec_cache::store::StoreError> for Failure {
    fn from(error: xebec_cache::store::StoreError) -> Self {
        Self::new(FailureKind::Host, error)
    }
}
