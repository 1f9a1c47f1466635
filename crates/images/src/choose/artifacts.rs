//! Index artifacts of an image: bound by an image index on the way to it, or listed by the registry as its referrers.

use bytes::Bytes;
use futures_util::future::join_all;
use tracing::warn;
use xebec_artifact::artifact::{ARTIFACT_TYPE, Artifact, BlobRef, INDEX_TYPE, LayerBlobs, MAX_INDEX};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::Section;
use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_oci::{ClientError, Descriptor};
use xebec_protocol::failure::Failure;
use xebec_trust::{Binding, Listing, Record, Signing};

use super::choice::{Choice, FoundArtifact, Outcome};
use crate::prepared_layer::PreparedLayer;
use crate::registry_failure::registry_failure;

/// Index artifacts of one image that are looked at. Any user who may push can attach any number. A user can hide a
/// good one behind many, but that costs laziness, never truth.
const MAX_ARTIFACTS: usize = 32;

impl Choice<'_> {
    /// Fetches a layer's index that an artifact names, writes down what vouches for it, and judges it.
    pub(super) async fn take_from_artifact(
        &self,
        number: usize,
        descriptor: &Descriptor,
        found: &FoundArtifact,
        blobs: &LayerBlobs,
    ) -> Result<Outcome, Failure> {
        if blobs.index.size > MAX_INDEX {
            let reason = format!(
                "its index claims {} bytes, more than {MAX_INDEX}",
                blobs.index.size
            );
            return Ok(Outcome::Missing(reason));
        }
        let key = LayerKey {
            layer: descriptor.digest,
            index: blobs.index.digest,
        };
        let (encoded, held) = match self.kept_index(key).await {
            // Another image with this layer brought it, or an earlier version of this one.
            Ok(Some(kept)) => kept,
            Ok(None) => {
                let Some(held) = self.account.hold(blobs.index.size) else {
                    return Ok(Outcome::Missing("its index is too large".to_owned()));
                };
                match self.fetch_index(blobs).await {
                    Ok(bytes) => (bytes, held),
                    Err(error) => {
                        return Ok(Outcome::Missing(format!("its index cannot be fetched: {error}")));
                    }
                }
            }
            Err(reason) => return Ok(Outcome::Missing(reason)),
        };
        let index = match self.decode_new(number, &encoded).await {
            Ok(index) => index,
            Err(reason) => return Ok(Outcome::Missing(reason)),
        };
        drop(held);
        let listed = |section: &Option<Section>, blob: &Option<BlobRef>| {
            section.as_ref().map(|s| s.digest) == blob.as_ref().map(|b| b.digest) || section.is_none()
        };
        if !listed(&index.windows, &blobs.windows) {
            return Ok(Outcome::Missing(
                "the artifact lacks the windows that its index names".to_owned(),
            ));
        }
        match self.admit(key, encoded, self.vouches(found)).await? {
            Err(refusal) => Ok(Outcome::Refused(refusal)),
            Ok(root) => {
                let layer = PreparedLayer::new(key, index, root, false, &self.account);
                Ok(Outcome::Chosen(Box::new(layer)))
            }
        }
    }

    /// A change of a record: the evidence that an artifact adds for its indexes.
    fn vouches(&self, found: &FoundArtifact) -> impl FnOnce(&mut Record) + Send + use<> {
        let (binding, signing) = (found.binding.clone(), found.signing.clone());
        let listing = found.listed.then(|| Listing::new(&self.repository));
        move |record| {
            binding
                .into_iter()
                .for_each(|binding| record.add_binding(binding));
            signing
                .into_iter()
                .for_each(|signing| record.add_signing(signing));
            listing
                .into_iter()
                .for_each(|listing| record.add_listing(listing));
        }
    }

    async fn fetch_index(&self, blobs: &LayerBlobs) -> Result<Bytes, ClientError> {
        let wanted = blobs.index.descriptor(INDEX_TYPE);
        let repository = self.found.reference.repository();
        self.client.blob(repository, &wanted, MAX_INDEX).await
    }

    /// The image's index artifacts: first those that an image index on the way binds, then those that the registry lists.
    pub(super) async fn find_artifacts(&self) -> Result<Vec<FoundArtifact>, Failure> {
        let mut artifacts = Vec::new();
        if let Some((_, bytes)) = &self.found.image_index
            && let Ok(Some((bound, binding))) = xebec_trust::bound_artifact(bytes, self.found.manifest_digest)
        {
            artifacts.extend(self.fetch_artifact(bound.artifact, Some(binding), false).await);
        }
        if !artifacts.is_empty() {
            // An artifact that the name itself covers is the strongest there is: nothing the registry lists could add to it.
            return Ok(artifacts);
        }
        // To take a registry's bad moment for "there is none" would make this start silently slow.
        let referrers = self.referrers.of_type(ARTIFACT_TYPE).await;
        let referrers = referrers.map_err(|error| registry_failure(&error))?;
        let listed = referrers.into_iter().take(MAX_ARTIFACTS);
        let listed =
            listed.map(|referrer| async move { self.fetch_artifact(referrer.digest, None, true).await });
        artifacts.extend(join_all(listed).await.into_iter().flatten());
        // Signed ones before others: of two indexes that are both admitted, the better vouched for is taken.
        artifacts.sort_by_key(|found| found.signing.is_none());
        Ok(artifacts)
    }

    async fn fetch_artifact(
        &self,
        digest: Digest,
        binding: Option<Binding>,
        listed: bool,
    ) -> Option<FoundArtifact> {
        let repository = self.found.reference.repository();
        let fetched = self
            .client
            .manifest(repository, &digest.to_string(), ACCEPT_IMAGE)
            .await;
        let manifest = fetched
            .inspect_err(|error| warn!("index artifact {digest}: {error}"))
            .ok()?
            .parse()
            .inspect_err(|error| warn!("index artifact {digest}: {error}"))
            .ok()?;
        let artifact = Artifact::decode(manifest, self.found.manifest_digest)
            .inspect_err(|error| warn!("index artifact {digest}: {error}"))
            .ok()?;
        let signing = self.signing(digest).await;
        Some(FoundArtifact {
            artifact,
            binding,
            signing,
            listed,
        })
    }

    /// The signature of an artifact by a key that counts here. Not asked for when no key does.
    async fn signing(&self, artifact: Digest) -> Option<Signing> {
        if !self.policy.has_keys_for(&self.repository) {
            return None;
        }
        let repository = self.found.reference.repository();
        crate::signatures::find(&self.client, repository, &self.repository, &self.policy, artifact).await
    }
}
