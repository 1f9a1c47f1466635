//! Indexes that this host keeps of an image's lowest layers: whether they may be used, and whether they show what the image says.

use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;

use super::choice::Choice;
use crate::facts;
use crate::found_image::FoundImage;
use crate::images::Images;
use crate::referrers::Referrers;

/// A judgement of the indexes that this host keeps of an image's lowest layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    /// There is an index of each that may be used, and none says another diff ID than the image.
    pub(crate) are_all: bool,
    /// This host has proven each of those indexes, and each says the image's diff ID.
    pub(crate) are_proven: bool,
}

impl Images {
    /// Judges whether the indexes that this host keeps of an image's lowest layers may be used. Does not compare their contents.
    ///
    /// # Errors
    /// [`FailureKind::Trust`] when there are some of a layer, and none may be used.
    pub(crate) fn judge_stored(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        layers: usize,
    ) -> Result<(), Failure> {
        self.chosen_from_store(request, found, layers).map(|_| ())
    }

    /// The same, and compares them with the diff IDs of the image's configuration. The author of an image may write there
    /// anything, and chain IDs are made of it: a proof of other contents must not count for them.
    ///
    /// # Errors
    /// Those of [`Self::judge_stored`].
    pub(crate) fn compare_stored(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        layers: usize,
    ) -> Result<Stored, Failure> {
        let chosen = self.chosen_from_store(request, found, layers)?;
        let are_there = layers <= found.layers.len().min(found.diff_ids.len());
        let mut stored = Stored {
            are_all: are_there,
            are_proven: are_there,
        };
        for (key, wanted) in chosen.into_iter().zip(&found.diff_ids) {
            let said = key.map(|key| self.diff_id(key)).transpose()?;
            // A table of contents says none; then the image's word is all there is.
            stored.are_all &= said.is_some_and(|said| said.is_none_or(|said| said == *wanted));
            stored.are_proven &=
                said.flatten() == Some(*wanted) && key.is_some_and(|key| facts::is_proven(&self.store, key));
        }
        Ok(stored)
    }

    /// The index of each of an image's lowest layers that may be used, of those that this host keeps.
    fn chosen_from_store(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        layers: usize,
    ) -> Result<Vec<Option<LayerKey>>, Failure> {
        let client = self.clients.get(request.docker_config.as_deref())?;
        let referrers = Referrers::by_type(client, found.reference.repository(), found.manifest_digest);
        let choice = Choice::new(self, request, found, &referrers)?;
        let lowest = found.layers.iter().take(layers);
        let chosen = lowest.map(|layer| match choice.choose_from_store(layer.digest) {
            Ok(chosen) => Ok(chosen.map(|(key, _)| key).filter(|key| choice.has_access(*key))),
            Err(refusal) => Err(Failure::new(FailureKind::Trust, refusal)),
        });
        chosen.collect()
    }

    /// The diff ID that a kept index says, if it says one.
    fn diff_id(&self, key: LayerKey) -> Result<Option<Digest>, Failure> {
        if let Some(index) = self.decoded.get(key) {
            return Ok(index.diff_id);
        }
        let said = LayerIndex::diff_id_of(&self.store.index_bytes(key)?);
        said.map_err(|error| Failure::new(FailureKind::Integrity, error))
    }
}
