//! Why a request is not carried out, and who is told of it.

use hyper::http::request::Parts;

use crate::action::Need;

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Credentials are missing or wrong (401). The challenge is the value of `WWW-Authenticate`.
    Unauthorized {
        /// Tells the client how to log in.
        challenge: String,
        /// The fault, and what the user can do.
        detail: String,
    },
    /// The caller is known and may not do it (403).
    Denied {
        /// Which caller may not do what, and what to do.
        detail: String,
    },
    /// Whether the credentials are right cannot be said now (503): the keys of their issuer are away, or too many passwords wait.
    Unavailable {
        /// The service that is away or too busy, and what the user can do.
        detail: String,
        /// When to come again, in seconds.
        retry_after: u64,
    },
}

/// Hears of each refusal, such as an audit log.
pub trait Observer: Send + Sync {
    /// Takes note of it, at once.
    fn refused(&self, parts: &Parts, needs: &[Need], refusal: &Refusal);
}
