//! What was brought into the page cache of views' files before anybody read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xebec_fill::page_set::PageSet;

/// Pages of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Populated {
    /// These were brought, whether or not somebody reads them.
    pub brought: PageSet,
    /// The sample of them that was left out.
    pub left_out: PageSet,
}

/// What a worker noted of a view that is mounted. Who has it knows that mount from one of the same name after it.
#[derive(Clone, Debug, Default)]
pub struct PopulatedNote(pub(super) Arc<Mutex<Populated>>);

impl PopulatedNote {
    pub(super) fn lock(&self) -> MutexGuard<'_, Populated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
