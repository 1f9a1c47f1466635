//! Who asks, and what they may do.
//!
//! Each request passes [`Guard::check`] with all that it needs before anything else is looked at, so that a caller without rights
//! learns nothing of what exists.

use std::net::SocketAddr;

use hyper::http::request::Parts;

/// What a request does in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads manifests, blobs, tags or referrers.
    Pull,
    /// Writes blobs, manifests or tags.
    Push,
    /// Deletes any of them.
    Delete,
    /// Lists all repositories; the repository is then empty.
    Catalog,
}

/// One right that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The repository's name.
    pub repository: String,
    /// What is done there.
    pub action: Action,
}

/// Who a request comes from, as far as that was shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user's name; none for somebody who did not log in.
    pub name: Option<String>,
}

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Credentials are missing or wrong (401). The challenge is the value of `WWW-Authenticate`.
    Unauthorized {
        /// Tells the client how to log in.
        challenge: String,
        /// What is wrong, and what to do.
        detail: String,
    },
    /// The caller is known and may not do it (403).
    Denied {
        /// Who may not do what, and what to do.
        detail: String,
    },
}

/// The other end of the connection that a request came by. The server puts it into the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Decides on requests.
#[derive(Clone, Debug, Default)]
pub struct Guard;

impl Guard {
    /// One that lets everybody do everything.
    pub fn open() -> Self {
        Self
    }

    /// Who asks, if they may do all of `needs`. Without any, whether the caller need not log in first.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub async fn check(&self, parts: &Parts, needs: &[Need]) -> Result<Caller, Refusal> {
        let _ = (parts, needs);
        Ok(Caller::default())
    }
}
