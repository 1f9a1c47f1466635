//! The points of a fill between which a process may die, by name, so that a test can kill it at each of them.
//!
//! The journal of owed events has its own (`xebec_kernel::journal::Stage`); these lie between two of those.

use std::sync::OnceLock;

/// How far a fill has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The source bytes of a group of spans are in memory; nothing of them is decoded.
    Fetched,
    /// A span is decoded and its digest is right; nothing of it is written.
    Verified,
    /// A span is in the data file; its pages are not claimed.
    Written,
    /// Its pages are claimed; the readers that wait for them do not know yet.
    Claimed,
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
