//! How each blob is taken apart, where others have a say in it.

use futures_util::future::BoxFuture;
use xebec_store::{Digest, Store, StoreError};

use crate::settings::Cutting;

/// How a blob is taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// As [`Settings`](crate::Settings) say.
    Usual,
    /// Cut so. Its intact bytes stay until somebody else lets them go.
    Cut(Cutting),
    /// Not at all; why, for people.
    Stays(String),
}

/// Says how each blob is taken apart.
pub trait Forms: Send + Sync {
    /// Whether there is any blob of which it says another thing than [`How::Usual`].
    fn count(&self) -> bool;

    /// How this blob is taken apart.
    ///
    /// # Errors
    /// If the database fails.
    fn of<'a>(&'a self, store: &'a Store, blob: &'a Digest) -> BoxFuture<'a, Result<How, StoreError>>;
}
