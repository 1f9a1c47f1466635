//! The points at which a test may end the process, by name: where a blob is taken apart, and where packs are put together anew.

use std::sync::OnceLock;

/// Where in its work a deduplicator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A new pack is stored, and a draft.
    PackPut,
    /// The recipe is stored, and a draft.
    RecipePut,
    /// The recipe is proven, and not recorded.
    Proven,
    /// The recipe is recorded, and the blob is still intact.
    Recorded,
    /// The blob is not intact any more.
    Dropped,
    /// A pack with what is needed of others is stored, and a draft.
    Repacked,
    /// That pack was read again, and has all that is needed.
    Compared,
    /// It has taken the place of the others.
    Replaced,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::PackPut,
        Self::RecipePut,
        Self::Proven,
        Self::Recorded,
        Self::Dropped,
        Self::Repacked,
        Self::Compared,
        Self::Replaced,
    ];
}

static OBSERVER: OnceLock<fn(Stage)> = OnceLock::new();

/// Calls `observer` at each stage, for the rest of the process. For tests; the first observer stays.
pub fn observe_stages(observer: fn(Stage)) {
    let _ = OBSERVER.set(observer);
}

pub(crate) fn reached(stage: Stage) {
    if let Some(observer) = OBSERVER.get() {
        observer(stage);
    }
}
