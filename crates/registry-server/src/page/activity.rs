//! Recent errors and slow requests: the last [`KEPT`] of each, in memory.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

/// How many of each kind are kept.
pub const KEPT: usize = 100;
/// Longest text of an entry, in bytes; the rest is cut.
const MAX_TEXT: usize = 512;

/// A request worth showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// `GET /v2/…`
    pub request: String,
    /// The repository that it is about, by which the page decides who may see it. Without one, its path may still name any.
    pub repository: Option<String>,
    /// The answer's status.
    pub status: u16,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The request's id, which the log has too.
    pub id: String,
}

/// The failed and the slow requests of late.
#[derive(Debug, Default)]
pub struct Activity {
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    errors: VecDeque<Entry>,
    slow: VecDeque<Entry>,
}

impl Activity {
    /// Remembers a request that failed by the server's own fault or an upstream's.
    pub fn failed(&self, entry: Entry) {
        push(&mut self.lock().errors, entry);
    }

    /// Remembers a request that took long until its first byte.
    pub fn slow(&self, entry: Entry) {
        push(&mut self.lock().slow, entry);
    }

    /// Errors and slow requests, the newest first.
    pub fn all(&self) -> (Vec<Entry>, Vec<Entry>) {
        let lists = self.lock();
        let newest_first = |list: &VecDeque<Entry>| list.iter().rev().cloned().collect();
        (newest_first(&lists.errors), newest_first(&lists.slow))
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock()
    }
}

fn push(list: &mut VecDeque<Entry>, mut entry: Entry) {
    cut(&mut entry.request);
    if list.len() == KEPT {
        list.pop_front();
    }
    list.push_back(entry);
}

fn cut(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, repository: Option<&str>) -> Entry {
        Entry {
            at_ms: number,
            request: "é".repeat(1000),
            repository: repository.map(str::to_owned),
            status: 500,
            took_ms: 1,
            id: number.to_string(),
        }
    }

    #[test]
    fn the_last_are_kept_and_texts_are_bounded() {
        let activity = Activity::default();
        (0..250).for_each(|number| activity.failed(entry(number, None)));
        let (errors, slow) = activity.all();
        assert_eq!((errors.len(), slow.len()), (KEPT, 0));
        assert_eq!(errors.first().map(|entry| entry.at_ms), Some(249));
        assert!(errors.iter().all(|entry| entry.request.len() <= MAX_TEXT + 3));
    }
}
