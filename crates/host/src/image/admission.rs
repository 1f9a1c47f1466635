//! Which layers of an image could be lazy, without reading any whole and without making a view.
//!
//! This is what containerd's pull asks: its layers come one by one, lowest first, each with the chain ID of the layers up
//! to it, and each is either read where it is or fetched and unpacked by containerd.

use tracing::warn;
use xebec_format::digest::Digest;

use crate::failure::{Failure, FailureKind};
use crate::image::choose::{Choice, NotChosen};
use crate::image::record::LayerRecord;
use crate::image::referrers::Referrers;
use crate::image::{ForService, Images, PreparedImage, PreparedLayer, Report};
use crate::protocol::ImageRequest;

/// What was found of an image's layers.
pub(crate) struct Admission {
    /// The manifest.
    pub(crate) manifest: Digest,
    /// The layers, bottom to top.
    pub(crate) layers: Vec<AdmittedLayer>,
}

/// One layer.
pub(crate) struct AdmittedLayer {
    /// Its digest.
    pub(crate) digest: Digest,
    /// The chain ID of the layers up to and with it.
    pub(crate) chain: Digest,
    /// Why it cannot be lazy; `None` if it can.
    pub(crate) not_lazy: Option<NotChosen>,
}

impl Images {
    /// Finds an index for each layer, of the manifest if one is named, and keeps what is known of the image for those who
    /// come when the registry is away. The indexes may come with the recording of a service; then its pages are on their way,
    /// and the image is given as it would be prepared for a start, if all of it is lazy.
    ///
    /// # Errors
    /// When the image cannot be resolved or the registry cannot be asked for indexes.
    pub(crate) async fn admission(
        &self,
        request: &ImageRequest,
        manifest: Option<Digest>,
        service: ForService<'_>,
        report: &Report,
    ) -> Result<(Admission, Option<PreparedImage>), Failure> {
        let found = match manifest {
            None => self.resolve(request, report).await?,
            Some(manifest) => {
                let reference = request.reference.parse();
                let reference = reference.map_err(|error| Failure::new(FailureKind::Usage, error))?;
                self.resolve_manifest(request, reference, manifest, report)
                    .await?
            }
        };
        let client = self.clients.get(request.docker_config.as_deref())?;
        let (repository, digest) = (found.reference.repository(), found.manifest_digest);
        let referrers = Referrers::at_once(client.clone(), repository, digest);
        let mut choice = Choice::new(self, request, &found, &referrers)?;
        let recording = self
            .begin_recording(service, client, &found, &referrers, &mut choice)
            .await;
        let recording = recording.unwrap_or_else(|failure| {
            warn!("{failure}; its layers are pulled without a runtime image");
            None
        });
        let chosen = choice.without_reading().await?;
        let layers = chosen.iter().flatten().map(|layer| layer.key);
        self.synced(layers, None).await?;
        // Only the lowest can be lazy: those up to the first that is not.
        let records: Vec<LayerRecord> = chosen
            .iter()
            .map_while(|chosen| chosen.as_ref().ok())
            .map(|layer| LayerRecord {
                layer: layer.key.layer,
                index: layer.key.index,
                root: layer.root,
            })
            .collect();
        let known = self.records.get(found.manifest_digest);
        if known.is_none_or(|known| known.layers.len() <= records.len()) {
            self.records.put(Self::record_of(&found, records))?;
        }
        let described = found.layers.iter().zip(chain_ids(&found.diff_ids)).zip(&chosen);
        let layers = described.map(|((descriptor, chain), chosen)| AdmittedLayer {
            digest: descriptor.digest,
            chain,
            not_lazy: chosen.as_ref().err().cloned(),
        });
        let admission = Admission {
            manifest: found.manifest_digest,
            layers: layers.collect(),
        };
        let layers: Result<Vec<PreparedLayer>, NotChosen> = chosen.into_iter().collect();
        let prepared = match (layers, recording) {
            (Ok(layers), Some(Ok(begun))) => Some(PreparedImage {
                found,
                layers,
                recording: Some(Ok(begun)),
                stages_ms: Vec::new(),
                keeping: Default::default(),
            }),
            _ => None,
        };
        Ok((admission, prepared))
    }
}

impl Images {
    /// Judges what this host keeps of a manifest's lowest layers, as if they were started now, without asking anybody.
    ///
    /// # Errors
    /// [`FailureKind::Trust`] when one may not be used any more, or `trust.toml` cannot be read.
    pub(crate) fn judge_kept(
        &self,
        request: &ImageRequest,
        manifest: Digest,
        layers: usize,
    ) -> Result<(), Failure> {
        let reference = request.reference.parse();
        let reference = reference.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        match self.known_manifest(reference, manifest) {
            Some(found) => self.judge_stored(request, &found, layers).map(|_| ()),
            // Without a record there is no view either.
            None => self.policy().map(|_| ()),
        }
    }

    /// Judges a manifest's lowest layers in the same way, and gives their chain ID, and whether this host has proven all of
    /// them; `None` if it does not know all of them.
    ///
    /// # Errors
    /// Those of [`Self::judge_kept`].
    pub(crate) fn judge_known(
        &self,
        request: &ImageRequest,
        manifest: Digest,
        layers: usize,
    ) -> Result<Option<(Digest, bool)>, Failure> {
        let reference = request.reference.parse();
        let reference = reference.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        let Some(found) = self.known_manifest(reference, manifest) else {
            return Ok(None);
        };
        let stored = self.judge_stored(request, &found, layers)?;
        let chains = chain_ids(&found.diff_ids);
        let chain = layers.checked_sub(1).and_then(|top| chains.get(top).copied());
        let chain = chain.filter(|_| stored.are_all);
        Ok(chain.map(|chain| (chain, stored.are_proven)))
    }
}

/// Chain IDs of layers, lowest first, as the OCI image specification has them.
pub(crate) fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Option<Digest> = None;
    let next = |diff_id: &Digest| {
        let next = match chain {
            None => *diff_id,
            Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
        };
        chain = Some(next);
        next
    };
    diff_ids.iter().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_ids_as_other_tools_have_them() {
        // From `printf 'sha256:… sha256:…' | sha256sum`.
        let diff_ids = [b"one", b"two", b"six"].map(|text| Digest::of(text));
        let chains: Vec<String> = chain_ids(&diff_ids).iter().map(Digest::to_string).collect();
        assert_eq!(chains, CHAINS);
    }

    const CHAINS: [&str; 3] = [
        "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
        "sha256:ee90d7132b9e9a049b7b0a88db345ca31fb5e8a74a5ee57210478a9a2522d499",
        "sha256:3e038e1a85d765a19b154ca8f8b5e1871dfa58bd52ff970d7f63c5c7baa5e066",
    ];
}
