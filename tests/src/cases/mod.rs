//! The cases, by topic.

mod deaths;
mod differential;
mod faults;
mod laziness;
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
        laziness::cases(),
        deaths::cases(),
        differential::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
