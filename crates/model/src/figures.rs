//! Figures of a store for those who watch it.

use std::time::Duration;

/// The sums of a store's contents. They are read at most once in five minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Blobs, condemned ones included.
    pub blobs: u64,
    /// Their bytes.
    pub blob_bytes: u64,
    /// Those of them that a scrub found damaged or missing.
    pub damaged: u64,
    /// When the blob was read by a scrub that was so longest ago, in milliseconds since 1970; 0 if one never was.
    pub scrubbed: u64,
    /// Manifests of all repositories.
    pub manifests: u64,
    /// Their bytes.
    pub manifest_bytes: u64,
    /// Uploads that nobody has finished.
    pub uploads: u64,
    /// Their bytes.
    pub upload_bytes: u64,
}

/// The manifests that wait to be indexed, as they were some seconds ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Manifests that wait.
    pub manifests: u64,
    /// When the first of them came, in milliseconds since 1970; 0 if none waits.
    pub since: u64,
    /// Manifests that could not be indexed, or not wholly.
    pub failed: u64,
}

/// Transactions of one kind since the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// Those that ended well.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// How long all of them took together, waiting for the database included.
    pub time: Duration,
}

impl Transactions {
    /// Counts one that took so long.
    pub fn count(&mut self, time: Duration, is_done: bool) {
        self.done += u64::from(is_done);
        self.failed += u64::from(!is_done);
        self.time += time;
    }
}
