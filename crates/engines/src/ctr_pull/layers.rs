//! A snapshot for each layer: lazy at once, or unpacked by containerd.
//!
//! Labels: `pkg/snapshotters/annotations.go` and `core/unpack/unpacker.go` in containerd.

use std::collections::HashMap;

use xebec_format::digest::Digest;
use xebec_oci::Descriptor;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Reply;
use xebec_snapshotter::api::Mount;
use xebec_snapshotter::containerd::images;
use xebec_snapshotter::containerd::snapshots::Snapshots;
use xebec_snapshotter::record::{LAZY, UNPACKED_BECAUSE};

use super::pull::{Pull, PulledLayer, refused};

/// Longest label, name and value together, in bytes, that containerd takes.
const LONGEST_LABEL: usize = 4096;
/// The label on a layer's blob with the digest of its plain tar.
const UNCOMPRESSED: &str = "containerd.io/uncompressed";
/// How often a snapshot is tried that somebody else makes or takes away at the same time, as containerd's client does.
const TRIES: u32 = 3;

/// The state of a layer's snapshot after containerd was asked to prepare it.
enum Prepared {
    /// There is one.
    There { is_lazy: bool },
    /// The layer is to be unpacked into this one.
    Unpack { key: String, mounts: Vec<Mount> },
}

impl Pull<'_> {
    /// Has a snapshot of each layer.
    pub(super) async fn layers(&self, chains: &[Digest]) -> Result<Vec<PulledLayer>, Failure> {
        let snapshots = self.containerd.snapshots(&self.target.snapshotter);
        let mut pulled = Vec::new();
        let mut parent = String::new();
        for (number, ((layer, diff_id), chain)) in self.image.layers().zip(chains).enumerate() {
            let mut labels = self.labels(number, diff_id, *chain);
            if !parent.is_empty() {
                labels.insert(
                    "containerd.io/snapshot/parent-chain-id".to_owned(),
                    parent.clone(),
                );
            }
            let mut result = PulledLayer {
                layer: layer.digest,
                size: layer.size,
                chain: *chain,
                is_lazy: false,
                unpacked_because: None,
                fetched: 0,
            };
            match self.prepare(&snapshots, *chain, &parent, &labels).await? {
                Prepared::There { is_lazy } => result.is_lazy = is_lazy,
                Prepared::Unpack { key, mounts } => {
                    let unpacked = self.unpack(&snapshots, &mut result, &key, mounts, diff_id, labels);
                    if let Err(failure) = unpacked.await {
                        // The lease's end would take it, too.
                        let _ = snapshots.remove(&key).await;
                        return Err(failure);
                    }
                }
            }
            pulled.push(result);
            parent = chain.to_string();
        }
        Ok(pulled)
    }

    async fn prepare(
        &self,
        snapshots: &Snapshots,
        chain: Digest,
        parent: &str,
        labels: &HashMap<String, String>,
    ) -> Result<Prepared, Failure> {
        let chain = chain.to_string();
        let stat = async || {
            let info = snapshots.stat(&chain).await.map_err(|error| refused(&error))?;
            Ok::<_, Failure>(info.map(|info| info.labels.contains_key(LAZY)))
        };
        // One that is lazy is asked for again: by this name it may need to be vouched for better.
        if let Some(false) = stat().await? {
            return Ok(Prepared::There { is_lazy: false });
        }
        for attempt in 1..=TRIES {
            let key = format!("extract-{}-{attempt} {chain}", self.id);
            let prepared = snapshots.prepare(&key, parent, labels.clone()).await;
            match prepared.map_err(|error| refused(&error))? {
                Some(mounts) => return Ok(Prepared::Unpack { key, mounts }),
                None => {
                    if let Some(is_lazy) = stat().await? {
                        return Ok(Prepared::There { is_lazy });
                    }
                }
            }
        }
        let message = format!(
            "containerd lists snapshot {chain} but cannot open it; another client seems to remove it repeatedly"
        );
        Err(Failure::new(FailureKind::Host, message))
    }

    async fn unpack(
        &self,
        snapshots: &Snapshots,
        result: &mut PulledLayer,
        key: &str,
        mounts: Vec<Mount>,
        diff_id: Digest,
        labels: HashMap<String, String>,
    ) -> Result<(), Failure> {
        let info = snapshots.stat(key).await.map_err(|error| refused(&error))?;
        let because = info.and_then(|info| info.labels.get(UNPACKED_BECAUSE).cloned());
        let because = because.unwrap_or_else(|| {
            let snapshotter = &self.target.snapshotter;
            format!("the snapshotter {snapshotter:?} does not say why; is it Xebec's?")
        });
        let (layer, reference) = (result.layer, &self.image.reference);
        if self.target.require_lazy {
            let message = format!("layer {layer} of {reference} is not lazy: {because}");
            return Err(Failure::new(FailureKind::NotLazy, message));
        }
        let text = format!("layer {} is not lazy and is unpacked: {because}", layer.short());
        (self.report)(Reply::Notice { text });
        result.unpacked_because = Some(because);
        result.fetched = self.layer_blob(layer, result.size).await?;
        let described = self.image.manifest.layers.iter().find(|own| own.digest == layer);
        let blob = images::Descriptor {
            media_type: described.map_or_else(String::new, |own: &Descriptor| own.media_type.clone()),
            digest: layer.to_string(),
            size: i64::try_from(result.size).unwrap_or(i64::MAX),
            annotations: HashMap::new(),
        };
        let found = self.containerd.unpack(blob, mounts).await;
        let found = found.map_err(|error| refused(&error))?;
        if found != diff_id.to_string() {
            let message = format!("layer {layer} of {reference} holds {found}, and its image says {diff_id}");
            return Err(Failure::new(FailureKind::Integrity, message));
        }
        // As containerd's own client notes it.
        let plain = HashMap::from([(UNCOMPRESSED.to_owned(), found)]);
        let noted = self.containerd.label_blob(&layer.to_string(), plain).await;
        noted.map_err(|error| refused(&error))?;
        let committed = snapshots.commit(&result.chain.to_string(), key, labels).await;
        committed.map_err(|error| refused(&error))
    }

    /// The labels that tell a snapshotter about a layer.
    fn labels(&self, number: usize, diff_id: Digest, chain: Digest) -> HashMap<String, String> {
        let image = &self.image;
        let upper = image.manifest.layers.get(number..).unwrap_or_default();
        let layer = upper.first().map(|layer| layer.digest.to_string());
        let layers = "containerd.io/snapshot/cri.image-layers";
        let labels = [
            ("containerd.io/snapshot.ref", chain.to_string()),
            ("containerd.io/snapshot/diff-id", diff_id.to_string()),
            (
                "containerd.io/snapshot/cri.image-ref",
                image.reference.to_string(),
            ),
            (
                "containerd.io/snapshot/cri.manifest-digest",
                image.manifest_digest.to_string(),
            ),
            (
                "containerd.io/snapshot/cri.layer-digest",
                layer.unwrap_or_default(),
            ),
            (layers, as_many(upper, LONGEST_LABEL - layers.len())),
        ];
        labels
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// The first of these layers, as many as fit into that many bytes, with commas between.
fn as_many(layers: &[Descriptor], bytes: usize) -> String {
    let mut text = String::new();
    for layer in layers {
        let digest = layer.digest.to_string();
        if text.len() + 1 + digest.len() > bytes {
            break;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&digest);
    }
    text
}
