//! The lazy layers, as containerd listed them a moment ago, and the lengths of their blobs.
//!
//! `docker images` asks for every layer of every image, one by one, and for what there is of other platforms. A list of the
//! snapshots takes containerd a tenth of a second for each hundred of them, so it is not made anew for each question.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// For which images lazy snapshots were made, by the digests of their layers.
pub(super) type Origins = HashMap<String, Vec<String>>;

/// How long a list counts. A change by Docker itself ends it at once; others, such as `xebec ctr-pull`, change things too.
const AGE: Duration = Duration::from_secs(1);
/// Most lengths that are known: those of some thousand images. They are all forgotten then.
const SIZES: usize = 100_000;

/// The notes on a containerd, by namespace.
#[derive(Debug, Default)]
pub(super) struct Known {
    changes: AtomicU64,
    lists: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<List>>>>>,
    /// By namespace and digest. They never change, but what one namespace says is no other's.
    sizes: Mutex<HashMap<(String, String), u64>>,
}

#[derive(Debug)]
struct List {
    at: Instant,
    changes: u64,
    origins: Arc<Origins>,
}

/// The list of one namespace, which nobody else makes meanwhile.
pub(super) struct Listed<'a> {
    known: &'a Known,
    list: tokio::sync::OwnedMutexGuard<Option<List>>,
}

/// When a list was begun.
pub(super) struct Begun {
    at: Instant,
    changes: u64,
}

impl Known {
    /// Snapshots may have come or gone.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) async fn of(&self, namespace: &str) -> Listed<'_> {
        let list = {
            let mut lists = self.lists.lock();
            lists.entry(namespace.to_owned()).or_default().clone()
        };
        Listed {
            known: self,
            list: list.lock_owned().await,
        }
    }

    /// How long a blob is, if that is known.
    pub(super) fn size(&self, namespace: &str, digest: &str) -> Option<u64> {
        let sizes = self.sizes.lock();
        sizes.get(&(namespace.to_owned(), digest.to_owned())).copied()
    }

    /// It is that long.
    pub(super) fn has_size(&self, namespace: &str, digest: String, size: u64) {
        let mut sizes = self.sizes.lock();
        if sizes.len() >= SIZES {
            sizes.clear();
        }
        sizes.insert((namespace.to_owned(), digest), size);
    }
}

impl Listed<'_> {
    /// The list, unless it is old, or something changed since it was begun.
    pub(super) fn still_right(&self) -> Option<Arc<Origins>> {
        let list = self.list.as_ref()?;
        let is_right = list.at.elapsed() < AGE && list.changes == self.known.changes.load(Ordering::SeqCst);
        is_right.then(|| list.origins.clone())
    }

    /// A list is about to be asked for.
    pub(super) fn begin(&self) -> Begun {
        Begun {
            at: Instant::now(),
            changes: self.known.changes.load(Ordering::SeqCst),
        }
    }

    /// This was answered.
    pub(super) fn is(&mut self, begun: Begun, origins: Origins) -> Arc<Origins> {
        let origins = Arc::new(origins);
        *self.list = Some(List {
            at: begun.at,
            changes: begun.changes,
            origins: origins.clone(),
        });
        origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_list_counts_until_something_changes() {
        let known = Known::default();
        let mut listed = known.of("moby").await;
        assert!(listed.still_right().is_none());
        let begun = listed.begin();
        listed.is(
            begun,
            Origins::from([("layer".to_owned(), vec!["image".to_owned()])]),
        );
        assert!(listed.still_right().unwrap().contains_key("layer"));
        // While a list is made, too.
        let begun = listed.begin();
        known.changed();
        assert!(listed.still_right().is_none());
        listed.is(begun, Origins::new());
        assert!(listed.still_right().is_none());
        drop(listed);
        assert!(known.of("other").await.still_right().is_none());
    }

    #[test]
    fn lengths_are_known_in_their_namespace() {
        let known = Known::default();
        known.has_size("moby", "layer".to_owned(), 7);
        assert_eq!(known.size("moby", "layer"), Some(7));
        assert_eq!(known.size("other", "layer"), None);
    }
}
