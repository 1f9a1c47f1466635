//! Failures.

use std::io;

use xebec_recompress::{InvalidDescription, RestoreError};
use xebec_store::{Digest, StoreError};

use crate::objects::PackObject;

/// Why a blob was not taken apart, or not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DedupError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object could not be read. That says nothing of its bytes.
    #[error("cannot read {key}: {source}")]
    Read {
        /// The object.
        key: String,
        /// The error.
        source: io::Error,
    },
    /// The bytes of a recipe are not those that were recorded.
    #[error("the recipe of {digest} is damaged: {why}")]
    Recipe {
        /// The blob.
        digest: Digest,
        /// The damage.
        why: String,
    },
    /// The bytes of a pack are not those that were recorded, or it lacks a chunk.
    #[error("the pack {} is damaged: {why}", .pack.object)]
    Pack {
        /// Its object.
        pack: PackObject,
        /// The damage.
        why: String,
    },
    /// The blob has neither its bytes nor a recipe.
    #[error("{0} has no recipe")]
    NoRecipe(Digest),
    /// The same chunks and the same recipe make other bytes.
    #[error("{digest} is not restored exactly: {why}")]
    NotExact {
        /// The blob.
        digest: Digest,
        /// Where it differs.
        why: String,
    },
    /// A thread ended without an answer.
    #[error("a thread that works on {0} failed")]
    Thread(String),
}

impl DedupError {
    pub(crate) fn not_exact(digest: &Digest, why: impl ToString) -> Self {
        Self::NotExact {
            digest: digest.clone(),
            why: why.to_string(),
        }
    }

    pub(crate) fn of_description(digest: &Digest, error: InvalidDescription) -> Self {
        Self::Recipe {
            digest: digest.clone(),
            why: error.to_string(),
        }
    }

    pub(crate) fn of_restoring(digest: &Digest, error: RestoreError) -> Self {
        Self::not_exact(digest, error)
    }

    /// Whether stored bytes are wrong, or gone: it will not be otherwise the next time.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Recipe { .. } | Self::Pack { .. } | Self::NotExact { .. } | Self::NoRecipe(_) => true,
            Self::Read { .. } | Self::Store(_) | Self::Thread(_) => false,
        }
    }

    /// Whether the next try may not come across the same: the store or one of its objects did not answer, or has no room; or a pack of others was
    /// damaged or replaced, of which the next try takes nothing.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Store(error) => !matches!(error, StoreError::Unsupported(_)),
            Self::Pack { pack, .. } => pack.key.is_some(),
            error => matches!(error, Self::Read { .. }),
        }
    }

    /// The same, or what `damaged` makes of it if the object is gone or too short.
    pub(crate) fn or_damage(self, damaged: impl FnOnce(String) -> Self) -> Self {
        match &self {
            Self::Read { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
                ) =>
            {
                damaged(self.to_string())
            }
            _ => self,
        }
    }
}

impl From<DedupError> for StoreError {
    fn from(error: DedupError) -> Self {
        match error {
            DedupError::Store(error) => error,
            DedupError::Read { key, source } => Self::Object {
                doing: "restore a blob",
                key,
                source,
            },
            other => Self::System {
                doing: "restore a blob",
                source: io::Error::other(other),
            },
        }
    }
}

impl From<DedupError> for io::Error {
    fn from(error: DedupError) -> Self {
        match error {
            DedupError::Read { source, .. } => source,
            other => Self::other(other),
        }
    }
}
