//! This host's knowledge of a layer: the indexes in its cache, and the evidence for them.

use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_trust::{Refusal, Root, Roots};

use super::choice::Choice;
use crate::facts;
use crate::prepared_layer::PreparedLayer;

impl Choice<'_> {
    /// The strongest admitted index of the cache; of equals the one that this image was used with before, so that
    /// its data is found again. One that this image's repository may be shown comes before a stronger one of others: it starts with
    /// that, whichever registry can be asked.
    pub(super) fn choose_from_store(&self, layer: Digest) -> Result<Option<(LayerKey, Root)>, Refusal> {
        let used = self.used.get_or_init(|| {
            let record = self.images.records.get(self.found.manifest_digest);
            let layers = record.into_iter().flat_map(|record| record.layers);
            layers.map(|layer| layer.key()).collect()
        });
        let mut keys = self.images.store.indexes_of(layer);
        keys.sort_by_key(|key| !used.contains(key));
        if keys.len() > 1 {
            let own = keys.iter().copied().filter(|key| self.has_access(*key));
            if let Ok(chosen) = self.strongest(own) {
                return Ok(Some(chosen));
            }
        }
        match self.strongest(keys.into_iter()) {
            Ok(chosen) => Ok(Some(chosen)),
            Err(None) => Ok(None),
            Err(Some(refusal)) => Err(refusal),
        }
    }

    fn strongest(&self, keys: impl Iterator<Item = LayerKey>) -> Result<(LayerKey, Root), Option<Refusal>> {
        let roots = keys.map(|key| (key, self.roots(key)));
        self.policy.choose(&self.repository, self.found.naming(), roots)
    }

    /// The roots of trust of an index, for this image.
    pub(super) fn roots(&self, key: LayerKey) -> Roots {
        facts::load(&self.images.store, key).roots(&self.repository, &self.found.path())
    }

    pub(super) fn open_from_store(
        &self,
        number: usize,
        key: LayerKey,
        root: Root,
    ) -> Result<PreparedLayer, Failure> {
        let wrong = |reason| Failure::new(FailureKind::Integrity, reason);
        let index = match self.images.decoded.get(key) {
            Some(index) => {
                self.check(number, &index).map_err(wrong)?;
                // Others hold it, but may not for as long as this image does.
                self.account.take(index.weight());
                self.account.check()?;
                index
            }
            None => {
                let bytes = self.images.store.index_bytes(key)?;
                Arc::new(self.decode(number, &bytes).map_err(wrong)?)
            }
        };
        Ok(PreparedLayer::new(key, index, root, false, &self.account))
    }
}
