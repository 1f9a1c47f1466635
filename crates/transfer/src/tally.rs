//! Counts of what was moved and skipped so far: the code that moves writes them, and the code that reports reads them.

use parking_lot::Mutex;
use serde::Serialize;

/// So many of those that were skipped are kept with their reasons; all of them are counted.
const MOST_KEPT: usize = 10_000;

/// Counts of what was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Repositories that were looked through.
    pub repositories: u64,
    /// Manifests that came.
    pub manifests: u64,
    /// Manifests that were here.
    pub manifests_here: u64,
    /// Tags that were set.
    pub tags: u64,
    /// Tags that named the same here already.
    pub tags_here: u64,
    /// Tags that were removed, because the source has them no longer.
    pub tags_removed: u64,
    /// Blobs that came.
    pub blobs: u64,
    /// Blobs that were here.
    pub blobs_here: u64,
    /// The bytes of those that came.
    pub bytes: u64,
    /// Manifests that were deleted at the source, as far as its directory shows it.
    pub deleted: u64,
    /// How many manifests there will be in all, as far as is known.
    #[serde(skip)]
    pub expected_manifests: u64,
    /// How many bytes there will be in all, as far as is known.
    #[serde(skip)]
    pub expected_bytes: u64,
    /// How many things were skipped.
    pub skipped_count: u64,
    /// The first of them.
    pub skipped: Vec<Skipped>,
}

/// Something that was not moved, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Of which repository; empty: of none.
    pub repository: String,
    /// The thing that was skipped, in words.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// The counts so far.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Moved>);

impl Tally {
    /// The present counts, without those things that were skipped before the `from`th.
    pub fn read(&self, from: usize) -> Moved {
        let moved = self.0.lock();
        let skipped = moved.skipped.iter().skip(from).cloned().collect();
        Moved {
            skipped,
            repositories: moved.repositories,
            manifests: moved.manifests,
            manifests_here: moved.manifests_here,
            tags: moved.tags,
            tags_here: moved.tags_here,
            tags_removed: moved.tags_removed,
            blobs: moved.blobs,
            blobs_here: moved.blobs_here,
            bytes: moved.bytes,
            deleted: moved.deleted,
            expected_manifests: moved.expected_manifests,
            expected_bytes: moved.expected_bytes,
            skipped_count: moved.skipped_count,
        }
    }

    /// Says beforehand how much there will be.
    pub fn expect(&self, manifests: u64, bytes: u64) {
        self.add(|moved| {
            moved.expected_manifests = manifests;
            moved.expected_bytes = bytes;
        });
    }

    pub(crate) fn add(&self, change: impl FnOnce(&mut Moved)) {
        change(&mut self.0.lock());
    }

    pub(crate) fn skip(&self, repository: &str, what: impl Into<String>, reason: impl Into<String>) {
        let skipped = Skipped {
            repository: repository.to_owned(),
            what: what.into(),
            reason: reason.into(),
        };
        let mut moved = self.0.lock();
        moved.skipped_count += 1;
        if moved.skipped.len() < MOST_KEPT {
            moved.skipped.push(skipped);
        }
    }
}
