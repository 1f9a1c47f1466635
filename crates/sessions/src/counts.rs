//! The number of uploads that each repository has under way, about. To count them in the transaction that begins one would put all uploads
//! of a repository in each other's way. So they are counted now and then, and those that begin here are added.

use std::collections::HashMap;

use parking_lot::Mutex;

use xebec_names::RepositoryName;

/// Uploads are counted again when so many have begun here. Other nodes may begin as many meanwhile.
const EVERY: u32 = 256;
/// Counts of more repositories are forgotten, and made again.
const MOST: usize = 10_000;

/// The counts of all repositories.
#[derive(Default)]
pub struct UploadCounts(Mutex<HashMap<RepositoryName, Count>>);

#[derive(Clone, Copy)]
struct Count {
    counted: u32,
    begun: u32,
}

impl UploadCounts {
    /// Whether the uploads of a repository have to be counted before another one begins: they never were, many have begun since, or there
    /// seem to be as many as there may be.
    pub fn is_due(&self, repository: &RepositoryName, most: u32) -> bool {
        let counts = self.0.lock();
        let is_due =
            |count: &Count| count.begun >= EVERY || count.counted.saturating_add(count.begun) >= most;
        counts.get(repository).is_none_or(is_due)
    }

    /// Takes over what was counted.
    pub fn counted(&self, repository: &RepositoryName, counted: u32) {
        let mut counts = self.0.lock();
        if counts.len() >= MOST {
            counts.clear();
        }
        counts.insert(repository.clone(), Count { counted, begun: 0 });
    }

    /// One more has begun.
    pub fn begun(&self, repository: &RepositoryName) {
        if let Some(count) = self.0.lock().get_mut(repository) {
            count.begun = count.begun.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_counted_at_first_after_many_and_near_the_limit() {
        let (counts, a, b) = (
            UploadCounts::default(),
            "a".parse().unwrap(),
            "b".parse().unwrap(),
        );
        assert!(counts.is_due(&a, 1000));
        counts.counted(&a, 0);
        assert!(!counts.is_due(&a, 1000) && counts.is_due(&b, 1000));
        for _ in 0..EVERY {
            assert!(!counts.is_due(&a, 1000));
            counts.begun(&a);
        }
        assert!(counts.is_due(&a, 1000));
        counts.counted(&a, 999);
        assert!(!counts.is_due(&a, 1000));
        counts.begun(&a);
        assert!(counts.is_due(&a, 1000));
        counts.counted(&a, 5);
        assert!(!counts.is_due(&a, 1000) && counts.is_due(&a, 5));
    }
}
