//! What an indexer asks of the registry that it is a part of, and tells it.

use xebec_store::{Digest, RepositoryName};

/// A registry, as far as its indexer knows it.
pub trait Surroundings: Send + Sync {
    /// Whether anything may be written now. The indexer begins nothing while it may not.
    fn may_write(&self) -> bool;

    /// An attempt to index a manifest came to this: `done`, `not_wholly` or `failed_for_now`.
    fn indexed(&self, outcome: &'static str);

    /// Something that the indexer made refers to this manifest now.
    fn referred(&self, repository: &RepositoryName, manifest: &Digest);

    /// An attempt to predict a runtime image came to this: `done`, `not_needed`, `not_possible` or `failed_for_now`.
    fn predicted(&self, outcome: &'static str);
}

/// No registry: everything may be written, and nobody counts.
pub(crate) struct Alone;

impl Surroundings for Alone {
    fn may_write(&self) -> bool {
        true
    }

    fn indexed(&self, _: &'static str) {}

    fn referred(&self, _: &RepositoryName, _: &Digest) {}

    fn predicted(&self, _: &'static str) {}
}
