//! What a start is answered with: what the host would get if it asked for one content after the other. Only the image has to be there: what
//! else cannot be had is left out, and the host asks for it as ever.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use xebec_artifact::artifact::{ARTIFACT_TYPE, BlobRef};
use xebec_artifact::known::KnownArtifact;
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
use crate::request::Accept;
use crate::route::Reference;

/// A list of referrers has no more bytes, about.
const MOST_LISTED: usize = 3 << 20;
/// The newest recordings of an image: few have more.
const MOST_RECORDINGS: usize = 8;
/// The manifests of all artifacts together, and the indexes that are sent as blobs, have no more bytes.
const MOST_ARTIFACTS: u64 = 8 << 20;
const MOST_INDEXES: u64 = 32 << 20;
/// The recordings of a start take no more memory, in bytes.
const MOST_DECODED: u64 = 24 << 20;
/// A larger configuration, or recording outside of its manifest, is not read to choose pages.
const MOST_READ: u64 = 4 << 20;
/// An upstream has less time than a start, so that what is here can be sent without it.
const PATIENCE_WITH_UPSTREAM: Duration = Duration::from_secs(2);

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

/// An artifact that the repository has.
#[derive(Clone)]
struct Gathered {
    item: Referrer,
    known: Arc<KnownArtifact>,
    /// The repository has all of it: its recording counts.
    is_whole: bool,
}

/// A zone that is here, and its pieces.
type Zone = (Blob, ZonePieces);

impl Start<'_, '_> {
    /// Finds what is sent, and what the client is to be told.
    pub(super) async fn gather(&self) -> Result<(Contents, Option<String>), ApiError> {
        let mut contents = Contents::default();
        let (found, warning) = self.find(&self.reference).await?;
        if let Some(image) = self.image(found, &mut contents).await {
            // What was found by then is sent.
            let patience = self.call.registry.start_patience;
            let _in_time = timeout(patience, self.gather_image(&image, &mut contents)).await;
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
                let parsed = Manifest::parse(&manifest.content, Some(&manifest.media_type));
                let content = manifest.content.clone();
                if contents.manifest(reference.to_string(), &manifest.media_type, content) {
                    manifests::pulled(self.call, self.repository, reference, &manifest);
                }
                Some((manifest.digest, parsed.ok()?))
            }
        }
    }

    async fn gather_image(&self, image: &Image, contents: &mut Contents) {
        let call = self.call;
        // A start that waits for an upstream takes no turn of others.
        let refreshed = through::referrers(call, self.repository, &image.name);
        let refreshed = timeout(PATIENCE_WITH_UPSTREAM, refreshed).await;
        let Some(turn) = call.registry.starts.planning().await.map(Arc::new) else {
            return;
        };
        let listed = match refreshed {
            Ok(Ok(_)) => self.referrers(image).await,
            _ => None,
        };
        let (referrers, list) = listed.unwrap_or_default();
        let artifacts = self.artifacts(image, &referrers).await;
        let config = &image.manifest.config.digest;
        if artifacts
            .iter()
            .all(|artifact| artifact.known.carried.embedded(config).is_none())
        {
            self.take_blob(config, MAX_WHOLE, contents).await;
        }
        if let Some(list) = list {
            contents.referrers(image.digest, list);
        }
        for artifact in &artifacts {
            self.take_artifact(artifact, contents);
        }
        for Gathered { known, .. } in artifacts.iter().filter(|artifact| artifact.is_whole) {
            if let Some(apart) = &known.carried.apart {
                self.take_blob(&apart.digest, MOST_READ, contents).await;
            }
        }
        let (zones, indexed) = self.zones(image, &artifacts, turn.clone()).await;
        self.take_indexes(image, &artifacts, &indexed, contents).await;
        let store = &call.registry.store;
        for (place, (blob, ZonePieces { zone, pieces })) in zones.into_iter().enumerate() {
            let size = pieces.iter().map(|(_, length)| *length).sum();
            match contents.pieces(zone.digest, blob.clone(), pieces, store).await {
                true => self.tell_of_blob(&blob, size),
                // The indexes were in it.
                false if place == 0 => {
                    let none = BTreeSet::new();
                    self.take_indexes(image, &artifacts, &none, contents).await;
                }
                false => {}
            }
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
        let room = self.call.room_now(list.len() as u64);
        Some((listed.items, room.map(|room| room.hold(list))))
    }

    /// The newest recordings and the newest list of indexes.
    async fn artifacts(&self, image: &Image, referrers: &[Referrer]) -> Vec<Gathered> {
        let newest = |artifact_type: &str, most: usize| {
            let is_of_type = |item: &&Referrer| item.artifact_type.as_deref() == Some(artifact_type);
            let mut all: Vec<&Referrer> = referrers.iter().filter(is_of_type).collect();
            all.sort_by_key(|item| Reverse(item.created));
            all.truncate(most);
            all
        };
        let recordings = newest(RUNTIME_IMAGE_TYPE, MOST_RECORDINGS);
        let (mut lists, mut artifacts) = (Vec::new(), Vec::new());
        let (mut bytes, mut decoded) = (0, 0);
        // The list first: recordings must not take its place.
        for item in newest(ARTIFACT_TYPE, 1).into_iter().chain(recordings) {
            bytes += item.size;
            if bytes > MOST_ARTIFACTS {
                break;
            }
            let Some(artifact) = self.artifact(image, item).await else {
                continue;
            };
            if artifact.known.carried.recording.is_some() {
                decoded += artifact.known.carried.memory();
            }
            if decoded > MOST_DECODED {
                break;
            }
            match item.artifact_type.as_deref() {
                Some(ARTIFACT_TYPE) => lists.push(artifact),
                _ => artifacts.push(artifact),
            }
        }
        artifacts.extend(lists);
        artifacts
    }

    /// An artifact that the repository was seen to have just now.
    async fn artifact(&self, image: &Image, item: &Referrer) -> Option<Gathered> {
        let starts = &self.call.registry.starts;
        let digest: Digest = item.digest.to_string().parse().ok()?;
        let gathered = |known: Arc<KnownArtifact>, is_whole: bool| Gathered {
            item: item.clone(),
            known,
            is_whole,
        };
        if let Some(known) = starts.known(&digest) {
            // It may be another repository that has the recording.
            let is_whole = match &known.carried.apart {
                Some(apart) => self.blob(&apart.digest).await.is_some(),
                None => true,
            };
            return Some(gathered(known, is_whole));
        }
        let store = &self.call.registry.store;
        let found = store.manifest_within(self.repository, &item.digest, item.size);
        let Ok(Some(ManifestWithin::Whole(manifest))) = found.await else {
            return None;
        };
        let subject = image.digest;
        let read = move || KnownArtifact::read(manifest.content, &manifest.media_type, subject);
        let mut artifact = starts.read(read).await?;
        if let Some(&BlobRef { digest, .. }) = artifact.carried.apart.as_ref() {
            // Another repository may have it. So what this one lacks is not remembered.
            let Some(bytes) = self.small_blob(&digest).await else {
                let is_whole = self.blob(&digest).await.is_some();
                return Some(gathered(Arc::new(artifact), is_whole));
            };
            let read = move || {
                // What is remembered counts for all repositories: a damaged blob must not be.
                let is_intact = Digest::of(&bytes) == digest;
                if is_intact {
                    artifact.carried.take_recording(&bytes, subject);
                }
                (artifact, is_intact)
            };
            let (read, is_intact) = starts.read(read).await?;
            artifact = read;
            if !is_intact {
                return Some(gathered(Arc::new(artifact), false));
            }
        }
        let artifact = Arc::new(artifact);
        starts.keep(digest, artifact.clone());
        Some(gathered(artifact, true))
    }

    fn take_artifact(&self, Gathered { item, known, .. }: &Gathered, contents: &mut Contents) {
        let content = known.content.clone();
        let Some(room) = self.call.room_now(content.len() as u64) else {
            return;
        };
        let registry = self.call.registry;
        let manifest = xebec_store::Manifest {
            digest: item.digest.clone(),
            media_type: item.media_type.clone(),
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
    async fn zones(
        &self,
        image: &Image,
        artifacts: &[Gathered],
        turn: Arc<OwnedSemaphorePermit>,
    ) -> (Vec<Zone>, BTreeSet<Digest>) {
        if self.request.service.is_none() {
            return (Vec::new(), carried(artifacts));
        }
        let lacking = self.lacking(image, artifacts, turn).await.unwrap_or_default();
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

    async fn lacking(
        &self,
        image: &Image,
        artifacts: &[Gathered],
        turn: Arc<OwnedSemaphorePermit>,
    ) -> Option<Lacking> {
        recordings(artifacts).next()?;
        let digest = image.manifest.config.digest;
        let embedded = artifacts
            .iter()
            .find_map(|artifact| artifact.known.carried.embedded(&digest));
        let config = match embedded {
            Some(config) => Bytes::copy_from_slice(config),
            None => self.small_blob(&digest).await?,
        };
        let (request, artifacts) = (self.request.clone(), artifacts.to_vec());
        let planned = tokio::task::spawn_blocking(move || {
            // This goes on after a request that is given up.
            let _turn = turn;
            plan(&request, &config, &artifacts)
        });
        planned.await.ok()?
    }

    /// Indexes of layers that neither the host nor a zone has.
    async fn take_indexes(
        &self,
        image: &Image,
        artifacts: &[Gathered],
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
                .find_map(|artifact| artifact.known.carried.indexes.layers.get(&digest));
            let Some(listed) = listed else { continue };
            // What the manifest says of its size is not believed.
            bytes += self
                .take_blob(&listed.index.digest, MOST_INDEXES - bytes, contents)
                .await;
            if contents.parts().is_full() {
                return;
            }
        }
    }

    /// Sends a blob of `most` bytes at most, and says how many it has; 0 if it is not sent, or was before.
    async fn take_blob(&self, digest: &Digest, most: u64, contents: &mut Contents) -> u64 {
        if contents.parts().has_blob(digest) {
            return 0;
        }
        let blob = self.blob(digest).await;
        let Some(blob) = blob.filter(|blob| blob.size <= most) else {
            return 0;
        };
        let store = &self.call.registry.store;
        if !contents.blob(*digest, blob.clone(), store).await {
            return 0;
        }
        self.tell_of_blob(&blob, blob.size);
        blob.size
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

fn recordings(artifacts: &[Gathered]) -> impl Iterator<Item = &Recording> {
    artifacts
        .iter()
        .filter(|artifact| artifact.is_whole)
        .filter_map(|artifact| artifact.known.carried.recording.as_ref())
}

/// The layers whose indexes are in zones of recordings.
fn carried(artifacts: &[Gathered]) -> BTreeSet<Digest> {
    let layers = recordings(artifacts).flat_map(|recording| {
        let indexes = recording.indexes.iter();
        indexes.filter_map(|index| recording.layers.get(usize::from(index.layer)))
    });
    layers.map(|layer| layer.layer).collect()
}

/// What the host lacks of the service that it most likely means.
fn plan(request: &StartRequest, config: &[u8], artifacts: &[Gathered]) -> Option<Lacking> {
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
