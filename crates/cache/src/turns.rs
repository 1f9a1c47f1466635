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
    /// Ascending.
    pages: Vec<Range<u64>>,
    way: Way,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    had: Had,
}

impl Turns {
    /// Waits until these pages, ascending runs of them, may be written. One thread must have one turn at a time.
    pub(crate) fn take(&self, pages: &[Range<u64>], way: Way) -> Turn<'_> {
        let in_the_way =
            |had: &Had| (way == Way::Alone || had.way == Way::Alone) && overlap(&had.pages, pages);
        let mut all = self.lock();
        while all.iter().any(in_the_way) {
            all = self.ended.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        let had = Had {
            pages: pages.to_vec(),
            way,
        };
        all.push(had.clone());
        Turn { turns: self, had }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Had>> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether any page is in both; each has its runs ascending.
fn overlap(mut one: &[Range<u64>], mut other: &[Range<u64>]) -> bool {
    while let ([first, rest @ ..], [second, others @ ..]) = (one, other) {
        if first.end <= second.start {
            one = rest;
        } else if second.end <= first.start {
            other = others;
        } else {
            return true;
        }
    }
    false
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_overlap_where_single_pages_do() {
        let sets = [
            vec![],
            vec![3..5, 9..12],
            vec![0..3, 5..9],
            vec![0..1, 11..12],
            vec![4..5, 20..21],
            vec![0..30, 40..41],
        ];
        for (one, other) in sets
            .iter()
            .flat_map(|one| sets.iter().map(move |other| (one, other)))
        {
            let mut pages = one.iter().cloned().flatten();
            let expected = pages.any(|page| other.iter().any(|run| run.contains(&page)));
            assert_eq!(overlap(one, other), expected, "{one:?} {other:?}");
        }
    }
}
