//! Images that removed snapshots showed, until what only they needed is let go.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::record::LazyLayer;

/// Manifests of images that removed snapshots showed; `None` when nothing is to be done for them.
pub(super) struct RemovedImages {
    manifests: Mutex<Option<BTreeSet<String>>>,
    /// Held while a task lets go of them.
    pub(super) letting_go: tokio::sync::Mutex<()>,
}

impl Default for RemovedImages {
    fn default() -> Self {
        Self {
            // Of what was removed before the store was opened nothing is known.
            manifests: Mutex::new(Some(BTreeSet::new())),
            letting_go: tokio::sync::Mutex::default(),
        }
    }
}

impl RemovedImages {
    pub(super) fn add(&self, shown: Option<&LazyLayer>) {
        if let Some(layer) = shown {
            self.put_back(BTreeSet::from([layer.manifest.clone()]));
        }
    }

    pub(super) fn put_back(&self, manifests: BTreeSet<String>) {
        let mut all = self.manifests.lock();
        all.get_or_insert_default().extend(manifests);
    }

    pub(super) fn take(&self) -> Option<BTreeSet<String>> {
        self.manifests.lock().take()
    }
}
