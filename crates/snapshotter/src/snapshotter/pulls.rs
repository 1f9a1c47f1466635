//! Pulls of lazy layers that are under way. No pull begins while layers of other images are being released.
//!
//! Between the moment in which a layer is found lazy and the one in which a snapshot stands for it, nothing in the store says
//! that the image is wanted. So a pull first notes the image whose layer it offers. A release of layers reads these notes, and leaves
//! these images alone. A pull that comes later waits for the release, and then finds out anew what there is. It waits for the removal
//! of files, never for a registry, and a release never waits for a pull.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The table of pulls.
#[derive(Default)]
pub(super) struct Pulls {
    table: Mutex<Table>,
    is_over: Notify,
}

#[derive(Default)]
struct Table {
    /// The image's manifest, if the client said.
    under_way: BTreeMap<u64, Option<String>>,
    next: u64,
    is_letting_go: bool,
}

/// An offered layer's image, which stays while this is held.
pub(super) struct Pull {
    pulls: Arc<Pulls>,
    number: u64,
}

/// No pull begins while this is held.
pub(super) struct Held {
    pulls: Arc<Pulls>,
    /// Manifests of images that are being pulled; `None` if one of them cannot be told.
    pub(super) pulled: Option<BTreeSet<String>>,
}

impl Pulls {
    /// A layer of the image with this manifest is going to be offered; of any, if it is not known.
    pub(super) async fn begin(self: &Arc<Self>, manifest: Option<String>) -> Pull {
        loop {
            // Made before it is looked at, so that no end is missed.
            let is_over = self.is_over.notified();
            if let Some(number) = self.table.lock().add(manifest.clone()) {
                let pulls = self.clone();
                return Pull { pulls, number };
            }
            is_over.await;
        }
    }

    /// Has pulls wait that are not under way. One at a time does so.
    pub(super) fn hold(self: &Arc<Self>) -> Held {
        let mut table = self.table.lock();
        table.is_letting_go = true;
        let pulled = table.under_way.values().cloned().collect();
        Held {
            pulls: self.clone(),
            pulled,
        }
    }
}

impl Table {
    fn add(&mut self, manifest: Option<String>) -> Option<u64> {
        if self.is_letting_go {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number, manifest);
        Some(number)
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.pulls.table.lock().under_way.remove(&self.number);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pulls.table.lock().is_letting_go = false;
        self.pulls.is_over.notify_waiters();
    }
}
