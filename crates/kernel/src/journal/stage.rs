//! The points between which a worker may die, by name, so that a test can kill it at each of them.

use std::sync::OnceLock;

/// Where in its work on events a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Raw buffer zeroed; about to read.
    Reading,
    /// Events are in the raw buffer and nowhere else.
    Read,
    /// One more event is in the pending table; the raw buffer still holds it too.
    Recorded,
    /// The raw buffer is cleared; events are only in the pending table.
    Cleared,
    /// One more owed number is occupied.
    Held,
    /// The predecessor's raw buffer is taken over into the pending table, but not yet cleared.
    Adopted,
    /// About to answer.
    Answering,
    /// Answered, and the entry still says that it is owed.
    Answered,
    /// The entry is free, and the descriptor still open.
    Freed,
}

static OBSERVER: OnceLock<fn(Stage)> = OnceLock::new();

/// Calls `observer` at each stage, for the rest of the process. For tests; the first observer stays.
pub fn observe_stages(observer: fn(Stage)) {
    let _ = OBSERVER.set(observer);
}

pub(super) fn reached(stage: Stage) {
    if let Some(observer) = OBSERVER.get() {
        observer(stage);
    }
}
