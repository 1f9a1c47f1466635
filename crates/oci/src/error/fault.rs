//! Says why one try failed, and whether another one is worth it.

use std::time::Duration;

use xebec_format::digest::Digest;

/// The reason why one try failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No connection came about.
    #[error("no connection: {0}")]
    Connect(String),
    /// No connection comes about, and that is known at once: nobody listens there, or there is no way there.
    #[error("no connection: {0}")]
    NobodyThere(String),
    /// There is no host of this name.
    #[error("there is no host named {0}")]
    UnknownHost(String),
    /// The server's certificate is not trusted, or TLS failed otherwise.
    #[error("TLS: {0}")]
    Tls(String),
    /// The connection broke, or the peer does not speak HTTP as it should.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// Something did not happen in time.
    #[error("no {0} within {1:?}")]
    Timeout(&'static str, Duration),
    /// The body came too slowly.
    #[error("only {bytes} bytes within {window:?}")]
    Stalled {
        /// Bytes that came in the window.
        bytes: u64,
        /// The time they took.
        window: Duration,
    },
    /// The registry answered with an HTTP status that is not success.
    #[error("HTTP status {code}{}", explain(.message))]
    Status {
        /// The status code.
        code: u16,
        /// The message in the body, shortened.
        message: String,
        /// The time that `Retry-After` asked for.
        retry_after: Option<Duration>,
    },
    /// The body ended before it was complete.
    #[error("the body ended after {got} of {expected} bytes")]
    Truncated {
        /// Length that was announced or asked for.
        expected: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The answer is not the range that was asked for.
    #[error("wrong range: {0}")]
    WrongRange(String),
    /// The content does not have the digest by which it was asked for.
    #[error("wrong content: expected {expected}, got {got}")]
    WrongDigest {
        /// The digest of the content that was asked for.
        expected: Digest,
        /// The digest of the bytes that came.
        got: Digest,
    },
    /// The body is larger than is accepted for this kind of content.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The answer breaks the distribution protocol in another way.
    #[error("{0}")]
    Protocol(String),
    /// Xebec could not get credentials.
    #[error("credentials: {0}")]
    Credentials(String),
}

impl Fault {
    /// Whether another try could end differently.
    pub fn is_retryable(&self) -> bool {
        match self {
            Fault::Connect(_)
            | Fault::NobodyThere(_)
            | Fault::Broken(_)
            | Fault::Timeout(..)
            | Fault::Stalled { .. }
            | Fault::Truncated { .. }
            | Fault::WrongRange(_)
            | Fault::WrongDigest { .. } => true,
            // 408, 425 and 429 ask for it; 501 and 505 will not change; the other 5xx are passing.
            Fault::Status { code, .. } => {
                matches!(code, 408 | 425 | 429) || (*code >= 500 && !matches!(code, 501 | 505))
            }
            Fault::UnknownHost(_)
            | Fault::Tls(_)
            | Fault::TooLarge { .. }
            | Fault::Protocol(_)
            | Fault::Credentials(_) => false,
        }
    }

    /// Whether it is what a registry does while it is away: down, restarting, cut off. As soon as anybody is served
    /// again, everybody can be.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Fault::Connect(_)
            | Fault::NobodyThere(_)
            | Fault::UnknownHost(_)
            | Fault::Broken(_)
            | Fault::Timeout(..)
            | Fault::Stalled { .. }
            | Fault::Truncated { .. } => true,
            Fault::Status { code, .. } => *code >= 500 && self.is_retryable(),
            _ => false,
        }
    }

    /// Whether the answer came, and is not one to the question. That seldom passes.
    pub(crate) fn is_nonsense(&self) -> bool {
        matches!(self, Fault::WrongRange(_) | Fault::WrongDigest { .. })
    }

    /// Whether the registry refuses the client: a person can mend that, or a credential helper.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Fault::Credentials(_) | Fault::Status { code: 401 | 403, .. }
        )
    }

    /// Whether a caller that can wait long does so, though others fail at once: a person may mend it meanwhile.
    pub(crate) fn may_be_mended(&self) -> bool {
        self.is_refusal() || matches!(self, Fault::UnknownHost(_))
    }

    /// How long the registry asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Fault::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

pub(super) fn explain(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(" ({message})")
    }
}
