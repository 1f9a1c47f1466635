//! Makes a recording of what was touched, keeps it, and pushes it beside the image.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use serde::Serialize;
use xebec_artifact::artifact::{BlobRef, EMPTY_CONFIG};
use xebec_artifact::own_table::has_table_of_contents;
use xebec_artifact::recording;
use xebec_cache::layer::CachedLayer;
use xebec_cache::store::{LayerKey, Store};
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{
    BundledIndex, LaidOut, PageRun, RecordedLayer, Recording, SeenRun, Segment, Service, ServiceKey, lay_out,
};
use xebec_images::embedded_config::embedded_config;
use xebec_images::found_image::FoundImage;
use xebec_images::images::Report;
use xebec_images::publish::read_key;
use xebec_images::registry_failure::registry_failure;
use xebec_images::signatures;
use xebec_kernel::clock::seconds_since_1970;
use xebec_oci::{BlobSource, Client, Repository};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::LayerPair;
use xebec_protocol::wire::{ImageRequest, Reply};
use xebec_trust::Evidence;
use xebec_trust::PrivateKey;

use crate::bundled_indexes::{self, BundledIndexes};
use crate::merge_pages::after;
use crate::record::{RecordOptions, Session};
use crate::recording_store::KeptRecording;
use crate::recordings::Recordings;
use crate::segment_dedup::Reused;

/// Options for publishing a recording.
#[derive(Clone, Debug, Default)]
pub struct PublishOptions {
    /// Keep it on this host only.
    pub local: bool,
    /// Sign its artifact with the private key in this file.
    pub sign: Option<PathBuf>,
    /// Variables whose values make it another service.
    pub key_env: Vec<String>,
}

/// The recording that was made, and its sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// The image.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// The artifact; none if it is kept on this host only.
    pub artifact: Option<Digest>,
    /// The service's command line.
    pub argv: Vec<String>,
    /// Variables that tell it from other services of the image.
    pub env: BTreeMap<String, String>,
    /// How often it was run.
    pub runs: u8,
    /// Pages that were touched.
    pub pages: u64,
    /// Pages among them that are all zero, and cost nothing.
    pub zero_pages: u64,
    /// Pages that are in segments of earlier recordings.
    pub reused_pages: u64,
    /// Size of its own zone, in which the other pages are, in bytes.
    pub zone_bytes: u64,
    /// Bytes that a start fetches that has none of the pages.
    pub stored_bytes: u64,
    /// Size of the recording, which says which pages they are, in bytes.
    pub recording_bytes: u64,
    /// Size of the image's layers, compressed, in bytes.
    pub image_bytes: u64,
}

impl Recordings {
    /// Makes a recording of a session, keeps it, and pushes it.
    ///
    /// # Errors
    /// When pages cannot be read back from the cache, and as pushing.
    pub async fn publish_recording(
        &self,
        request: &ImageRequest,
        session: &Session<'_>,
        options: &RecordOptions,
        publish: &PublishOptions,
        report: &Report,
    ) -> Result<Published, Failure> {
        let key = publish.sign.as_deref().map(read_key).transpose()?;
        let mut found = self.images.resolve(request, report).await?;
        self.images.check_pushed(&found)?;
        if found.manifest_digest != session.mounted.manifest {
            let message = format!(
                "{} was moved to another image while it was recorded; record it again",
                session.mounted.reference
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        found.look_up_user(&session.mounted.path);
        let mut service = service(session, options, &publish.key_env)?;
        let admitted = self.recordings_of(request, &found).await?;
        let admitted: Vec<KeptRecording> = admitted
            .into_iter()
            .filter_map(|(kept, root)| root.is_ok().then_some(kept))
            .collect();
        let of_service = admitted
            .iter()
            .flat_map(|kept| kept.recording.service(&service.key));
        service.recorded = after(of_service, service.recorded);
        let earlier: Vec<Recording> = admitted
            .into_iter()
            .filter(|kept| kept.zone.is_none())
            .map(|kept| kept.recording)
            .collect();
        let order = service.touched.iter().map(|seen| seen.run).collect();
        let plan = Plan {
            image: found.manifest_digest,
            layers: &session.mounted.layers,
            services: vec![service],
            order,
            earlier: &earlier,
            spread: true,
            may_bundle: &self.may_bundle(&found, publish.local, publish.sign.is_some()),
        };
        let made = make(self.images.store(), plan)?;
        let mut published = summary(&found, &made);
        published.artifact = self
            .share(request, &found, made, publish.local, key.as_ref(), report)
            .await?;
        Ok(published)
    }

    /// Which layers' indexes a recording of an image carries. A recording that is not pushed carries none, since this host has them.
    /// Layers that have their own need none. A signed recording carries only those that are as well vouched for.
    pub(super) fn may_bundle(
        &self,
        found: &FoundImage,
        local: bool,
        signed: bool,
    ) -> impl Fn(LayerKey) -> bool + use<> {
        let record = self.images.records().get(found.manifest_digest);
        let roots = record.map(|record| record.layers).unwrap_or_default();
        let own = found.layers.iter().filter(|layer| has_table_of_contents(layer));
        let own: Vec<Digest> = own.map(|layer| layer.digest).collect();
        move |key| {
            let is_vouched = || {
                let known = roots.iter().find(|layer| layer.key() == key);
                known.is_some_and(|layer| layer.root.holds_for_digest())
            };
            !local && !own.contains(&key.layer) && (!signed || is_vouched())
        }
    }

    /// Keeps a recording that this host made and, unless it is for this host only, pushes it; gives the artifact.
    pub(super) async fn share(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        made: Made,
        local: bool,
        key: Option<&PrivateKey>,
        report: &Report,
    ) -> Result<Option<Digest>, Failure> {
        let own = Evidence {
            own: true,
            ..Evidence::default()
        };
        let manifest = found.manifest_digest;
        let encoded = &made.encoded;
        if local {
            let name = Digest::of(encoded);
            self.kept.keep(manifest, name, encoded, &own, Some(&made.zone))?;
            return Ok(None);
        }
        let client = self.images.clients().get(request.docker_config.as_deref())?;
        let digest = push(self.images.store(), &client, found, &made, report).await?;
        if let Some(key) = key {
            signatures::push(&client, found.reference.repository(), key, digest).await?;
        }
        self.kept.keep(manifest, digest, encoded, &own, None)?;
        Ok(Some(digest))
    }
}

fn service(session: &Session<'_>, options: &RecordOptions, key_env: &[String]) -> Result<Service, Failure> {
    let mut env = BTreeMap::new();
    for name in key_env {
        let value = session.variable(name, &options.run.env).ok_or_else(|| {
            let message = format!("--key-env {name}: the container has no such variable; give it with --env");
            Failure::new(FailureKind::Usage, message)
        })?;
        env.insert(name.clone(), value);
    }
    let probes: Vec<String> = options.run.probes.iter().map(ToString::to_string).collect();
    let mut touched = Vec::new();
    for page in &session.touched {
        let run = PageRun {
            layer: page.layer,
            first: page.page,
            pages: 1,
        };
        SeenRun { run, seen: page.seen }.push_onto(&mut touched);
    }
    Ok(Service {
        key: ServiceKey {
            argv: session.argv.clone(),
            env,
        },
        probe: match probes.is_empty() {
            true => "exit".to_owned(),
            false => probes.join(" and "),
        },
        recorded: seconds_since_1970(),
        runs: options.repeat.max(1),
        recorder: concat!("xebec ", env!("CARGO_PKG_VERSION")).to_owned(),
        touched,
    })
}

/// The image, layers and services of a recording that is to be made.
pub(super) struct Plan<'a> {
    /// Digest of the image's manifest.
    pub(super) image: Digest,
    /// The image's layers, in its order; where one stands twice, pages name the first.
    pub(super) layers: &'a [LayerPair],
    /// The services, with their pages.
    pub(super) services: Vec<Service>,
    /// All their pages, in the order in which they are to stand in its own zone.
    pub(super) order: Vec<PageRun>,
    /// Recordings whose segments it may use.
    pub(super) earlier: &'a [Recording],
    /// Whether the pages of one service may be in several zones.
    pub(super) spread: bool,
    /// Whether its own zone may carry a layer's index.
    pub(super) may_bundle: &'a dyn Fn(LayerKey) -> bool,
}

/// A recording that was made.
pub(super) struct Made {
    /// The recording.
    pub(super) recording: Recording,
    /// The same as bytes.
    pub(super) encoded: Vec<u8>,
    /// Its own zone, if it has one: the first in the recording.
    pub(super) zone: Vec<u8>,
}

impl Made {
    /// Pages that are in segments of earlier recordings.
    pub(super) fn reused_pages(&self) -> u64 {
        let zones = &self.recording.zones;
        let own = zones.first().filter(|_| !self.zone.is_empty()).map(|_| 0);
        let segments = self.recording.segments.iter();
        let reused = segments.filter(|segment| Some(segment.zone) != own);
        reused.map(Segment::pages).sum()
    }

    /// Size of all its segments, compressed, in bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let segments = self.recording.segments.iter();
        segments.map(|segment| u64::from(segment.length)).sum()
    }
}

/// Different layers in the order in which a recording numbers them.
pub(super) fn numbered(pairs: &[LayerPair]) -> Vec<LayerKey> {
    let mut keys: Vec<LayerKey> = Vec::new();
    for pair in pairs {
        let key: LayerKey = (*pair).into();
        // As the pages are numbered: a layer that stands in the image twice counts where it stands first.
        if keys.iter().all(|known| known.layer != key.layer) {
            keys.push(key);
        }
    }
    keys
}

/// Makes a recording from pages that are in the cache.
pub(super) fn make(store: &Store, plan: Plan<'_>) -> Result<Made, Failure> {
    let (layers, files) = open_layers(store, plan.layers)?;
    let read = |layer: u16, page: u64, bytes: &mut [u8; PAGE_SIZE as usize]| {
        read_verified(files.get(usize::from(layer)), page, bytes)
    };
    let failed = |error| Failure::host("read the touched pages back", error);
    let touched: HashSet<(u16, u64)> = pages(&plan.order).into_iter().collect();
    let mut read_page = |(layer, page): (u16, u64), bytes: &mut _| read(layer, page, bytes);
    let mut reused = Reused::choose(plan.earlier, &layers, &touched, &mut read_page).map_err(failed)?;
    if !plan.spread {
        reused = reused
            .unless_spread(&plan.services, &mut read_page)
            .map_err(failed)?;
    }
    let has = reused.pages();
    let new = pages(&plan.order).into_iter().filter(|page| !has.contains(page));
    let new = new.map(|(layer, first)| PageRun {
        layer,
        first,
        pages: 1,
    });
    let mut carried = BundledIndexes::earlier(&layers, plan.earlier, &reused.zones, plan.may_bundle);
    let whole = carried.whole(&layers, plan.may_bundle);
    let is_served = |service: &Service| {
        let zones = reused.zones_of(service);
        zones.iter().any(|zone| whole.contains(&(zone + 1)))
    };
    if !plan.services.iter().all(is_served) {
        carried.add_own(store, &layers, plan.may_bundle)?;
    }
    let mut zone = Vec::new();
    let laid_out = lay_out(
        &layers,
        0,
        &carried.front,
        new,
        &mut zone,
        |layer, page, bytes| match read(layer, page, bytes)? {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "page {page} of layer {layer} was read, but is not there any more or was not compared; record again"
            ))),
        },
    );
    let laid_out = laid_out.map_err(failed)?;
    let recording = recording(plan.image, layers, plan.services, laid_out, reused, &carried);
    recording
        .check()
        .map_err(|error| Failure::host("make a recording", error))?;
    Ok(Made {
        encoded: recording.encode(),
        recording,
        zone,
    })
}

/// Opens the layers to look at them, numbered as the recording does.
fn open_layers(
    store: &Store,
    layers: &[LayerPair],
) -> Result<(Vec<RecordedLayer>, Vec<CachedLayer>), Failure> {
    let (mut recorded, mut files) = (Vec::new(), Vec::new());
    for key in numbered(layers) {
        let layer = store.look(key)?;
        recorded.push(RecordedLayer {
            layer: key.layer,
            index: key.index,
            data_size: layer.table().data_size,
        });
        files.push(layer);
    }
    Ok((recorded, files))
}

/// Reads a page; whether it is there. A page that a runtime image brought and nobody compared is not this host's word.
fn read_verified(
    layer: Option<&CachedLayer>,
    page: u64,
    bytes: &mut [u8; PAGE_SIZE as usize],
) -> io::Result<bool> {
    let is_known = |cached: &&CachedLayer| {
        cached.presence().missing(page..page + 1).is_empty() && cached.unverified(page..page + 1).is_empty()
    };
    match layer.filter(is_known) {
        Some(cached) => cached.read_at(bytes, page * PAGE_SIZE).map(|()| true),
        None => Ok(false),
    }
}

/// The single pages of runs, each with its layer's number.
fn pages(runs: &[PageRun]) -> Vec<(u16, u64)> {
    let runs = runs.iter();
    runs.flat_map(|run| (run.first..run.end()).map(move |page| (run.layer, page)))
        .collect()
}

/// Its own zone comes first, if it has one.
fn recording(
    image: Digest,
    layers: Vec<RecordedLayer>,
    services: Vec<Service>,
    laid_out: LaidOut,
    reused: Reused,
    carried: &BundledIndexes,
) -> Recording {
    let mut zones = Vec::new();
    if laid_out.zone.size > 0 {
        zones.push(laid_out.zone);
    }
    let own = zones.len() as u16;
    // The places count as if there were a zone of its own.
    let indexes = carried.places.iter().map(|place| BundledIndex {
        zone: (place.zone + own).saturating_sub(1),
        ..*place
    });
    let later = reused.segments.into_iter().map(|segment| Segment {
        zone: segment.zone + own,
        ..segment
    });
    let segments = laid_out.segments.into_iter().chain(later).collect();
    zones.extend(reused.zones);
    Recording {
        image,
        layers,
        services,
        zeros: laid_out.zeros,
        zones,
        segments,
        indexes: indexes.collect(),
    }
}

fn summary(found: &FoundImage, made: &Made) -> Published {
    let count = |runs: &[PageRun]| runs.iter().map(|run| u64::from(run.pages)).sum();
    let recording = &made.recording;
    let service = recording.services.first();
    let touched: Vec<PageRun> = service
        .iter()
        .flat_map(|service| service.touched.iter().map(|seen| seen.run))
        .collect();
    Published {
        reference: found.reference.to_string(),
        manifest: found.manifest_digest,
        artifact: None,
        argv: service
            .map(|service| service.key.argv.clone())
            .unwrap_or_default(),
        env: service.map(|service| service.key.env.clone()).unwrap_or_default(),
        runs: service.map_or(0, |service| service.runs),
        pages: count(&touched),
        zero_pages: count(&recording.zeros),
        reused_pages: made.reused_pages(),
        zone_bytes: made.zone.len() as u64,
        stored_bytes: made.stored_bytes(),
        recording_bytes: made.encoded.len() as u64,
        image_bytes: found.layers.iter().map(|layer| layer.size).sum(),
    }
}

async fn push(
    store: &Store,
    client: &Client,
    found: &FoundImage,
    made: &Made,
    report: &Report,
) -> Result<Digest, Failure> {
    let repository = found.reference.repository();
    let total = made.zone.len() as u64;
    report(Reply::bytes("push the recording", 0, total));
    push_blob(client, repository, Bytes::from_static(EMPTY_CONFIG)).await?;
    push_blob(client, repository, Bytes::copy_from_slice(&made.encoded)).await?;
    if !made.zone.is_empty() {
        push_blob(client, repository, Bytes::copy_from_slice(&made.zone)).await?;
    }
    let windows = bundled_indexes::windows(store, &made.recording)?;
    for (key, section) in &windows {
        // A host that has the whole windows made the index, and may not have pushed it. Else the index came from the registry.
        if let Ok(bytes) = std::fs::read(store.folder(*key).join("windows"))
            && Digest::of(&bytes) == section.digest
        {
            push_blob(client, repository, Bytes::from(bytes)).await?;
        }
    }
    let windows = windows
        .iter()
        .map(|(key, section)| recording::windows_descriptor(key.layer, section));
    let subject = BlobRef {
        digest: found.manifest_digest,
        size: found.manifest_bytes.len() as u64,
    };
    let subject = subject.descriptor(&found.media_type);
    let config = found
        .config()
        .and_then(|config| embedded_config(&config.media_type, &found.config_bytes, found.user.as_ref()));
    let others = windows.chain(config);
    let manifest = recording::encode(subject, &made.encoded, &made.recording.zones, others);
    let pushed = client
        .attach(repository, &manifest)
        .await
        .map_err(|error| registry_failure(&error))?;
    Ok(pushed.digest)
}

async fn push_blob(client: &Client, repository: &Repository, bytes: Bytes) -> Result<(), Failure> {
    let pushed = client.push_blob(repository, BlobSource::Bytes(bytes), None).await;
    pushed.map(|_| ()).map_err(|error| registry_failure(&error))
}
