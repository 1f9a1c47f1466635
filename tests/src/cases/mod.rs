//! The cases, by topic.

mod differential;
mod faults;
mod outages;
mod reading;
mod trust;

use crate::runner::Case;

/// Every case, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    [
        reading::cases(),
        outages::cases(),
        faults::cases(),
        trust::cases(),
        differential::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
