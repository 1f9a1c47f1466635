//! What was brought into the page cache of views' files before anybody read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xebec_fill::page_set::PageSet;

use super::Views;

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
pub struct PopulatedNote(Arc<Mutex<Populated>>);

impl PopulatedNote {
    fn lock(&self) -> MutexGuard<'_, Populated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Views {
    /// Where it is noted what is brought into a view's page cache; `None` if it is not mounted.
    pub fn populated_note(&self, name: &str) -> Option<PopulatedNote> {
        self.lock().get(name).map(|record| record.populated.clone())
    }

    /// Notes pages that are about to be brought into a view's page cache; `false` if nobody holds that mount of it any more.
    pub fn note_populated(&self, name: &str, note: &PopulatedNote, more: &Populated) -> bool {
        let mut table = self.lock();
        let record = table
            .get_mut(name)
            .filter(|record| record.is_held() && Arc::ptr_eq(&record.populated.0, &note.0));
        let Some(record) = record else { return false };
        let mut populated = note.lock();
        populated.brought.add(&more.brought);
        populated.left_out.add(&more.left_out);
        drop(populated);
        if !record.was_populated {
            record.was_populated = true;
            // Lost, it makes what a later worker says of a start on this very view too high.
            let _ = self.write(record);
        }
        true
    }

    /// What was brought into a view's page cache; `None` if a worker before this one did that, and what it was is not known.
    pub fn populated(&self, name: &str) -> Option<Populated> {
        let table = self.lock();
        let Some(record) = table.get(name) else {
            return Some(Populated::default());
        };
        let populated = record.populated.lock().clone();
        (populated != Populated::default() || !record.was_populated).then_some(populated)
    }

    /// Whether somebody holds that mount of a view.
    pub fn is_held(&self, name: &str, note: &PopulatedNote) -> bool {
        let table = self.lock();
        let record = table.get(name);
        record.is_some_and(|record| record.is_held() && Arc::ptr_eq(&record.populated.0, &note.0))
    }
}
