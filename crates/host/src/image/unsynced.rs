//! What was written down and is not on the disk yet. A sync takes milliseconds on a disk that has nothing else to do, and many
//! more on one that has, so no start waits for one: upkeep brings to the disk what starts wrote since
//! ([`crate::worker`]). A power cut before that costs what it takes to find it out again, and nothing that it damages is
//! believed (decision 0015).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xebec_cache::store::NewLayer;
use xebec_format::digest::Digest;

use crate::facts;
use crate::failure::Failure;
use crate::image::Images;

/// What is to be synced, of one installation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced(Arc<Tables>);

#[derive(Debug, Default)]
struct Tables {
    notes: Mutex<Notes>,
    /// Held while notes that were taken come to the disk.
    syncing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Layers of which the folders are new.
    layers: Vec<NewLayer>,
    /// Manifests of images of which the records are.
    images: BTreeSet<Digest>,
    /// Recordings that are kept for an image, by its manifest and their names.
    recordings: BTreeSet<(Digest, Digest)>,
}

impl Unsynced {
    /// A layer's folder was made, with what is known about its index.
    pub(crate) fn add_layer(&self, layer: NewLayer) {
        self.lock().layers.push(layer);
    }

    /// The first record of an image was written.
    pub(crate) fn add_image(&self, manifest: Digest) {
        self.lock().images.insert(manifest);
    }

    /// A recording was written.
    pub(crate) fn add_recording(&self, manifest: Digest, name: Digest) {
        self.lock().recordings.insert((manifest, name));
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Images {
    /// Brings to the disk what was written down so far. Blocks.
    ///
    /// # Errors
    /// When the disk does not take something of it; what that is may be gone after a power cut, and is found out again then.
    pub fn sync(&self) -> Result<(), Failure> {
        let syncing = self.unsynced.0.syncing.lock();
        let _one = syncing.unwrap_or_else(PoisonError::into_inner);
        let Notes {
            layers,
            images,
            recordings,
        } = std::mem::take(&mut *self.unsynced.lock());
        let layers = facts::sync(&self.store, &layers);
        let mut images = images.into_iter();
        let images = images.try_for_each(|manifest| self.records.sync(manifest));
        let mut recordings = recordings.into_iter();
        let recordings = recordings.try_for_each(|(manifest, name)| self.recordings.sync(manifest, name));
        layers.and(images).and(recordings)
    }

    /// Waits until what was written down so far is on the disk.
    ///
    /// # Errors
    /// Those of [`Self::sync`].
    pub(crate) async fn synced(&self) -> Result<(), Failure> {
        let this = self.clone();
        let synced = tokio::task::spawn_blocking(move || this.sync()).await;
        synced.map_err(|error| Failure::host("sync what was written down", error))?
    }
}
