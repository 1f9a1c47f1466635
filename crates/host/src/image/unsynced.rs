//! What was written down and is not on the disk yet. A sync takes milliseconds on a disk that has nothing else to do, and many
//! more on one that has, so no start waits for one: upkeep brings to the disk what starts wrote since. A power cut before that costs what it takes to find it out again, and nothing that it damages is
//! believed (decision 0015).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_protocol::failure::Failure;

use crate::facts;
use crate::image::Images;

/// How many requests wait for the disk at once; the others wait without a thread.
const AT_ONCE: usize = 2;

/// What is to be synced, of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    notes: Arc<Mutex<Notes>>,
    turns: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Layers of which the folders are new.
    layers: BTreeSet<LayerKey>,
    /// Manifests of images of which the records are.
    images: BTreeSet<Digest>,
}

impl Default for Unsynced {
    fn default() -> Self {
        Self {
            notes: Arc::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Unsynced {
    /// A layer's folder was made, with what is known about its index.
    pub(crate) fn add_layer(&self, key: LayerKey) {
        self.lock().layers.insert(key);
    }

    /// The first record of an image was written.
    pub(crate) fn add_image(&self, manifest: Digest) {
        self.lock().images.insert(manifest);
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Images {
    /// Brings to the disk what was written down since the last time. Blocks.
    ///
    /// # Errors
    /// The first thing that the disk does not take; it may be gone after a power cut. The rest is brought there all the same.
    pub fn sync(&self) -> Result<(), Failure> {
        let notes = std::mem::take(&mut *self.unsynced.lock());
        let layers: Vec<LayerKey> = notes.layers.into_iter().collect();
        let layers = facts::sync(&self.store, &layers);
        let images = notes.images.into_iter();
        let images = images.map(|manifest| self.records.sync(manifest));
        images.fold(layers, Result::and)
    }

    /// Waits until layers are on the disk, and the record of their image, whoever wrote them.
    ///
    /// # Errors
    /// When the disk does not take something of it.
    pub(crate) async fn synced(
        &self,
        layers: impl Iterator<Item = LayerKey>,
        image: Option<Digest>,
    ) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::host("sync what was written down", error);
        let (this, layers) = (self.clone(), layers.collect::<Vec<_>>());
        let turn = self.unsynced.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|error| failed(&error))?;
        let sync = move || {
            let _turn = turn;
            let record = image.map_or(Ok(()), |manifest| this.records.sync(manifest));
            facts::sync(&this.store, &layers).and(record)
        };
        let synced = tokio::task::spawn_blocking(sync).await;
        synced.map_err(|error| failed(&error))?
    }
}
