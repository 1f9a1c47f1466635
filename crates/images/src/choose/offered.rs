//! Layer indexes that are offered for an image beside the usual ways: they came with the recording by which it is started, and
//! what vouches for the recording vouches for them.

use bytes::Bytes;
use tracing::debug;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_oci::Descriptor;
use xebec_protocol::failure::Failure;
use xebec_trust::{Evidence, Record};

use super::choice::{Choice, Outcome};
use crate::prepared_layer::PreparedLayer;

impl Choice<'_> {
    /// Sets the evidence for the indexes that are offered from now on.
    pub fn vouch(&mut self, evidence: Evidence) {
        self.offered.evidence = evidence;
    }

    /// Offers the index of a layer, with its bytes unless the cache has them.
    pub fn offer(&mut self, key: LayerKey, bytes: Option<Bytes>) {
        self.offered.indexes.insert(key.layer, (key, bytes));
    }

    /// Whether this host keeps an index of a layer that may be used.
    pub fn is_known(&self, layer: Digest) -> bool {
        matches!(self.choose_from_store(layer), Ok(Some(_)))
    }

    /// The index of a layer that came with the recording, if there is one.
    pub(super) async fn take_offered(
        &self,
        number: usize,
        descriptor: &Descriptor,
    ) -> Result<Option<Outcome>, Failure> {
        let Some((key, bytes)) = self.offered.indexes.get(&descriptor.digest) else {
            return Ok(None);
        };
        let (encoded, _held) = match bytes {
            Some(bytes) => (bytes.clone(), None),
            None => match self.kept_index(*key).await {
                Ok(Some((bytes, held))) => (bytes, Some(held)),
                Ok(None) => return Ok(None),
                Err(reason) => return Ok(Some(Outcome::Missing(reason))),
            },
        };
        let index = match self.decode_new(number, &encoded).await {
            Ok(index) => index,
            Err(reason) => return Ok(Some(Outcome::Missing(reason))),
        };
        let Evidence { listed, signed, .. } = self.offered.evidence.clone();
        let learn = move |record: &mut Record| {
            signed.into_iter().for_each(|signing| record.add_signing(signing));
            listed.into_iter().for_each(|listing| record.add_listing(listing));
        };
        Ok(Some(match self.admit(*key, encoded, learn).await? {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(root) => {
                debug!(layer = number, "its index came with the recording");
                Outcome::Chosen(Box::new(PreparedLayer::new(
                    *key,
                    index,
                    root,
                    false,
                    &self.account,
                )))
            }
        }))
    }
}
