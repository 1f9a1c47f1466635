//! Makes a recording of what was touched, keeps it, and pushes it beside the image.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use serde::Serialize;
use xebec_cache::layer::CachedLayer;
use xebec_cache::store::{LayerKey, Store};
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{
    LaidOut, PageRun, RecordedLayer, Recording, SeenRun, Segment, Service, ServiceKey, lay_out,
};
use xebec_oci::{BlobSource, Client, Repository};

use crate::artifact::{BlobRef, EMPTY_CONFIG};
use crate::failure::{Failure, FailureKind};
use crate::image::publish::read_key;
use crate::image::resolve::{FoundImage, registry_failure};
use crate::image::{Images, Report, seconds_since_1970};
use crate::protocol::{ImageRequest, Reply};
use crate::runtime_image::artifact;
use crate::runtime_image::kept::Evidence;
use crate::runtime_image::record::{RecordOptions, Session};
use crate::runtime_image::reuse::Reused;
use crate::signatures;

/// What is done with a recording.
#[derive(Clone, Debug, Default)]
pub struct PublishOptions {
    /// Keep it on this host only.
    pub local: bool,
    /// Sign its artifact with the private key in this file.
    pub sign: Option<PathBuf>,
    /// Variables whose values make it another service.
    pub key_env: Vec<String>,
}

/// What came of it.
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
    /// What a start fetches that has none of the pages, in bytes.
    pub stored_bytes: u64,
    /// Size of the recording, which says which pages they are, in bytes.
    pub recording_bytes: u64,
    /// Size of the image's layers, compressed, in bytes.
    pub image_bytes: u64,
}

impl Images {
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
        let found = self.resolve(request, report).await?;
        if found.manifest_digest != session.mounted.manifest {
            let message = format!(
                "{} was moved to another image while it was recorded; record it again",
                session.mounted.reference
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let service = service(session, options, &publish.key_env)?;
        let earlier = self.recordings_of(request, &found).await?;
        let earlier: Vec<Recording> = earlier
            .into_iter()
            .map(|(kept, _)| kept)
            .filter(|kept| kept.zone.is_none())
            .map(|kept| kept.recording)
            .collect();
        let (recording, zone) = make(self.store(), found.manifest_digest, session, service, &earlier)?;
        let encoded = recording.encode();
        let mut published = summary(&found, &recording, &zone, encoded.len() as u64);
        let own = Evidence {
            own: true,
            ..Evidence::default()
        };
        if publish.local {
            let name = Digest::of(&encoded);
            self.recordings
                .keep(found.manifest_digest, name, &encoded, &own, Some(&zone))?;
            return Ok(published);
        }
        let client = self.clients.get(request.docker_config.as_deref())?;
        let digest = push(&client, &found, &recording, &encoded, zone, report).await?;
        if let Some(key) = &key {
            signatures::push(&client, found.reference.repository(), key, digest).await?;
        }
        self.recordings
            .keep(found.manifest_digest, digest, &encoded, &own, None)?;
        published.artifact = Some(digest);
        Ok(published)
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

/// The recording and its own zone.
fn make(
    store: &Store,
    image: Digest,
    session: &Session<'_>,
    service: Service,
    earlier: &[Recording],
) -> Result<(Recording, Vec<u8>), Failure> {
    let mut layers: Vec<RecordedLayer> = Vec::new();
    let mut files = Vec::new();
    for pair in &session.mounted.layers {
        let key: LayerKey = (*pair).into();
        // As the pages are numbered: a layer that stands in the image twice counts where it stands first.
        if layers.iter().any(|layer| layer.layer == key.layer) {
            continue;
        }
        let layer = store.look(key)?;
        layers.push(RecordedLayer {
            layer: key.layer,
            index: key.index,
            data_size: layer.table().data_size,
        });
        files.push(layer);
    }
    let read = |layer: u16, page: u64, bytes: &mut [u8; PAGE_SIZE as usize]| {
        // What a runtime image brought and nobody compared is not this host's word.
        let is_known = |cached: &&CachedLayer| {
            cached.presence().missing(page..page + 1).is_empty()
                && cached.unverified(page..page + 1).is_empty()
        };
        let cached = files.get(usize::from(layer)).filter(is_known);
        match cached {
            Some(cached) => cached.read_at(bytes, page * PAGE_SIZE).map(|()| true),
            None => Ok(false),
        }
    };
    let failed = |error| Failure::host("read the touched pages back", error);
    let runs = || service.touched.iter().map(|seen| seen.run);
    let touched = runs().flat_map(|run| (run.first..run.end()).map(move |page| (run.layer, page)));
    let touched: HashSet<(u16, u64)> = touched.collect();
    let reused = Reused::choose(earlier, &layers, &touched, |(layer, page), bytes| {
        read(layer, page, bytes)
    });
    let reused = reused.map_err(failed)?;
    let has = reused.pages();
    let new = runs().flat_map(|run| {
        (run.first..run.end()).map(move |first| PageRun {
            first,
            pages: 1,
            ..run
        })
    });
    let new = new.filter(|page| !has.contains(&(page.layer, page.first)));
    let mut zone = Vec::new();
    let laid_out = lay_out(&layers, 0, new, &mut zone, |layer, page, bytes| {
        match read(layer, page, bytes)? {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "page {page} of layer {layer} was read, but is not there any more or was not compared; record again"
            ))),
        }
    });
    let laid_out = laid_out.map_err(failed)?;
    let recording = recording(image, layers, service, laid_out, reused);
    recording
        .check()
        .map_err(|error| Failure::host("make a recording", error))?;
    Ok((recording, zone))
}

/// Its own zone comes first, if it has one.
fn recording(
    image: Digest,
    layers: Vec<RecordedLayer>,
    service: Service,
    laid_out: LaidOut,
    reused: Reused,
) -> Recording {
    let mut zones = Vec::new();
    if !laid_out.segments.is_empty() {
        zones.push(laid_out.zone);
    }
    let own = zones.len() as u16;
    let later = reused.segments.into_iter().map(|segment| Segment {
        zone: segment.zone + own,
        ..segment
    });
    let segments = laid_out.segments.into_iter().chain(later).collect();
    zones.extend(reused.zones);
    Recording {
        image,
        layers,
        services: vec![service],
        zeros: laid_out.zeros,
        zones,
        segments,
    }
}

fn summary(found: &FoundImage, recording: &Recording, zone: &[u8], recording_bytes: u64) -> Published {
    let count = |runs: &[PageRun]| runs.iter().map(|run| u64::from(run.pages)).sum();
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
        reused_pages: {
            let own = recording.zones.first().filter(|_| !zone.is_empty()).map(|_| 0);
            let reused = recording
                .segments
                .iter()
                .filter(|segment| Some(segment.zone) != own);
            reused.map(Segment::pages).sum()
        },
        zone_bytes: zone.len() as u64,
        stored_bytes: recording
            .segments
            .iter()
            .map(|segment| u64::from(segment.length))
            .sum(),
        recording_bytes,
        image_bytes: found.layers.iter().map(|layer| layer.size).sum(),
    }
}

async fn push(
    client: &Client,
    found: &FoundImage,
    recording: &Recording,
    encoded: &[u8],
    zone: Vec<u8>,
    report: &Report,
) -> Result<Digest, Failure> {
    let repository = found.reference.repository();
    let total = zone.len() as u64;
    report(Reply::Progress {
        what: "push the recording".to_owned(),
        done: 0,
        total: Some(total),
    });
    push_blob(client, repository, Bytes::from_static(EMPTY_CONFIG)).await?;
    push_blob(client, repository, Bytes::copy_from_slice(encoded)).await?;
    if !zone.is_empty() {
        push_blob(client, repository, Bytes::from(zone)).await?;
    }
    let subject = BlobRef {
        digest: found.manifest_digest,
        size: found.manifest_bytes.len() as u64,
    };
    let manifest = artifact::encode(subject.descriptor(&found.media_type), encoded, &recording.zones);
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
