//! Makes the indexes of an image and publishes them: as an artifact that refers to the image, bound to it by an
//! image index, signed.
//!
//! A small layer takes the time that the registry and the disk need to answer, so a few small ones go at the same time. A large one
//! goes by itself, and memory is that of one.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::{Semaphore, SemaphorePermit};
use xebec_artifact::artifact::{Artifact, BlobRef, EMPTY_CONFIG, LayerBlobs};
use xebec_artifact::made::blobs_of;
use xebec_artifact::own_table::has_table_of_contents;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_oci::{BlobSource, Client, Descriptor, Repository};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{ImageRequest, Reply};
use xebec_trust::{BoundArtifact, Original, PrivateKey, RepositoryName, Root};

use crate::facts;
use crate::found_image::FoundImage;
use crate::images::{Images, Report};
use crate::record::{KeptFor, LayerRecord};
use crate::registry_failure::registry_failure;
use crate::signatures;

/// So many small layers are indexed at the same time, and so many small parts of indexes pushed.
const AT_ONCE: u32 = 4;
/// Size above which a layer or a part takes all places, in bytes.
const SMALL: u64 = 1 << 20;

/// Options for publishing the indexes once they are made.
#[derive(Clone, Debug, Default)]
pub struct PublishOptions {
    /// Push them to the image's repository.
    pub push: bool,
    /// Push an image index that binds them to the image, and point the reference's tag to it.
    pub bind: bool,
    /// Sign the artifact with the private key in this file.
    pub sign: Option<PathBuf>,
}

/// The indexes that were made and pushed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Published {
    /// The image.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// The artifact, if it was pushed.
    pub artifact: Option<Digest>,
    /// The image index that binds it, if one was pushed.
    pub bound: Option<Digest>,
    /// The layers.
    pub layers: Vec<PublishedLayer>,
}

/// One layer's index.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PublishedLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The index; `None` for a layer with a table of contents of its own, which needs none.
    pub index: Option<Digest>,
    /// Size of the index in bytes, without its sections.
    pub index_size: u64,
    /// Size of the sections: windows, frame, content digests.
    pub sections_size: u64,
    /// Why the layer cannot be lazy even so.
    pub not_lazy: Option<String>,
}

impl Images {
    /// Indexes every layer of an image and publishes the indexes.
    ///
    /// # Errors
    /// As resolving, reading and pushing; the key file; an image that cannot be bound.
    pub async fn publish(
        &self,
        request: &ImageRequest,
        options: &PublishOptions,
        report: &Report,
    ) -> Result<Published, Failure> {
        let key = options.sign.as_deref().map(read_key).transpose()?;
        let found = self.resolve(request, report).await?;
        self.check_pushed(&found)?;
        let client = self.clients.get(request.docker_config.as_deref())?;
        let repository = found.reference.repository();
        let reader = facts::repository_name(repository)?;
        let keys = self.index_layers(&client, &found, &reader, report).await?;
        let (artifact, layers) = self.describe(&found, &keys)?;
        self.keep_record(&found, &layers)?;
        let mut published = Published {
            reference: found.reference.to_string(),
            manifest: found.manifest_digest,
            artifact: None,
            bound: None,
            layers,
        };
        if options.push || options.bind || key.is_some() {
            let (digest, size) = self.push_artifact(&client, &found, &artifact, report).await?;
            published.artifact = Some(digest);
            if let Some(key) = &key {
                signatures::push(&client, found.reference.repository(), key, digest).await?;
            }
            if options.bind {
                published.bound = Some(bind(&client, &found, digest, size).await?);
            }
        }
        Ok(published)
    }

    /// The artifact that lists indexes in the store, and what is told of them.
    fn describe(
        &self,
        found: &FoundImage,
        keys: &HashMap<Digest, LayerKey>,
    ) -> Result<(Artifact, Vec<PublishedLayer>), Failure> {
        let mut layers = Vec::new();
        let mut artifact = Artifact::default();
        for descriptor in &found.layers {
            let Some(key) = needs_index(descriptor)
                .then(|| keys.get(&descriptor.digest))
                .flatten()
            else {
                layers.push(PublishedLayer::without_index(descriptor.digest, descriptor.size));
                continue;
            };
            let key = *key;
            let bytes = self.store().index_bytes(key)?;
            let index =
                LayerIndex::decode(&bytes).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
            let stored = BlobRef {
                digest: key.index,
                size: bytes.len() as u64,
            };
            artifact
                .layers
                .insert(descriptor.digest, blobs_of(stored, &index));
            layers.push(PublishedLayer::new(key, bytes.len() as u64, &index));
        }
        Ok((artifact, layers))
    }

    /// Publishes indexes that are in the store already, as the artifact of an image that was pushed a moment ago.
    pub(crate) async fn publish_known(
        &self,
        client: &Client,
        found: &FoundImage,
        keys: &HashMap<Digest, LayerKey>,
        report: &Report,
    ) -> Result<Digest, Failure> {
        let (artifact, layers) = self.describe(found, keys)?;
        let (digest, _) = self.push_artifact(client, found, &artifact, report).await?;
        self.keep_record(found, &layers)?;
        Ok(digest)
    }

    /// An index of each layer that needs one, by the layer's digest.
    async fn index_layers(
        &self,
        client: &Client,
        found: &FoundImage,
        reader: &RepositoryName,
        report: &Report,
    ) -> Result<HashMap<Digest, LayerKey>, Failure> {
        let (turns, mut seen) = (&Turns::default(), HashSet::new());
        let layers = found.layers.iter().enumerate();
        let wanted: Vec<_> = layers
            .filter(|(_, layer)| needs_index(layer) && seen.insert(layer.digest))
            .collect();
        let indexing = wanted.into_iter().map(|(number, layer)| async move {
            let _turn = turns.take(layer.size).await;
            let key = match self.own_index(layer.digest, reader) {
                Some(key) => key,
                None => self.index_layer(client, found, number, None, report).await?,
            };
            Ok((layer.digest, key))
        });
        // In order: of several layers that fail, the lowest is named.
        stream::iter(indexing)
            .buffered(AT_ONCE as usize)
            .try_collect()
            .await
    }

    /// An index that this host made itself, with all its sections, of a layer that the repository is known to have: it describes the
    /// contents of the layer, and goes where all readers of the repository see it.
    pub(crate) fn own_index(&self, layer: Digest, reader: &RepositoryName) -> Option<LayerKey> {
        let whole = |key: &LayerKey| {
            let directory = self.store().directory().join(key.folder());
            facts::is_proven(self.store(), *key)
                && facts::is_open_to(self.store(), *key, reader)
                && ["windows", "frame", "contents"]
                    .iter()
                    .all(|name| directory.join(name).is_file())
        };
        self.store().indexes_of(layer).into_iter().find(whole)
    }

    /// So that this host finds its own indexes for the image without the registry.
    fn keep_record(&self, found: &FoundImage, layers: &[PublishedLayer]) -> Result<(), Failure> {
        // Of a push, some may be indexes of the base that this host has admitted and not proven.
        let is_proven = |layer: &PublishedLayer| {
            layer.index.is_none_or(|index| {
                let key = LayerKey {
                    layer: layer.layer,
                    index,
                };
                facts::is_proven(self.store(), key)
            })
        };
        if !layers.iter().all(is_proven) {
            return Ok(());
        }
        let records = layers.iter().map(|layer| {
            Some(LayerRecord {
                layer: layer.layer,
                index: layer.index?,
                root: Root::Proven,
            })
        });
        let Some(layers) = records.collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        let is_known = self.records().change(found.manifest_digest, |record| {
            record.kept_for = Some(KeptFor::Commands);
        });
        if is_known? {
            return Ok(());
        }
        self.records().put(found.record(layers, KeptFor::Commands))
    }

    async fn push_artifact(
        &self,
        client: &Client,
        found: &FoundImage,
        artifact: &Artifact,
        report: &Report,
    ) -> Result<(Digest, u64), Failure> {
        let repository = found.reference.repository();
        push(client, repository, Bytes::from_static(EMPTY_CONFIG)).await?;
        let total = artifact
            .layers
            .values()
            .flat_map(LayerBlobs::parts)
            .map(|(_, blob)| blob.size)
            .sum();
        let files = artifact.layers.iter().flat_map(|(layer, blobs)| {
            let index = blobs.index.digest;
            let directory = self
                .store()
                .directory()
                .join(LayerKey { layer: *layer, index }.folder());
            let parts = blobs.parts();
            parts.map(move |(name, blob)| (directory.join(name), blob))
        });
        let turns = &Turns::default();
        let pushes = files.map(|(path, blob)| async move {
            let _turn = turns.take(blob.size).await;
            push_file(client, repository, &path, blob).await?;
            Ok::<u64, Failure>(blob.size)
        });
        let mut pushed = pin!(stream::iter(pushes).buffered(AT_ONCE as usize));
        let mut done = 0;
        while let Some(size) = pushed.try_next().await? {
            done += size;
            report(Reply::bytes("push indexes", done, total));
        }
        let subject = BlobRef {
            digest: found.manifest_digest,
            size: found.manifest_bytes.len() as u64,
        };
        let order: Vec<Digest> = found.layers.iter().map(|layer| layer.digest).collect();
        let manifest = artifact.encode(subject.descriptor(&found.media_type), &order);
        let pushed = client
            .attach(repository, &manifest)
            .await
            .map_err(|error| registry_failure(&error))?;
        let size = serde_json::to_vec(&manifest).map_or(0, |bytes| bytes.len() as u64);
        Ok((pushed.digest, size))
    }
}

/// Bounds how many layers are indexed at once: some small ones, or one large one.
struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE as usize))
    }
}

impl Turns {
    /// Waits until something of so many bytes may go.
    async fn take(&self, size: u64) -> Option<SemaphorePermit<'_>> {
        let places = if size > SMALL { AT_ONCE } else { 1 };
        // It fails once it is closed, which nobody does.
        self.0.acquire_many(places).await.ok()
    }
}

/// Whether the layer has no table of contents of its own.
pub(crate) fn needs_index(layer: &Descriptor) -> bool {
    !has_table_of_contents(layer)
}

/// Pushes a file of a layer's folder, if it still has its digest. One that is not whole here may be in the repository already.
async fn push_file(
    client: &Client,
    repository: &Repository,
    path: &Path,
    blob: &BlobRef,
) -> Result<(), Failure> {
    let read = fs::read(path).map_err(|error| Failure::host(format!("read {}", path.display()), error));
    let damaged = || {
        let message = format!("{} is damaged; remove the folder and index again", path.display());
        Failure::new(FailureKind::Integrity, message)
    };
    let whole = read.and_then(|bytes| match Digest::of(&bytes) == blob.digest {
        true => Ok(bytes),
        false => Err(damaged()),
    });
    match whole {
        Ok(bytes) => push(client, repository, Bytes::from(bytes)).await,
        Err(failure) => match client.blob_size(repository, &blob.digest).await {
            Ok(_) => Ok(()),
            Err(_) => Err(failure),
        },
    }
}

async fn push(client: &Client, repository: &Repository, bytes: Bytes) -> Result<(), Failure> {
    let pushed = client.push_blob(repository, BlobSource::Bytes(bytes), None).await;
    pushed.map(|_| ()).map_err(|error| registry_failure(&error))
}

impl PublishedLayer {
    fn new(key: LayerKey, index_size: u64, index: &LayerIndex) -> Self {
        let sections = [&index.windows, &index.frame, &index.contents];
        Self {
            layer: key.layer,
            size: index.layer_size,
            index: Some(key.index),
            index_size,
            sections_size: sections
                .iter()
                .filter_map(|section| section.as_ref())
                .map(|s| s.size)
                .sum(),
            not_lazy: crate::lazy::why_not(index),
        }
    }

    fn without_index(layer: Digest, size: u64) -> Self {
        Self {
            layer,
            size,
            index: None,
            index_size: 0,
            sections_size: 0,
            not_lazy: None,
        }
    }
}

async fn bind(client: &Client, found: &FoundImage, artifact: Digest, size: u64) -> Result<Digest, Failure> {
    let platform: xebec_trust::Platform = serde_json::from_slice(&found.config_bytes).map_err(|error| {
        Failure::new(
            FailureKind::Integrity,
            format!("the image's configuration: {error}"),
        )
    })?;
    let original = match &found.image_index {
        Some((_, bytes)) if !bytes.is_empty() => Original::ImageIndex(bytes),
        _ => Original::Manifest {
            media_type: &found.media_type,
            bytes: &found.manifest_bytes,
            platform,
        },
    };
    let bound = BoundArtifact {
        manifest: found.manifest_digest,
        artifact,
        artifact_size: size,
    };
    let bytes =
        xebec_trust::bind(&original, &[bound]).map_err(|error| Failure::new(FailureKind::Trust, error))?;
    let digest = Digest::of(&bytes);
    let repository = found.reference.repository();
    // By tag, the tag now names the index that binds; by digest, the user takes the new digest.
    let name = match found.reference.is_by_digest() {
        true => digest.to_string(),
        false => found.reference.manifest_name(),
    };
    client
        .push_manifest(
            repository,
            &name,
            xebec_trust::IMAGE_INDEX_MEDIA_TYPE,
            bytes.into(),
        )
        .await
        .map_err(|error| registry_failure(&error))?;
    Ok(digest)
}

/// Reads a private key, with the password that is in the environment.
pub fn read_key(path: &std::path::Path) -> Result<PrivateKey, Failure> {
    let bytes =
        fs::read(path).map_err(|error| Failure::host(format!("read the key {}", path.display()), error))?;
    let password = xebec_trust::password_from_environment();
    PrivateKey::from_pem(&bytes, password.as_ref().map(|password| password.as_slice()))
        .map_err(|error| Failure::new(FailureKind::Trust, format!("{}: {error}", path.display())))
}
