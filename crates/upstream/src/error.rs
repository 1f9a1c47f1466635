//! Why something of an upstream cannot be fetched.

use std::sync::Arc;
use std::time::Duration;

use xebec_oci::{ClientError, Fault};
use xebec_store::StoreError;

/// How long a client is told to wait for an upstream that limits requests and does not say for how long.
const USUAL_LIMIT: Duration = Duration::from_secs(60);
/// How long it is told to wait at most.
const LONGEST_LIMIT: Duration = Duration::from_secs(3600);

/// Why something of an upstream cannot be fetched. Several clients may wait for one answer, so it can be cloned.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It is not there.
    #[error("{0}")]
    NotFound(String),
    /// The upstream limits requests.
    #[error("the upstream {registry} limits requests; try again in {} s, or give this registry credentials for it", after.as_secs())]
    Limited {
        /// Which upstream.
        registry: String,
        /// For how long.
        after: Duration,
    },
    /// The upstream refuses this registry.
    #[error(
        "the upstream {registry} refuses this registry ({reason}); see the credentials of that upstream in the configuration"
    )]
    Refused {
        /// Which upstream.
        registry: String,
        /// Its words.
        reason: String,
    },
    /// The upstream cannot be reached, or does not answer.
    #[error("the upstream {registry} cannot be reached ({reason}); try again when it is back")]
    Away {
        /// Which upstream.
        registry: String,
        /// The reason of the failure.
        reason: String,
    },
    /// The upstream answers, but not with what was asked for.
    #[error(
        "the upstream {registry} sent something else than what was asked for ({reason}); nothing of it is kept"
    )]
    Wrong {
        /// Which upstream.
        registry: String,
        /// The fault of the answer.
        reason: String,
    },
    /// As many blobs of it are fetched, and wait to be, as may be.
    #[error("{0} blobs of the upstream {1} are being fetched or wait for that, and no more may; try again")]
    Busy(usize, String),
    /// A blob cannot be kept here now.
    #[error(
        "this registry has no room for {0} bytes of a blob beside its reserve; delete images, or give its disk more room"
    )]
    NoRoom(u64),
    /// This registry failed.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// This host failed.
    #[error("cannot {doing}: {reason}")]
    Host {
        /// The action that failed.
        doing: &'static str,
        /// Why it was not.
        reason: String,
    },
}

impl From<StoreError> for UpstreamError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl UpstreamError {
    /// The error of a failed call to the upstream `registry`.
    pub(super) fn of(registry: &str, error: &ClientError) -> Self {
        let registry = registry.to_owned();
        match error {
            ClientError::NotFound { .. } | ClientError::NoTag { .. } | ClientError::NoRepository { .. } => {
                Self::NotFound(error.to_string())
            }
            ClientError::RateLimited { cause, .. } => {
                Self::limited(&registry, cause.retry_after().unwrap_or(USUAL_LIMIT))
            }
            ClientError::Unauthorized { cause, .. } => Self::Refused {
                registry,
                reason: cause.to_string(),
            },
            ClientError::Denied { message, .. } => Self::Refused {
                registry,
                reason: message.clone(),
            },
            ClientError::WrongDigest { got, .. } => Self::Wrong {
                registry,
                reason: format!("content with digest {got}"),
            },
            ClientError::Failed { cause, .. }
                if matches!(cause, Fault::WrongRange(_) | Fault::WrongDigest { .. }) =>
            {
                Self::Wrong {
                    registry,
                    reason: cause.to_string(),
                }
            }
            ClientError::Unreachable { cause, .. } | ClientError::Failed { cause, .. } => Self::Away {
                registry,
                reason: cause.to_string(),
            },
            ClientError::UnknownHost { host, .. } => Self::Away {
                registry,
                reason: format!("there is no host named {host}"),
            },
            other => Self::Wrong {
                registry,
                reason: other.to_string(),
            },
        }
    }

    /// The upstream wants to be left alone for so long.
    pub(super) fn limited(registry: &str, after: Duration) -> Self {
        Self::Limited {
            registry: registry.to_owned(),
            after: after.min(LONGEST_LIMIT),
        }
    }

    /// Whether the same could succeed later.
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::NotFound(_))
    }
}
