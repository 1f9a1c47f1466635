//! The cases, by topic.

mod differential;

use crate::runner::Case;

/// Every case, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    differential::cases()
}
