//! Who writes to which pages of a data file at the moment, so that an injection and a fill of the same pages take
//! turns. Fills do not wait for each other (each writes the bytes of its own span), and nobody waits for who works on
//! other pages.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The turns being had.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    had: Mutex<Vec<Had>>,
    ended: Condvar,
}

/// How a turn is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Beside others who want the same: fills.
    Beside,
    /// By nobody else: injections and evictions.
    Alone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Had {
    pages: Range<u64>,
    way: Way,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    had: Had,
}

impl Turns {
    /// Waits until these pages may be written. One thread must have one turn at a time.
    pub(crate) fn take(&self, pages: Range<u64>, way: Way) -> Turn<'_> {
        let in_the_way = |had: &Had| {
            let overlaps = had.pages.start < pages.end && pages.start < had.pages.end;
            overlaps && (way == Way::Alone || had.way == Way::Alone)
        };
        let mut all = self.lock();
        while all.iter().any(in_the_way) {
            all = self.ended.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        let had = Had { pages, way };
        all.push(had.clone());
        Turn { turns: self, had }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Had>> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.lock();
        // Any turn of the same pages and way will do: they are alike.
        if let Some(at) = all.iter().position(|had| *had == self.had) {
            all.swap_remove(at);
        }
        self.turns.ended.notify_all();
    }
}
