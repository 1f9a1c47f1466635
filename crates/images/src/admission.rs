//! Which layers of an image could be lazy, without reading any whole and without making a view.
//!
//! This is what containerd's pull asks: its layers come one by one, lowest first, each with the chain ID of the layers up
//! to it, and each is either read where it is or fetched and unpacked by containerd.

use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;

use crate::choose::NotChosen;
use crate::found_image::FoundImage;
use crate::images::{Images, Report};
use crate::prepared_layer::PreparedLayer;
use crate::record::{KeptFor, LayerRecord};

/// The layers of an image, whether each can be lazy, and the indexes that this host keeps for them.
pub struct Admission {
    /// The manifest.
    pub manifest: Digest,
    /// The layers, bottom to top.
    pub layers: Vec<AdmittedLayer>,
    /// Keys of the indexes that this host keeps for the lowest of them that can be lazy.
    pub keys: Vec<LayerKey>,
}

/// One layer.
pub struct AdmittedLayer {
    /// Its digest.
    pub digest: Digest,
    /// The chain ID of the layers up to and with it.
    pub chain: Digest,
    /// Why it cannot be lazy; `None` if it can.
    pub not_lazy: Option<NotChosen>,
}

impl Images {
    /// Finds an image as it was named, or the manifest that the name led to once.
    ///
    /// # Errors
    /// Those of [`Self::resolve`].
    pub async fn resolve_for(
        &self,
        request: &ImageRequest,
        manifest: Option<Digest>,
        report: &Report,
    ) -> Result<FoundImage, Failure> {
        let Some(manifest) = manifest else {
            return self.resolve(request, report).await;
        };
        let reference = request.reference.parse();
        let reference = reference.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        self.resolve_manifest(request, reference, manifest, report).await
    }

    /// Keeps the indexes that were found for an image's layers, for starts while the registry is away, and says of which layers
    /// containerd need not fetch anything.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub async fn admission(
        &self,
        found: &FoundImage,
        chosen: &[Result<PreparedLayer, NotChosen>],
    ) -> Result<Admission, Failure> {
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
        let keys = records.iter().map(LayerRecord::key).collect();
        let known = self.records.get(found.manifest_digest);
        if known.is_none_or(|known| known.layers.len() <= records.len()) {
            self.records.put(found.record(records, KeptFor::Containerd))?;
        }
        let described = found.layers.iter().zip(chain_ids(&found.diff_ids)).zip(chosen);
        let layers = described.map(|((descriptor, chain), chosen)| AdmittedLayer {
            digest: descriptor.digest,
            chain,
            not_lazy: chosen.as_ref().err().cloned(),
        });
        Ok(Admission {
            manifest: found.manifest_digest,
            layers: layers.collect(),
            keys,
        })
    }
}

impl Images {
    /// Judges the indexes that this host keeps for a manifest's lowest layers, as if they were started now, without asking a registry.
    ///
    /// # Errors
    /// [`FailureKind::Trust`] when one may not be used any more, or `trust.toml` cannot be read.
    pub fn judge_kept(&self, request: &ImageRequest, manifest: Digest, layers: usize) -> Result<(), Failure> {
        let reference = request.reference.parse();
        let reference = reference.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        match self.known_manifest(reference, manifest) {
            Some(found) => self.judge_stored(request, &found, layers),
            // Without a record there is no view either.
            None => self.policy().map(|_| ()),
        }
    }

    /// Judges a manifest's lowest layers in the same way. Gives their chain ID, and whether this host has proven that every one of
    /// them is the layer of that chain ID; `None` if it does not know all of them, or knows that one is another.
    ///
    /// # Errors
    /// Those of [`Self::judge_kept`].
    pub fn judge_known(
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
        let stored = self.compare_stored(request, &found, layers)?;
        let chains = chain_ids(&found.diff_ids);
        let chain = layers.checked_sub(1).and_then(|top| chains.get(top).copied());
        let chain = chain.filter(|_| stored.are_all);
        Ok(chain.map(|chain| (chain, stored.are_proven)))
    }
}

/// Chain IDs of layers, lowest first, as the OCI image specification has them.
pub fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
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
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use serde_json::json;
    use xebec_index::indexer::{IndexOptions, index_layer};
    use xebec_protocol::paths::Paths;
    use xebec_protocol::wire::PullPolicy;
    use xebec_testkit::tar::{Header, Kind, TarBuilder};
    use xebec_trust::RepositoryName;

    use super::*;
    use crate::facts;
    use crate::record::ImageRecord;

    /// A layer of one file that this host has proven, and what it holds.
    fn proven_layer(images: &Images, contents: &[u8]) -> (Digest, u64) {
        let mut tar = TarBuilder::new();
        tar.file_with(&Header::new("bin", Kind::File), contents);
        let indexed = index_layer(&*tar.into_bytes(), &IndexOptions::default(), None).unwrap();
        let mut index = indexed.index;
        index.diff_id = Some(index.diff_id.unwrap_or(index.layer));
        let encoded = index.encode();
        let key = LayerKey {
            layer: index.layer,
            index: Digest::of(&encoded),
        };
        images.store.add(key, &encoded).unwrap();
        let reader = RepositoryName::new("registry.example", "app").unwrap();
        facts::update(&images.store, key, |record| {
            record.set_proven();
            record.add_reader(&reader);
        })
        .unwrap();
        (index.layer, index.layer_size)
    }

    /// An image of that layer whose configuration says this diff ID, and the facts about its chain.
    fn judged(images: &Images, layer: (Digest, u64), diff_id: Digest) -> Option<(Digest, bool)> {
        let config = json!({"architecture": "amd64", "os": "linux",
                            "rootfs": {"type": "layers", "diff_ids": [diff_id]}});
        let config = config.to_string();
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                       "digest": Digest::of(config.as_bytes()), "size": config.len()},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar",
                        "digest": layer.0, "size": layer.1}],
        });
        let manifest = manifest.to_string();
        let manifest_digest = Digest::of(manifest.as_bytes());
        let reference = format!("registry.example/app@{manifest_digest}");
        let record = ImageRecord {
            references: [reference.clone()].into(),
            former: Default::default(),
            indexes: Default::default(),
            platforms: Default::default(),
            manifest_digest,
            media_type: media_type.to_owned(),
            manifest,
            config,
            layers: Vec::new(),
            last_used: 1,
            pinned: false,
            kept_for: None,
            user: None,
        };
        images.records.put(record).unwrap();
        let request = ImageRequest {
            reference,
            platform: None,
            docker_config: None,
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        };
        images.judge_known(&request, manifest_digest, 1).unwrap()
    }

    #[test]
    fn a_proof_counts_for_what_was_proven_only() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let images = Images::open(&paths).unwrap();
        let victim = proven_layer(&images, b"what is wanted");
        let other = proven_layer(&images, b"something else");
        // A plain tar file is what its diff ID says.
        assert_eq!(judged(&images, victim, victim.0), Some((victim.0, true)));
        // Proven it is, but not for the chain that this image's author would like to have.
        assert_eq!(judged(&images, other, victim.0), None);
        let unknown = (Digest::of(b"nowhere"), 5);
        assert_eq!(judged(&images, unknown, victim.0), None);
    }

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
