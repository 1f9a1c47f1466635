//! Brings to the disk what starts wrote down ([`crate::deferred_sync`]).

use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_protocol::failure::Failure;

use crate::facts;
use crate::images::Images;

impl Images {
    /// Brings to the disk what was written down since the last time. Blocks.
    ///
    /// # Errors
    /// The first thing that the disk does not take; it may be gone after a power cut. The rest is brought there all the same.
    pub fn sync(&self) -> Result<(), Failure> {
        let notes = std::mem::take(&mut *self.unsynced.notes.lock());
        let layers: Vec<LayerKey> = notes.layers.into_iter().collect();
        let layers = facts::sync(&self.store, &layers);
        let images = notes.images.into_iter();
        let images = images.map(|manifest| self.records.sync(manifest));
        images.fold(layers, Result::and)
    }

    /// Waits until layers are on the disk, and the record of their image, whichever task wrote them.
    ///
    /// # Errors
    /// When the disk does not take something of it.
    pub async fn synced(
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
