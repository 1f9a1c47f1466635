//! Files that are written and not synced yet. A sync takes milliseconds on a disk that has nothing else to do, and many more on a busy
//! one, so no start waits for one: upkeep syncs the files of starts. A power cut before that costs the work of finding it out again, and
//! Xebec uses nothing that the power cut damaged (decision 0015).

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;

/// How many requests wait for the disk at once; the others wait without a thread.
const AT_ONCE: usize = 2;

/// The layers and records that are still to be synced, of one installation.
#[derive(Clone, Debug)]
pub(crate) struct DeferredSync {
    pub(crate) notes: Arc<Mutex<Notes>>,
    pub(crate) turns: Arc<Semaphore>,
}

#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Layers of which the folders are new.
    pub(crate) layers: BTreeSet<LayerKey>,
    /// Manifests of images of which the records are.
    pub(crate) images: BTreeSet<Digest>,
}

impl Default for DeferredSync {
    fn default() -> Self {
        Self {
            notes: Arc::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl DeferredSync {
    /// A layer's folder was made, with what is known about its index.
    pub(crate) fn add_layer(&self, key: LayerKey) {
        self.notes.lock().layers.insert(key);
    }

    /// The first record of an image was written.
    pub(crate) fn add_image(&self, manifest: Digest) {
        self.notes.lock().images.insert(manifest);
    }
}
