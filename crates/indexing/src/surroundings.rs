//! What an indexer asks of the registry that it is a part of, and tells it.

/// A registry, as far as its indexer knows it.
pub trait Surroundings: Send + Sync {
    /// Whether anything may be written now. The indexer begins nothing while it may not.
    fn may_write(&self) -> bool;

    /// An attempt to index a manifest came to this: `done`, `not_wholly` or `failed_for_now`.
    fn indexed(&self, outcome: &'static str);

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

    fn predicted(&self, _: &'static str) {}
}
