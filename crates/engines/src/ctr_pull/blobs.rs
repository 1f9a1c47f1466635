//! Blobs into containerd's content store, with the labels by which its garbage collection finds their references.
//!
//! Labels: `docs/garbage-collection.md` in containerd, and `core/images/mediatypes.go` (`ChildGCLabels`) for their numbers.
//! Of an image index only the manifest of this platform is there, and only that is referred to.

use std::collections::HashMap;

use xebec_format::digest::Digest;
use xebec_images::registry_failure::registry_failure;
use xebec_oci::Manifest;
use xebec_oci::client::FetchedManifest;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Reply;
use xebec_snapshotter::containerd::ingest::{Ingest, NewBlob, REFERS};

use super::pull::{Pull, PulledLayer, refused};

/// Begins labels that say from which repositories of a registry a blob came; a push asks there to mount it.
const CAME_FROM: &str = "containerd.io/distribution.source.";

impl Pull<'_> {
    /// Writes image indexes, manifest and configuration. The configuration refers to the image's uppermost snapshot.
    pub(super) async fn documents(&self, top: Option<&Digest>) -> Result<(), Failure> {
        let image = &self.image;
        let config = image.manifest.config.digest;
        let snapshot = format!("{REFERS}snapshot.{}", self.target.snapshotter);
        let refers = top.map(|top| (snapshot, top.to_string()));
        self.document(config, &image.config_bytes, refers).await?;

        let layers = image.manifest.layers.iter().enumerate();
        let layers =
            layers.map(|(number, layer)| (format!("{REFERS}content.l.{number}"), layer.digest.to_string()));
        let refers = layers.chain([(format!("{REFERS}content.config"), config.to_string())]);
        self.document(image.manifest_digest, &image.manifest_bytes, refers)
            .await?;
        // Each index refers to the next one on the way, the last one to the manifest.
        for (number, index) in image.indexes.iter().enumerate() {
            let refers = match image.indexes.get(number + 1) {
                Some(next) => (format!("{REFERS}content.0"), next.digest),
                None => (format!("{REFERS}content.m.0"), image.manifest_digest),
            };
            let refers = [(refers.0, refers.1.to_string())];
            self.document(index.digest, &index.bytes, refers).await?;
        }
        Ok(())
    }

    async fn document(
        &self,
        digest: Digest,
        bytes: &[u8],
        refers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), Failure> {
        let Some(mut ingest) = self.begin(digest, bytes.len() as u64, refers).await? else {
            return Ok(());
        };
        let there = usize::try_from(ingest.offset()).unwrap_or(usize::MAX);
        let written = ingest.write(bytes.get(there..).unwrap_or_default()).await;
        written.map_err(|error| refused(&error))?;
        ingest
            .commit(&self.containerd)
            .await
            .map_err(|error| refused(&error))
    }

    /// Fetches the blobs of all layers that containerd lacks.
    pub(super) async fn layer_blobs(&self, layers: &mut [PulledLayer]) -> Result<(), Failure> {
        for layer in layers {
            layer.fetched += self.layer_blob(layer.layer, layer.size).await?;
        }
        Ok(())
    }

    /// Fetches a layer's blob, unless containerd has it. Gives how many bytes were fetched.
    pub(super) async fn layer_blob(&self, layer: Digest, size: u64) -> Result<u64, Failure> {
        let Some(mut ingest) = self.begin(layer, size, []).await? else {
            return Ok(0);
        };
        let repository = &self.image.repository;
        let start = ingest.offset();
        let mut done = start;
        let stream = self.client.blob_stream(repository, &layer, size, start).await;
        let mut stream = stream.map_err(|error| registry_failure(&error))?;
        while let Some(part) = stream
            .next_part()
            .await
            .map_err(|error| registry_failure(&error))?
        {
            ingest.write(&part).await.map_err(|error| refused(&error))?;
            done += part.len() as u64;
            (self.report)(Reply::bytes(format!("layer {}", layer.short()), done, size));
        }
        let committed = ingest.commit(&self.containerd).await;
        committed.map_err(|error| {
            let message = format!("layer {layer} of {}: {error}", self.image.reference);
            Failure::new(FailureKind::Integrity, message)
        })?;
        Ok(done - start)
    }

    async fn begin(
        &self,
        digest: Digest,
        size: u64,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Option<Ingest>, Failure> {
        let mut labels: HashMap<String, String> = labels.into_iter().collect();
        let repository = &self.image.repository;
        // Without the port, as containerd has it.
        let registry = repository.registry();
        let host = registry
            .rsplit_once(':')
            .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
            .map_or(registry, |(host, _)| host);
        labels.insert(format!("{CAME_FROM}{host}"), repository.name().to_owned());
        let blob = NewBlob {
            name: self.name_of(&digest),
            digest: digest.to_string(),
            size,
            labels,
        };
        self.containerd
            .ingest(blob)
            .await
            .map_err(|error| refused(&error))
    }

    fn name_of(&self, digest: &Digest) -> String {
        format!("{}-{digest}", self.id)
    }

    /// Leaves no half of a blob.
    pub(super) async fn give_up(&self) {
        let image = &self.image;
        let layers = image.manifest.layers.iter().map(|layer| layer.digest);
        let indexes = image.indexes.iter().map(|index| index.digest);
        let documents = [image.manifest.config.digest, image.manifest_digest];
        for digest in layers.chain(indexes).chain(documents) {
            // The lease's end takes the rest.
            let _ = self.containerd.give_up(&self.name_of(&digest)).await;
        }
    }
}

/// The media type of an image index.
pub(super) fn index_type(index: &FetchedManifest) -> String {
    let own = match index.parse() {
        Ok(Manifest::Index(parsed)) => parsed.media_type,
        _ => None,
    };
    own.or_else(|| index.media_type.clone())
        .unwrap_or_else(|| xebec_oci::media_type::OCI_INDEX.to_owned())
}
