//! Locks of pages of a data file while they are written, so that an injection and a fill of the same pages come one after the
//! other. Fills share their pages (each writes the bytes of its own span), and a lock of other pages is never in the way.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// The locks that are held.
#[derive(Debug, Default)]
pub(crate) struct PageWriteLocks {
    held: Mutex<Vec<Held>>,
    released: Condvar,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Beside others that share the same pages: fills.
    Shared,
    /// Alone: injections and evictions.
    Exclusive,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    /// Ascending.
    pages: Vec<Range<u64>>,
    sharing: Sharing,
}

/// A lock; dropping it releases it.
#[derive(Debug)]
pub(crate) struct PageWriteLock<'a> {
    locks: &'a PageWriteLocks,
    held: Held,
}

impl PageWriteLocks {
    /// Waits until these pages, ascending runs of them, may be written. A thread must hold one lock at a time.
    pub(crate) fn take(&self, pages: &[Range<u64>], sharing: Sharing) -> PageWriteLock<'_> {
        let in_the_way = |held: &Held| {
            (sharing == Sharing::Exclusive || held.sharing == Sharing::Exclusive)
                && overlap(&held.pages, pages)
        };
        let mut all = self.held.lock();
        while all.iter().any(in_the_way) {
            self.released.wait(&mut all);
        }
        let held = Held {
            pages: pages.to_vec(),
            sharing,
        };
        all.push(held.clone());
        PageWriteLock { locks: self, held }
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

impl Drop for PageWriteLock<'_> {
    fn drop(&mut self) {
        let mut all = self.locks.held.lock();
        // Any lock of the same pages and sharing will do: they are alike.
        if let Some(at) = all.iter().position(|held| *held == self.held) {
            all.swap_remove(at);
        }
        self.locks.released.notify_all();
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "one run of pages is what is taken"
)]
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

    #[test]
    fn who_writes_alone_waits_for_those_at_the_same_pages_and_they_for_it() {
        use Sharing::{Exclusive, Shared};
        for (held, taken) in [(Shared, Exclusive), (Exclusive, Shared), (Exclusive, Exclusive)] {
            let locks = PageWriteLocks::default();
            let elsewhere = locks.take(&[9..12], Exclusive);
            let first = locks.take(&[0..3, 5..9], held);
            std::thread::scope(|scope| {
                let (took, is_taken) = std::sync::mpsc::channel();
                scope.spawn({
                    let locks = &locks;
                    move || {
                        let _second = locks.take(&[8..9], taken);
                        took.send(()).unwrap();
                    }
                });
                let wait = std::time::Duration::from_millis(50);
                assert!(is_taken.recv_timeout(wait).is_err(), "{held:?} {taken:?}");
                drop(elsewhere);
                assert!(is_taken.recv_timeout(wait).is_err(), "{held:?} {taken:?}");
                drop(first);
                is_taken.recv().unwrap();
            });
            assert!(locks.held.lock().is_empty());
        }
    }

    #[test]
    fn those_that_share_pages_do_not_wait_for_each_other() {
        let locks = PageWriteLocks::default();
        let _one = locks.take(&[0..3], Sharing::Shared);
        let _other = locks.take(&[2..4], Sharing::Shared);
        let _behind = locks.take(&[4..5], Sharing::Exclusive);
    }
}
