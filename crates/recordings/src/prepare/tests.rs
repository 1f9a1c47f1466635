//! Starts from a registry that answers them in advance: how often it is asked, and that nothing that it says there counts for more than
//! what a plain registry says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use xebec_fill::fill_service::{FillParts, FillService};
use xebec_format::PAGE_SIZE;
use xebec_format::layer::LayerIndex;
use xebec_format::runtime_image::{
    BundledIndex, PageRun, RecordedLayer, Recording, SeenRun, Service, ServiceKey, lay_out,
};
use xebec_index::indexer::{IndexOptions, index_layer};
use xebec_kernel::fanotify::Group;
use xebec_oci::media_type::{OCI_CONFIG, OCI_MANIFEST};
use xebec_oci::{Descriptor, ImageManifest, Stats};
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::Settings;
use xebec_protocol::wire::{Loaded, PullPolicy};
use xebec_testkit::registry::{Fault, FaultyRegistry, Options, When};
use xebec_testkit::tar::{Header, Kind, TarBuilder};
use xebec_trust::Policy;
use xebec_views::recording_admission::RecordingAdmission;

use super::*;
use crate::load::{Loader, Target};
use xebec_artifact::recording as artifact;

const NAME: &str = "team/app";
/// Pages of the layer's only file, all of which the service reads.
const PAGES: u64 = 300;

/// An image with a recording of its service, in a registry that answers starts in advance.
struct Recorded {
    registry: FaultyRegistry,
    contents: Vec<u8>,
    zone: Digest,
    zone_size: u64,
    index_size: u64,
    /// How the image is changed, so that its digest is another one.
    version: u32,
}

fn contents() -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..PAGES * PAGE_SIZE).map(|_| next()).collect()
}

/// The zone of a recording that carries the index before the pages, and the recording of an image.
fn record(image: Digest, layer: &[u8], index: &LayerIndex, contents: &[u8]) -> (Vec<u8>, Recording) {
    let encoded = index.encode();
    let layers = vec![RecordedLayer {
        layer: Digest::of(layer),
        index: Digest::of(&encoded),
        data_size: index.span_table().data_size,
    }];
    let run = PageRun {
        layer: 0,
        first: 0,
        pages: PAGES as u32,
    };
    let mut zone = Vec::new();
    let laid = lay_out(&layers, 0, &encoded, [run], &mut zone, |_, page, bytes| {
        let at = (page * PAGE_SIZE) as usize;
        bytes.copy_from_slice(&contents[at..at + PAGE_SIZE as usize]);
        Ok(())
    });
    let laid = laid.unwrap();
    let service = Service {
        key: ServiceKey {
            argv: vec!["/bin/app".to_owned()],
            env: BTreeMap::new(),
        },
        probe: String::new(),
        recorded: 1,
        runs: 1,
        recorder: String::new(),
        touched: vec![SeenRun { run, seen: 1 }],
    };
    let recording = Recording {
        image,
        layers,
        services: vec![service],
        zeros: laid.zeros,
        zones: vec![laid.zone],
        segments: laid.segments,
        indexes: vec![BundledIndex {
            layer: 0,
            zone: 0,
            offset: 0,
            length: encoded.len() as u64,
        }],
    };
    (zone, recording)
}

impl Recorded {
    fn new() -> Self {
        let options = Options {
            native: true,
            ..Options::default()
        };
        let mut this = Self {
            registry: FaultyRegistry::with(options).unwrap(),
            contents: contents(),
            zone: Digest::of(b""),
            zone_size: 0,
            index_size: 0,
            version: 0,
        };
        this.push();
        this
    }

    /// Pushes a version of the image, with a recording.
    fn push(&mut self) {
        self.version += 1;
        let mut tar = TarBuilder::new();
        tar.file_with(&Header::new("app", Kind::File), &self.contents);
        let layer = tar.into_bytes();
        let indexed = index_layer(&layer[..], &IndexOptions::default(), None).unwrap();
        let config = json!({
            "architecture": "amd64", "os": "linux", "author": self.version.to_string(),
            "config": {"Entrypoint": ["/bin/app"]},
            "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer)]},
        });
        let config = config.to_string().into_bytes();
        let manifest = ImageManifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            artifact_type: None,
            config: Descriptor::of(OCI_CONFIG, &config),
            layers: vec![Descriptor::of("application/vnd.oci.image.layer.v1.tar", &layer)],
            subject: None,
            annotations: BTreeMap::new(),
        };
        let manifest = serde_json::to_vec(&manifest).unwrap();
        self.registry.put_blob(NAME, config.clone());
        let image = self
            .registry
            .put_manifest(NAME, "v1", OCI_MANIFEST, manifest.clone());
        let (zone, recording) = record(image, &layer, &indexed.index, &self.contents);
        self.registry.put_blob(NAME, layer);
        self.zone_size = zone.len() as u64;
        self.index_size = recording.indexes[0].length;
        self.zone = self.registry.put_blob(NAME, zone);
        let subject = Descriptor::of(OCI_MANIFEST, &manifest);
        let config = Descriptor::embedding(OCI_CONFIG, &config);
        let encoded = recording.encode();
        let artifact = artifact::encode(subject, &encoded, &recording.zones, std::iter::once(config));
        let artifact = serde_json::to_vec(&artifact).unwrap();
        self.registry
            .put_manifest(NAME, &Digest::of(&artifact).to_string(), OCI_MANIFEST, artifact);
    }

    /// Has the registry send the whole zone in advance: the index, and then the pages in two pieces.
    fn send_zone(&self) {
        let end = self.index_size;
        let pieces = [
            (0, end),
            (end, 100_000),
            (end + 100_000, self.zone_size - end - 100_000),
        ];
        self.registry.send_pieces(NAME, self.zone, &pieces);
    }

    fn request(&self) -> ImageRequest {
        ImageRequest {
            reference: format!("{}/{NAME}:v1", self.registry.host()),
            platform: Some("linux/amd64".to_owned()),
            docker_config: None,
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        }
    }

    /// The methods of all requests, and what they asked for.
    fn log(&self) -> Vec<String> {
        let log = self.registry.log().into_iter().map(|request| {
            let kinds = ["_xebec", "manifests", "referrers", "blobs"];
            let kind = kinds
                .iter()
                .find(|kind| request.head.path.contains(&format!("/{kind}/")));
            let range = request.head.range.map_or("", |_| " range");
            format!("{} {}{range}", request.head.method, kind.unwrap_or(&""))
        });
        log.collect()
    }
}

/// A host without images.
struct Host {
    recordings: Recordings,
    bandwidths: Arc<Bandwidths>,
    paths: Paths,
    _directory: tempfile::TempDir,
}

impl Host {
    fn new(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        std::fs::write(paths.registries(), settings).unwrap();
        Self {
            recordings: Recordings::open(&paths).unwrap(),
            bandwidths: Arc::default(),
            paths,
            _directory: directory,
        }
    }

    /// One that has heard of the registry.
    fn acquainted(recorded: &Recorded, settings: &str) -> Self {
        let this = Self::new(settings);
        let seen = xebec_kernel::clock::seconds_since_1970();
        let memory = json!({"native": {recorded.registry.host(): seen}});
        std::fs::write(this.paths.registries_seen(), memory.to_string()).unwrap();
        this
    }

    fn stats(&self) -> Stats {
        self.recordings.images().clients().stats()
    }

    async fn prepare(&self, recorded: &Recorded) -> PreparedStart {
        let command = ServiceCommand {
            entrypoint: None,
            command: Vec::new(),
            env: Vec::new(),
            has_probe: true,
            learn: false,
            is_said_later: false,
        };
        let service = ForService {
            command: &command,
            bandwidths: &self.bandwidths,
        };
        let (report, request): (Report, _) = (Arc::new(|_| ()), recorded.request());
        let prepared = self.recordings.prepare(&request, true, Some(service), &report);
        let mut prepared = prepared.await.unwrap();
        prepared.image.written().await.unwrap();
        prepared
    }

    /// Brings the pages in, and compares them. `None` where that cannot be tried.
    async fn load(&self, prepared: PreparedStart, contents: &[u8]) -> Option<Loaded> {
        let group = match Group::new() {
            Ok(group) => Arc::new(group),
            Err(error) => {
                println!("SKIPPED: {error}");
                return None;
            }
        };
        let images = self.recordings.images();
        let (completed, _complete) = tokio::sync::mpsc::unbounded_channel();
        let parts = FillParts {
            store: images.store().clone(),
            clients: images.clients().clone(),
            group,
            runtime: tokio::runtime::Handle::current(),
            completed,
        };
        let fills = FillService::new(parts, &Settings::default());
        let layer = &prepared.image.layers[0];
        let served = fills.serve(layer.key, Some(&layer.index)).unwrap();
        let target = Target {
            served: served.clone(),
            root: layer.root,
        };
        let begun = prepared.recording.unwrap().unwrap();
        begun.keeping.end().await.unwrap();
        let admission = Arc::new(RecordingAdmission::default());
        let evidence = &begun.found.evidence;
        let injecting = admission.inject([layer.key], evidence, Vec::new, &Policy::default());
        let loader = Arc::new(Loader::new(begun.source, begun.found.clone(), &[target]));
        loader.allow(injecting);
        let loaded = loader.load(begun.open).await;
        let mut read = vec![0; contents.len()];
        served.layer().read_at(&mut read, 0).unwrap();
        assert!(read == contents, "other bytes are there");
        Some(loaded)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_asks_once() {
    let recorded = Recorded::new();
    recorded.send_zone();
    let host = Host::acquainted(&recorded, "");
    let prepared = host.prepare(&recorded).await;
    assert_eq!(recorded.log(), ["POST _xebec"]);
    let Some(loaded) = host.load(prepared, &recorded.contents).await else {
        return;
    };
    assert_eq!(
        (loaded.missing, loaded.injected, loaded.requests),
        (PAGES, PAGES, 0)
    );
    assert_eq!(loaded.problem, None);
    assert_eq!(recorded.log(), ["POST _xebec"]);
    let sent = recorded.registry.log()[0].bytes_sent;
    assert_eq!((host.stats().requests, host.stats().bytes_received), (1, sent));
    let request = recorded.request();
    let registry = request.reference.split('/').next().unwrap_or_default();
    let unknown = Bandwidths::default().bridge(registry);
    assert_eq!(
        host.bandwidths.bridge(registry),
        unknown,
        "nothing is learnt of the line"
    );
    // A warm start asks for the tag.
    recorded.registry.clear_log();
    host.prepare(&recorded).await;
    assert_eq!(recorded.log(), ["GET manifests"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_was_not_seen_yet_says_it_with_its_first_answer() {
    let recorded = Recorded::new();
    recorded.send_zone();
    let host = Host::new("");
    let prepared = host.prepare(&recorded).await;
    assert_eq!(recorded.log(), ["GET manifests", "POST _xebec"]);
    host.load(prepared, &recorded.contents).await;
    assert_eq!(recorded.log().len(), 2);
    // Another host of the same installation need not ask for the tag.
    let seen = std::fs::read_to_string(host.paths.registries_seen()).unwrap();
    assert!(seen.contains(&recorded.registry.host()), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_registry_is_asked_as_ever() {
    let recorded = Recorded::new();
    recorded.send_zone();
    recorded.registry.hide_native(true);
    let host = Host::new("");
    let prepared = host.prepare(&recorded).await;
    // The zone has nothing else in it.
    let plain = ["GET manifests", "GET referrers", "GET manifests", "GET blobs"];
    assert_eq!(recorded.log(), plain);
    host.load(prepared, &recorded.contents).await;
    // And so is one that may not be asked otherwise.
    recorded.registry.hide_native(false);
    recorded.registry.clear_log();
    let off = format!("[registries.\"{}\"]\nnative = false", recorded.registry.host());
    let host = Host::acquainted(&recorded, &off);
    host.prepare(&recorded).await;
    assert_eq!(recorded.log(), plain);
}

/// The pages of a layer that is here are not sent to a host that may not tell that, and the registry is not told.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_has_moved_brings_all_of_the_new_image_but_what_is_here() {
    for told in [false, true] {
        let mut recorded = Recorded::new();
        recorded.send_zone();
        let settings = format!(
            "[registries.\"{}\"]\ntell_held = {told}",
            recorded.registry.host()
        );
        let host = Host::acquainted(&recorded, &settings);
        let prepared = host.prepare(&recorded).await;
        if host.load(prepared, &recorded.contents).await.is_none() {
            return;
        }
        recorded.push();
        recorded.registry.clear_log();
        let prepared = host.prepare(&recorded).await;
        assert_eq!(recorded.log(), ["GET manifests", "POST _xebec"]);
        let begun = prepared.recording.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(
            begun.open.is_some(),
            told,
            "the registry of these tests sends all"
        );
        let loaded = host.load(prepared, &recorded.contents).await.unwrap();
        assert_eq!((loaded.missing, loaded.injected), (0, 0));
        assert_eq!(recorded.log().len(), 2);
    }
}

/// What is wrong is found out as in a plain answer, and asked for by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_lie_in_advance_costs_a_request_and_nothing_else() {
    for (kind, wanted) in [
        ("referrers", vec!["GET referrers"]),
        // Those of the image and of the recording.
        ("manifest", vec!["GET manifests", "GET manifests"]),
        // Index and pages.
        ("pieces", vec!["GET blobs range"]),
    ] {
        let recorded = Recorded::new();
        recorded.send_zone();
        recorded.registry.lie_in_advance(kind);
        let host = Host::acquainted(&recorded, "");
        let prepared = host.prepare(&recorded).await;
        assert_eq!(recorded.log(), [vec!["POST _xebec"], wanted].concat(), "{kind}");
        let Some(loaded) = host.load(prepared, &recorded.contents).await else {
            return;
        };
        assert_eq!((loaded.injected, loaded.problem), (PAGES, None), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_wrong_is_asked_for_by_itself() {
    let recorded = Recorded::new();
    recorded.registry.leave_out_in_advance("referrers");
    recorded.registry.lie_in_advance("blob");
    // No recording carries it, so it is asked for.
    let none =
        r#"{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}"#;
    let answer = Fault::Answer {
        status: 200,
        content_type: "application/vnd.oci.image.index.v1+json",
        body: none.to_owned(),
    };
    recorded.registry.inject(When::any().path("/referrers/"), answer);
    let host = Host::acquainted(&recorded, "");
    let service = ServiceCommand {
        entrypoint: None,
        command: Vec::new(),
        env: Vec::new(),
        has_probe: false,
        learn: false,
        is_said_later: false,
    };
    let service = ForService {
        command: &service,
        bandwidths: &host.bandwidths,
    };
    let (report, request): (Report, _) = (Arc::new(|_| ()), recorded.request());
    let prepared = host.recordings.prepare(&request, false, Some(service), &report);
    assert!(prepared.await.unwrap().recording.is_none());
    let log = recorded.log();
    assert_eq!(log[..3], ["POST _xebec", "GET referrers", "GET blobs"]);
}

/// Segments that came before the answer broke off are used, and the others are asked for by ranges.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_among_the_pages_is_no_failure() {
    let recorded = Recorded::new();
    recorded.send_zone();
    let half = recorded.zone_size / 2 + recorded.index_size;
    recorded
        .registry
        .inject(When::any().path("/_xebec/start/answer"), Fault::Truncate(half));
    let host = Host::acquainted(&recorded, "");
    let prepared = host.prepare(&recorded).await;
    let Some(loaded) = host.load(prepared, &recorded.contents).await else {
        return;
    };
    assert_eq!(
        (loaded.injected, loaded.requests, loaded.problem),
        (PAGES, 1, None)
    );
    assert_eq!(recorded.log(), ["POST _xebec", "GET blobs range"]);
    let range = recorded.registry.log()[1].bytes_sent;
    assert!(
        range < recorded.zone_size - 100_000,
        "what has come is asked for again"
    );
}

/// Pages that the registry does not send in advance come by ranges, while the others are used.
#[tokio::test(flavor = "multi_thread")]
async fn pieces_that_are_not_sent_are_asked_for() {
    let recorded = Recorded::new();
    let begin = recorded.zone_size - 200_000;
    recorded
        .registry
        .send_pieces(NAME, recorded.zone, &[(begin, 200_000)]);
    let host = Host::acquainted(&recorded, "");
    let prepared = host.prepare(&recorded).await;
    let Some(loaded) = host.load(prepared, &recorded.contents).await else {
        return;
    };
    assert_eq!((loaded.injected, loaded.problem), (PAGES, None));
    let mut log = recorded.log();
    assert_eq!(log.remove(0), "POST _xebec");
    assert!(log.iter().all(|line| line == "GET blobs range"), "{log:?}");
}

/// A registry that refuses in advance what it gives plainly is not asked twice, nor soon again.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_in_advance_is_sent_once() {
    let mut recorded = Recorded::new();
    recorded.send_zone();
    let denied = Fault::Status {
        code: 403,
        retry_after: None,
    };
    recorded
        .registry
        .inject(When::any().path("/_xebec/start/answer"), denied);
    let host = Host::acquainted(&recorded, "");
    host.prepare(&recorded).await;
    let plain = ["GET manifests", "GET referrers", "GET manifests", "GET blobs"];
    assert_eq!(recorded.log(), [&["POST _xebec"], &plain[..]].concat());
    recorded.push();
    recorded.registry.clear_log();
    host.prepare(&recorded).await;
    assert!(!recorded.log().contains(&"POST _xebec".to_owned()));
}
