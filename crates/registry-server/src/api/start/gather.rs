//! What a start is answered with: what the host would get if it asked for one content after the other. Only the image has to be there: what
//! else cannot be had is left out, and the host asks for it as ever.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use xebec_artifact::artifact::ARTIFACT_TYPE;
use xebec_artifact::own_table::has_table_of_contents;
use xebec_artifact::recording::RUNTIME_IMAGE_TYPE;
use xebec_events::EventKind;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::Recording;
use xebec_kernel::clock::seconds_since_1970;
use xebec_native::choose_service::{OwnCommand, choose_service};
use xebec_native::start_answer::MAX_WHOLE;
use xebec_native::start_pieces::{Lacking, ZonePieces, lacking};
use xebec_native::start_request::StartRequest;
use xebec_oci::image_config::ImageConfig;
use xebec_oci::{ImageManifest, Manifest, Platform};
use xebec_store::{Blob, ManifestWithin, Referrer, RepositoryName};
use xebec_upstream::manifest::OCI_INDEX;

use super::super::call::{Call, What};
use super::super::manifests::{self, Found};
use super::super::referrers::Index;
use super::super::through;
use super::contents::Contents;
use crate::error::ApiError;
use crate::known_artifacts::KnownArtifact;
use crate::request::Accept;
use crate::route::Reference;

/// A list of referrers has no more bytes, about.
const MOST_LISTED: usize = 3 << 20;
/// The newest recordings of an image: few have more.
const MOST_RECORDINGS: usize = 8;
/// The manifests of all artifacts together, and the indexes that are sent as blobs, have no more bytes.
const MOST_ARTIFACTS: u64 = 8 << 20;
const MOST_INDEXES: u64 = 32 << 20;
/// A larger configuration, or recording outside of its manifest, is not read to choose pages.
const MOST_READ: u64 = 4 << 20;

/// A start that is to be answered.
pub(super) struct Start<'a, 'c> {
    pub(super) call: &'a Call<'c>,
    pub(super) repository: &'a RepositoryName,
    pub(super) reference: Reference,
    pub(super) platform: Platform,
    pub(super) request: Arc<StartRequest>,
}

/// The image of one platform.
struct Image {
    name: xebec_store::Digest,
    digest: Digest,
    manifest: ImageManifest,
}

/// A zone that is here, and its pieces.
type Zone = (Blob, ZonePieces);

impl Start<'_, '_> {
    /// Finds what is sent, and what the client is to be told.
    pub(super) async fn gather(&self) -> Result<(Contents, Option<String>), ApiError> {
        let mut contents = Contents::default();
        let (found, warning) = self.find(&self.reference).await?;
        if let Some(image) = self.image(found, &mut contents).await {
            self.gather_image(&image, &mut contents).await;
        }
        Ok((contents, warning))
    }

    async fn find(&self, reference: &Reference) -> Result<(Found, Option<String>), ApiError> {
        manifests::find(self.call, self.repository, reference, &Accept::default()).await
    }

    /// The image that is meant, with its manifest, and that of the index that leads to it, among the contents.
    async fn image(&self, found: Found, contents: &mut Contents) -> Option<Image> {
        let (name, manifest) = self.take_manifest(&self.reference, found, contents)?;
        let (name, manifest) = match manifest {
            Manifest::Image(manifest) => (name, manifest),
            Manifest::Index(index) => {
                let entry = index.select(&self.platform)?;
                let reference = Reference::Digest(stored(&entry.digest)?);
                let (found, _) = self.find(&reference).await.ok()?;
                match self.take_manifest(&reference, found, contents)? {
                    (name, Manifest::Image(manifest)) => (name, manifest),
                    _ => return None,
                }
            }
        };
        manifest.is_image().then_some(Image {
            digest: name.to_string().parse().ok()?,
            name,
            manifest: *manifest,
        })
    }

    fn take_manifest(
        &self,
        reference: &Reference,
        found: Found,
        contents: &mut Contents,
    ) -> Option<(xebec_store::Digest, Manifest)> {
        match found {
            Found::List(list) => {
                contents.manifest(reference.to_string(), OCI_INDEX, list);
                None
            }
            Found::Manifest(manifest) => {
                manifests::pulled(self.call, self.repository, reference, &manifest);
                let parsed = Manifest::parse(&manifest.content, Some(&manifest.media_type));
                contents.manifest(reference.to_string(), &manifest.media_type, manifest.content);
                Some((manifest.digest, parsed.ok()?))
            }
        }
    }

    async fn gather_image(&self, image: &Image, contents: &mut Contents) {
        let call = self.call;
        // A start that waits for an upstream takes no turn of others.
        let refreshed = through::referrers(call, self.repository, &image.name).await;
        let Some(_turn) = call.registry.known_artifacts.planning().await else {
            return;
        };
        let listed = match refreshed {
            Ok(_) => self.referrers(image).await,
            Err(_) => None,
        };
        let (referrers, list) = listed.unwrap_or_default();
        let artifacts = self.artifacts(image, &referrers).await;
        let config = &image.manifest.config.digest;
        if artifacts
            .iter()
            .all(|(_, artifact)| artifact.carried.embedded(config).is_none())
        {
            self.take_blob(config, contents).await;
        }
        if let Some(list) = list {
            contents.referrers(image.digest, list);
        }
        for (referrer, artifact) in &artifacts {
            self.take_artifact(referrer, artifact, contents).await;
        }
        let artifacts: Vec<_> = artifacts.into_iter().map(|(_, artifact)| artifact).collect();
        for apart in artifacts
            .iter()
            .filter_map(|artifact| artifact.carried.apart.as_ref())
        {
            self.take_blob(&apart.digest, contents).await;
        }
        let (zones, indexed) = self.zones(image, &artifacts).await;
        self.take_indexes(image, &artifacts, &indexed, contents).await;
        for (blob, ZonePieces { zone, pieces }) in zones {
            let size = pieces.iter().map(|(_, length)| *length).sum();
            self.tell_of_blob(&blob, size);
            contents.pieces(zone.digest, blob, pieces);
        }
    }

    /// What refers to the image, and the list of it as `GET referrers` gives it, if it is whole.
    async fn referrers(&self, image: &Image) -> Option<(Vec<Referrer>, Option<Bytes>)> {
        let store = &self.call.registry.store;
        let listed = store.referrers_within(self.repository, &image.name, MOST_LISTED);
        let listed = listed.await.inspect_err(|error| tracing::debug!("{error}"));
        let listed = listed.ok()?;
        if listed.next {
            return Some((listed.items, None));
        }
        let list = serde_json::to_vec(&Index::of(listed.items.iter().cloned())).ok()?;
        let room = self.call.room(list.len() as u64).await;
        Some((listed.items, room.ok().map(|room| room.hold(list))))
    }

    /// The newest recordings and the newest list of indexes.
    async fn artifacts(&self, image: &Image, referrers: &[Referrer]) -> Vec<(Referrer, Arc<KnownArtifact>)> {
        let newest = |artifact_type: &str, most: usize| {
            let is_of_type = |item: &&Referrer| item.artifact_type.as_deref() == Some(artifact_type);
            let mut all: Vec<&Referrer> = referrers.iter().filter(is_of_type).collect();
            all.sort_by_key(|item| Reverse(item.created));
            all.truncate(most);
            all
        };
        let recordings = newest(RUNTIME_IMAGE_TYPE, MOST_RECORDINGS).into_iter();
        let (mut artifacts, mut bytes) = (Vec::new(), 0);
        for item in recordings.chain(newest(ARTIFACT_TYPE, 1)) {
            bytes += item.size;
            if bytes > MOST_ARTIFACTS {
                break;
            }
            if let Some(artifact) = self.artifact(image, item).await {
                artifacts.push((item.clone(), artifact));
            }
        }
        artifacts
    }

    /// An artifact that the repository was seen to have just now.
    async fn artifact(&self, image: &Image, item: &Referrer) -> Option<Arc<KnownArtifact>> {
        let registry = self.call.registry;
        if let Some(known) = registry.known_artifacts.get(&item.digest) {
            return Some(known);
        }
        let _turn = registry.known_artifacts.reading().await?;
        let found = registry
            .store
            .manifest_within(self.repository, &item.digest, item.size);
        let Ok(Some(ManifestWithin::Whole(manifest))) = found.await else {
            return None;
        };
        let subject = image.digest;
        let read = move || KnownArtifact::read(manifest.content, manifest.media_type, subject);
        let mut artifact = tokio::task::spawn_blocking(read).await.ok()?;
        if let Some(apart) = artifact.carried.apart.clone() {
            // Another repository may have it. So what this one lacks is not remembered.
            let Some(bytes) = self.small_blob(&apart.digest).await else {
                return Some(Arc::new(artifact));
            };
            let read = move || {
                artifact.carried.take_recording(&bytes, subject);
                artifact
            };
            artifact = tokio::task::spawn_blocking(read).await.ok()?;
        }
        let artifact = Arc::new(artifact);
        registry
            .known_artifacts
            .keep(item.digest.clone(), artifact.clone());
        Some(artifact)
    }

    async fn take_artifact(&self, item: &Referrer, artifact: &KnownArtifact, contents: &mut Contents) {
        let content = artifact.content.clone();
        let Ok(room) = self.call.room(content.len() as u64).await else {
            return;
        };
        let registry = self.call.registry;
        let manifest = xebec_store::Manifest {
            digest: item.digest.clone(),
            media_type: artifact.media_type.clone(),
            content: registry.memory.share(&item.digest, content, room),
            subject: item.subject.clone(),
            artifact_type: item.artifact_type.clone(),
            created: item.created,
            pulled: item.pulled,
        };
        let reference = Reference::Digest(item.digest.clone());
        self.take_manifest(&reference, Found::Manifest(manifest), contents);
    }

    /// The pieces of zones that the host lacks of the service, and the layers whose indexes are in zones.
    async fn zones(&self, image: &Image, artifacts: &[Arc<KnownArtifact>]) -> (Vec<Zone>, BTreeSet<Digest>) {
        if self.request.service.is_none() {
            return (Vec::new(), carried(artifacts));
        }
        let lacking = self.lacking(image, artifacts).await.unwrap_or_default();
        let (mut zones, mut indexed) = (Vec::new(), lacking.indexed);
        for (place, pieces) in lacking.zones.into_iter().enumerate() {
            let blob = self.blob(&pieces.zone.digest).await;
            match blob.filter(|blob| blob.size == pieces.zone.size) {
                Some(blob) => zones.push((blob, pieces)),
                // The indexes are in the first.
                None if place == 0 => indexed.clear(),
                None => {}
            }
        }
        (zones, indexed)
    }

    async fn lacking(&self, image: &Image, artifacts: &[Arc<KnownArtifact>]) -> Option<Lacking> {
        recordings(artifacts).next()?;
        let digest = image.manifest.config.digest;
        let embedded = artifacts
            .iter()
            .find_map(|artifact| artifact.carried.embedded(&digest));
        let config = match embedded {
            Some(config) => Bytes::copy_from_slice(config),
            None => self.small_blob(&digest).await?,
        };
        let (request, artifacts) = (self.request.clone(), artifacts.to_vec());
        let planned = tokio::task::spawn_blocking(move || plan(&request, &config, &artifacts));
        planned.await.ok()?
    }

    /// Indexes of layers that neither the host nor a zone has.
    async fn take_indexes(
        &self,
        image: &Image,
        artifacts: &[Arc<KnownArtifact>],
        indexed: &BTreeSet<Digest>,
        contents: &mut Contents,
    ) {
        let (mut seen, mut bytes) = (HashSet::new(), 0);
        for layer in &image.manifest.layers {
            let digest = layer.digest;
            let is_there = self.request.held.contains_key(&digest) || indexed.contains(&digest);
            if is_there || !seen.insert(digest) || has_table_of_contents(layer) {
                continue;
            }
            let listed = artifacts
                .iter()
                .find_map(|artifact| artifact.carried.indexes.layers.get(&digest));
            let Some(listed) = listed else { continue };
            bytes += listed.index.size;
            if bytes > MOST_INDEXES {
                return;
            }
            self.take_blob(&listed.index.digest, contents).await;
        }
    }

    async fn take_blob(&self, digest: &Digest, contents: &mut Contents) {
        let blob = self.blob(digest).await;
        if let Some(blob) = blob.filter(|blob| blob.size <= MAX_WHOLE) {
            self.tell_of_blob(&blob, blob.size);
            contents.blob(*digest, blob);
        }
    }

    /// A blob that the repository has: artifacts may name what is elsewhere, and the caller may not read.
    async fn blob(&self, digest: &Digest) -> Option<Blob> {
        let registry = self.call.registry;
        let found = registry.store.peek_blob(self.repository, &stored(digest)?).await;
        let blob = found.ok().flatten()?;
        if let Some(upstream) = registry.upstreams.of(self.repository) {
            upstream.counts().hit();
        }
        Some(blob)
    }

    async fn small_blob(&self, digest: &Digest) -> Option<Bytes> {
        let blob = self.blob(digest).await?;
        if blob.size > MOST_READ {
            return None;
        }
        let stream = self.call.registry.store.read(&blob, 0..blob.size).await.ok()?;
        let bytes: Vec<Bytes> = stream.try_collect().await.ok()?;
        Some(bytes.concat().into())
    }

    fn tell_of_blob(&self, blob: &Blob, size: u64) {
        let what = What {
            digest: Some(&blob.digest),
            media_type: Some("application/octet-stream"),
            size: Some(size),
            ..What::default()
        };
        self.call.tell(EventKind::PullBlob, self.repository, what);
    }
}

fn recordings(artifacts: &[Arc<KnownArtifact>]) -> impl Iterator<Item = &Recording> {
    artifacts
        .iter()
        .filter_map(|artifact| artifact.carried.recording.as_ref())
}

/// The layers whose indexes are in zones of recordings.
fn carried(artifacts: &[Arc<KnownArtifact>]) -> BTreeSet<Digest> {
    let layers = recordings(artifacts).flat_map(|recording| {
        let indexes = recording.indexes.iter();
        indexes.filter_map(|index| recording.layers.get(usize::from(index.layer)))
    });
    layers.map(|layer| layer.layer).collect()
}

/// What the host lacks of the service that it most likely means.
fn plan(request: &StartRequest, config: &[u8], artifacts: &[Arc<KnownArtifact>]) -> Option<Lacking> {
    let config = ImageConfig::parse(config).ok()?.config;
    let image = OwnCommand {
        entrypoint: &config.entrypoint,
        command: &config.cmd,
        variables: &config.env,
    };
    let wanted = request.service.as_ref()?;
    let (place, service) = choose_service(wanted, &image, recordings(artifacts), seconds_since_1970())?;
    let recording = recordings(artifacts).nth(place)?;
    Some(lacking(recording, service, &request.held))
}

fn stored(digest: &Digest) -> Option<xebec_store::Digest> {
    digest.to_string().parse().ok()
}
