//! The blobs that Docker put under its leases, and whether it does so because it saves an image.
//!
//! Docker leases what an image has before it saves it (`leaseContent` in its `daemon/containerd/image_exporter.go`), and with the
//! same calls the image that it has already before it pulls or loads one of that name (`image_pull.go`). A save needs the blobs
//! before the archive begins; a pull needs none of them, and the registry may not have them any more. The next calls under the lease
//! tell: a save notes an event, for which it looks the image up, and then asks for each blob (`WithSkipMissing`); a pull writes
//! content, or the image.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

/// Most blobs that are remembered for one connection, which a save of some thousand images has. Blobs beyond that are brought at once.
const BLOBS: usize = 65_536;

/// The leases of one connection.
#[derive(Debug, Default)]
pub(super) struct Leased(Mutex<HashMap<Key, Lease>>);

/// Namespace and lease.
type Key = (String, String);

#[derive(Debug, Default)]
struct Lease {
    blobs: HashSet<String>,
    is_saving: bool,
}

impl Leased {
    /// A blob was put under a lease, by somebody whose calls are under that lease. Whether it may be brought later.
    pub(super) fn add(&self, namespace: &str, lease: &str, digest: &str) -> bool {
        let mut leases = self.0.lock();
        let has_room = leases.values().map(|lease| lease.blobs.len()).sum::<usize>() < BLOBS;
        let lease = leases.entry(key(namespace, lease)).or_default();
        if lease.is_saving || !has_room {
            return false;
        }
        lease.blobs.insert(digest.to_owned());
        true
    }

    /// Images were looked up under a lease.
    pub(super) fn looked_up(&self, namespace: &str, lease: &str) {
        if let Some(lease) = self.0.lock().get_mut(&key(namespace, lease)) {
            lease.is_saving |= !lease.blobs.is_empty();
        }
    }

    /// Something was written under a lease, or it is over.
    pub(super) fn forget(&self, namespace: &str, lease: &str) {
        self.0.lock().remove(&key(namespace, lease));
    }

    /// Whether a blob is about to be saved.
    pub(super) fn is_saved(&self, namespace: &str, lease: &str, digest: &str) -> bool {
        let leases = self.0.lock();
        let lease = leases.get(&key(namespace, lease));
        lease.is_some_and(|lease| lease.is_saving && lease.blobs.contains(digest))
    }
}

fn key(namespace: &str, lease: &str) -> Key {
    (namespace.to_owned(), lease.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_looks_the_image_up_after_its_blobs_were_leased() {
        let leased = Leased::default();
        leased.looked_up("moby", "save");
        assert!(leased.add("moby", "save", "one"));
        assert!(!leased.is_saved("moby", "save", "one"));
        leased.looked_up("moby", "other");
        leased.looked_up("other", "save");
        assert!(!leased.is_saved("moby", "save", "one"));
        leased.looked_up("moby", "save");
        assert!(leased.is_saved("moby", "save", "one"));
        assert!(!leased.is_saved("moby", "save", "two"));
        // The next image of the same save.
        assert!(!leased.add("moby", "save", "two"));
        leased.forget("moby", "save");
        assert!(!leased.is_saved("moby", "save", "one"));
    }

    #[test]
    fn a_pull_writes_before_it_looks_the_image_up() {
        let leased = Leased::default();
        leased.looked_up("moby", "pull");
        assert!(leased.add("moby", "pull", "old"));
        leased.forget("moby", "pull");
        leased.looked_up("moby", "pull");
        assert!(!leased.is_saved("moby", "pull", "old"));
        // The next tag of the same pull.
        assert!(leased.add("moby", "pull", "older"));
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let leased = Leased::default();
        for number in 0..BLOBS {
            assert!(leased.add("moby", &(number % 7).to_string(), &number.to_string()));
        }
        assert!(!leased.add("moby", "1", "more"));
        leased.forget("moby", "0");
        assert!(leased.add("moby", "1", "more"));
    }
}
