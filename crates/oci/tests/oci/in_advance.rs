//! Starts that a registry answers in advance: what is taken from the answer, and what happens when there is none.

mod broken;
mod refusals;
mod wrong;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use xebec_format::digest::Digest;
use xebec_native::start_request::{StartRequest, WantedService};
use xebec_oci::manifest::{Descriptor, ImageManifest, Index};
use xebec_oci::media_type::{ACCEPT_IMAGE, OCI_EMPTY, OCI_INDEX, OCI_MANIFEST};
use xebec_oci::memory::RegistryMemory;
use xebec_oci::{Client, Mirror, NoAnswers, Platform, Repository};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::support::{NAME, amd64, config, manifest_of, noise, put_image, repository, status, tagged};

const ARTIFACT: &str = "application/x-artifact";
const PIECES: [(u64, u64); 3] = [(0, 1000), (1000, 24), (50_000, 30_000)];

/// A registry with an image of one layer, and an artifact that refers to it and has a blob.
struct Setup {
    registry: FaultyRegistry,
    manifest: Digest,
    config: Descriptor,
    artifact: Digest,
    blob: Descriptor,
    layer: Vec<u8>,
}

fn setup_with(options: Options) -> Setup {
    let registry = FaultyRegistry::with(Options {
        native: true,
        ..options
    })
    .unwrap();
    let image = put_image(&registry, 100_000);
    let parsed: ImageManifest = serde_json::from_slice(&image.manifest).unwrap();
    let blob = Descriptor::of("application/x-blob", &noise(5000));
    registry.put_blob(NAME, noise(5000));
    registry.put_blob(NAME, &b"{}"[..]);
    let artifact = ImageManifest {
        artifact_type: Some(ARTIFACT.to_owned()),
        config: Descriptor::of(OCI_EMPTY, b"{}"),
        layers: vec![blob.clone()],
        subject: Some(Descriptor::of(OCI_MANIFEST, &image.manifest)),
        ..parsed.clone()
    };
    let artifact = serde_json::to_vec(&artifact).unwrap();
    let artifact = registry.put_manifest(NAME, &Digest::of(&artifact).to_string(), OCI_MANIFEST, artifact);
    registry.send_pieces(NAME, image.layer_digest, &PIECES);
    Setup {
        registry,
        manifest: image.manifest_digest,
        config: parsed.config,
        artifact,
        blob,
        layer: image.layer,
    }
}

fn setup() -> Setup {
    setup_with(Options::default())
}

fn request(reference: &str) -> StartRequest {
    StartRequest {
        reference: reference.to_owned(),
        platform: amd64().to_string(),
        service: Some(WantedService::default()),
        held: Default::default(),
    }
}

/// A client that has seen the registry.
async fn acquainted(setup: &Setup) -> Client {
    let client = Client::new(config()).unwrap();
    client.check_login(&setup.registry.host()).await.unwrap();
    setup.registry.clear_log();
    client
}

async fn ask(client: &Client, setup: &Setup) -> Option<Client> {
    let service = client.native_service(&repository(&setup.registry))?;
    service.ask(request("v1"), None).await.ok()
}

/// Whether all is there that a start asks for.
async fn start(client: &Client, setup: &Setup) {
    let repository = repository(&setup.registry);
    let resolved = client.resolve(&tagged(&setup.registry), &amd64()).await.unwrap();
    assert_eq!(resolved.manifest_digest, setup.manifest);
    assert_eq!(Digest::of(&resolved.config_bytes), setup.config.digest);
    let referrers = client
        .referrers(&repository, &setup.manifest, Some(ARTIFACT))
        .await;
    assert_eq!(referrers.unwrap()[0].digest, setup.artifact);
    let name = setup.artifact.to_string();
    let artifact = client.manifest(&repository, &name, ACCEPT_IMAGE).await.unwrap();
    assert_eq!(artifact.digest, setup.artifact);
    let blob = client.blob(&repository, &setup.blob, 1 << 20).await.unwrap();
    assert_eq!(blob, noise(5000));
}

/// The methods and paths of all requests, without the repository.
fn log(setup: &Setup) -> Vec<String> {
    let log = setup.registry.log();
    let line = |request: &xebec_testkit::registry::LoggedRequest| {
        let path = request.head.path.rsplit_once('/').map_or("", |(path, _)| path);
        let kind = path.rsplit_once('/').map_or("", |(_, kind)| kind);
        format!("{} {kind}", request.head.method)
    };
    log.iter().map(line).collect()
}

async fn pieces(client: &Client, setup: &Setup) -> Result<Vec<u8>, String> {
    let (repository, layer) = (repository(&setup.registry), Digest::of(&setup.layer));
    let pieces = client.pieces_in_advance(&repository, &[layer]).unwrap();
    let places = PIECES.map(|(offset, length)| (layer, offset..offset + length));
    assert_eq!(pieces.places(), places);
    let mut stream = pieces.into_stream();
    let mut bytes = Vec::new();
    while let Some(part) = stream.next().await {
        bytes.extend_from_slice(&part.map_err(|fault| fault.to_string())?);
    }
    Ok(bytes)
}

fn pieces_of(layer: &[u8]) -> Vec<u8> {
    let slices = PIECES.map(|(offset, length)| &layer[offset as usize..(offset + length) as usize]);
    slices.concat()
}

#[tokio::test]
async fn one_request_answers_all_of_a_start() {
    let setup = setup();
    let client = Client::new(config()).unwrap();
    assert!(ask(&client, &setup).await.is_none(), "it was not seen yet");
    let client = acquainted(&setup).await;
    let figures = client.with_own_stats();
    let answered = ask(&figures, &setup).await.unwrap();
    start(&answered, &setup).await;
    assert_eq!(pieces(&answered, &setup).await.unwrap(), pieces_of(&setup.layer));
    assert_eq!(log(&setup), ["POST start"]);
    let (stats, sent) = (figures.stats(), setup.registry.log()[0].bytes_sent);
    assert_eq!((stats.requests, stats.bytes_received), (1, sent));
    assert_eq!(client.stats().requests, stats.requests + 1);
}

#[tokio::test]
async fn pieces_first_and_the_rest_is_kept() {
    let setup = setup();
    let answered = ask(&acquainted(&setup).await, &setup).await.unwrap();
    assert_eq!(pieces(&answered, &setup).await.unwrap(), pieces_of(&setup.layer));
    start(&answered, &setup).await;
    assert_eq!(log(&setup), ["POST start"]);
}

#[tokio::test]
async fn each_answer_is_taken_once() {
    let setup = setup();
    let answered = ask(&acquainted(&setup).await, &setup).await.unwrap();
    start(&answered, &setup).await;
    start(&answered, &setup).await;
    let plain = [
        "GET manifests",
        "GET blobs",
        "GET referrers",
        "GET manifests",
        "GET blobs",
    ];
    assert_eq!(log(&setup), [&["POST start"], &plain[..]].concat());
    // A clone has the same answers, and one without them asks by itself.
    let answered = ask(&acquainted(&setup).await, &setup).await.unwrap();
    start(&answered.without_answers(), &setup).await;
    start(&answered.hasty(Duration::from_secs(20)), &setup).await;
    assert_eq!(log(&setup), [&["POST start"], &plain[..]].concat());
}

#[tokio::test]
async fn calls_for_another_repository_ask_by_themselves() {
    let setup = setup();
    let answered = ask(&acquainted(&setup).await, &setup).await.unwrap();
    let other = "team/other";
    setup.registry.put_manifest(other, "v1", OCI_MANIFEST, &b"{}"[..]);
    setup.registry.put_blob(other, noise(5000));
    let other = Repository::new(&setup.registry.host(), other).unwrap();
    let manifest = answered.manifest(&other, "v1", ACCEPT_IMAGE).await.unwrap();
    assert_eq!(manifest.bytes, "{}");
    answered.blob(&other, &setup.blob, 1 << 20).await.unwrap();
    assert!(
        answered
            .referrers(&other, &setup.manifest, None)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        answered
            .pieces_in_advance(&other, &[Digest::of(&setup.layer)])
            .is_none()
    );
    assert_eq!(log(&setup).len(), 4);
    start(&answered, &setup).await;
    assert_eq!(log(&setup).len(), 4, "they are all still there");
}

#[tokio::test]
async fn an_image_index_leads_to_the_platform_s_manifest() {
    let setup = setup();
    let entries = ["arm64", "amd64"].map(|architecture| {
        let (config, manifest) = manifest_of(architecture.as_bytes(), architecture);
        setup.registry.put_blob(NAME, config);
        let digest = Digest::of(&manifest).to_string();
        setup
            .registry
            .put_manifest(NAME, &digest, OCI_MANIFEST, manifest.clone());
        Descriptor {
            platform: Some(Platform::linux(architecture)),
            ..Descriptor::of(OCI_MANIFEST, &manifest)
        }
    });
    let index = serde_json::to_vec(&Index::of(entries.to_vec())).unwrap();
    setup.registry.put_manifest(NAME, "v1", OCI_INDEX, index);
    let answered = ask(&acquainted(&setup).await, &setup).await.unwrap();
    let resolved = answered
        .resolve(&tagged(&setup.registry), &amd64())
        .await
        .unwrap();
    assert_eq!(resolved.manifest_digest, entries[1].digest);
    assert_eq!(log(&setup), ["POST start"]);
}

/// What a start asks for by itself when it has no answers.
const PLAIN: [&str; 5] = [
    "GET manifests",
    "GET blobs",
    "GET referrers",
    "GET manifests",
    "GET blobs",
];

#[tokio::test]
async fn without_an_answer_everything_is_asked_for_by_itself() {
    let answer = |status, body: &str| Fault::Answer {
        status,
        content_type: "application/json",
        body: body.to_owned(),
    };
    let unknown = r#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no"}]}"#;
    // Whether another start asks again, and whether the registry is forgotten.
    let cases = [
        (status(404, None), false, true),
        (status(405, None), false, true),
        (status(501, None), false, true),
        (Fault::Html, false, true),
        (status(500, None), false, false),
        (status(429, Some("3600")), false, false),
        (Fault::Reset(0), false, false),
        (Fault::Hang, false, false),
        (Fault::Truncate(5), false, false),
        (Fault::WrongBytes, false, true),
        (status(403, None), true, false),
        (answer(404, unknown), true, false),
    ];
    for (fault, asks_again, forgets) in cases {
        let setup = setup();
        let memory = Arc::new(Notes::default());
        let client = Client::remembering(config(), memory.clone()).unwrap();
        client.check_login(&setup.registry.host()).await.unwrap();
        setup.registry.clear_log();
        setup
            .registry
            .inject(When::any().path("/_xebec/start/answer"), fault.clone());
        setup.registry.hide_native(true);
        assert!(ask(&client, &setup).await.is_none(), "{fault:?}");
        let is_known = memory.seen_native(&setup.registry.host()).is_some();
        assert_eq!(is_known, !forgets, "{fault:?}");
        start(&client, &setup).await;
        assert_eq!(log(&setup), [&["POST start"], &PLAIN[..]].concat(), "{fault:?}");
        assert!(ask(&client, &setup).await.is_none());
        let asked = log(&setup).len() - 1 - PLAIN.len();
        assert_eq!(asked, usize::from(asks_again), "{fault:?}");
    }
}

#[tokio::test]
async fn a_start_request_has_the_rights_of_a_pull() {
    let setup = setup_with(Options {
        access: Access::anonymous_tokens(Duration::from_secs(60)),
        ..Options::default()
    });
    let client = Client::new(config()).unwrap();
    client
        .referrers(&repository(&setup.registry), &setup.manifest, None)
        .await
        .unwrap();
    setup.registry.clear_log();
    setup.registry.expire_tokens();
    let answered = ask(&client, &setup).await.unwrap();
    start(&answered, &setup).await;
    let statuses: Vec<u16> = setup
        .registry
        .log()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [401, 200, 200], "refused, a token, and again");
}

/// Remembers as a file does, and counts the writes.
#[derive(Debug, Default)]
struct Notes {
    seen: Mutex<Option<(String, SystemTime)>>,
    writes: Mutex<Vec<bool>>,
}

impl RegistryMemory for Notes {
    fn lacked_referrers(&self, _: &str) -> Option<SystemTime> {
        None
    }

    fn saw_referrers(&self, _: &str, _: bool) {}

    fn seen_native(&self, server: &str) -> Option<SystemTime> {
        let seen = self.seen.lock();
        seen.as_ref()
            .filter(|(of, _)| of == server)
            .map(|(_, time)| *time)
    }

    fn saw_native(&self, server: &str, is: bool) {
        self.writes.lock().push(is);
        *self.seen.lock() = is.then(|| (server.to_owned(), SystemTime::now()));
    }
}

#[tokio::test]
async fn a_registry_that_was_seen_is_remembered() {
    let setup = setup();
    let memory = Arc::new(Notes::default());
    let client = || Client::remembering(config(), memory.clone()).unwrap();
    setup.registry.hide_native(true);
    start(&client(), &setup).await;
    assert!(memory.writes.lock().is_empty(), "a plain registry is not noted");
    setup.registry.hide_native(false);
    start(&client(), &setup).await;
    start(&client(), &setup).await;
    assert_eq!(*memory.writes.lock(), [true], "once, not for each answer");
    assert!(ask(&client(), &setup).await.is_some(), "another process knows it");
    // Without the header it is asked all the same, and forgotten when it does not answer.
    setup.registry.hide_native(true);
    assert!(ask(&client(), &setup).await.is_some());
    setup
        .registry
        .inject(When::any().path("/_xebec/start/answer"), status(404, None));
    assert!(ask(&client(), &setup).await.is_none());
    assert_eq!(*memory.writes.lock(), [true, false]);
    setup.registry.clear_log();
    assert!(ask(&client(), &setup).await.is_none());
    assert!(log(&setup).is_empty());
}

/// For a week, and it is noted anew each day.
#[tokio::test]
async fn what_is_remembered_gets_old() {
    let setup = setup();
    let memory = Arc::new(Notes::default());
    let hour = Duration::from_secs(60 * 60);
    let now = SystemTime::now();
    // Whether it counts, and whether the next answer renews it.
    for (seen, counts, is_renewed) in [
        (now - 23 * hour, true, false),
        (now - 25 * hour, true, true),
        (now - 167 * hour, true, true),
        (now - 169 * hour, false, true),
        // By a clock that was set back since.
        (now + hour, false, true),
    ] {
        *memory.seen.lock() = Some((setup.registry.host(), seen));
        memory.writes.lock().clear();
        let client = Client::remembering(config(), memory.clone()).unwrap();
        let service = client.native_service(&repository(&setup.registry));
        assert_eq!(service.is_some(), counts, "{seen:?}");
        client.check_login(&setup.registry.host()).await.unwrap();
        assert_eq!(!memory.writes.lock().is_empty(), is_renewed, "{seen:?}");
    }
}

#[tokio::test]
async fn settings_decide_whether_a_registry_is_asked_and_told() {
    let setup = setup();
    let memory = Arc::new(Notes::default());
    let host = setup.registry.host();
    let client = |text: &str| {
        let text = text.replace("HOST", &host);
        let registries = toml::from_str::<xebec_oci::ClientConfig>(&text)
            .unwrap()
            .registries;
        let config = xebec_oci::ClientConfig {
            registries,
            ..config()
        };
        Client::remembering(config, memory.clone()).unwrap()
    };
    client("").check_login(&host).await.unwrap();
    let repository = repository(&setup.registry);
    let may = |text: &str| {
        let service = client(text).native_service(&repository);
        service.map(|service| service.may_be_told())
    };
    assert_eq!(may(""), Some(false));
    assert_eq!(may("[registries.\"HOST\"]\ntell_held = true"), Some(true));
    assert_eq!(may("[registries.\"HOST\"]\nnative = false"), None);
    assert_eq!(
        may("[registries.\"other:5000\"]\nnative = false\ntell_held = true"),
        Some(false)
    );
}

/// The first that may say what a tag means is asked, and told only what itself may be told.
#[tokio::test]
async fn a_mirror_is_asked_in_place_of_its_registry() {
    let setup = setup();
    let mirrored = "registry.example";
    let client = |resolve_tags: bool, told: &str| {
        let mut config = config();
        let mirror = Mirror {
            url: format!("http://{}", setup.registry.host()),
            resolve_tags,
        };
        config.mirrors.insert(mirrored.to_owned(), vec![mirror]);
        let told = told.replace("MIRROR", &setup.registry.host());
        config.registries = toml::from_str::<xebec_oci::ClientConfig>(&told)
            .unwrap()
            .registries;
        Client::new(config).unwrap()
    };
    let repository = Repository::new(mirrored, NAME).unwrap();
    let seen = async |client: &Client| {
        let manifest = setup.manifest.to_string();
        client
            .manifest(&repository, &manifest, ACCEPT_IMAGE)
            .await
            .unwrap();
        let service = client.native_service(&repository)?;
        let may = service.may_be_told();
        service.ask(request("v1"), None).await.unwrap();
        Some(may)
    };
    assert_eq!(seen(&client(false, "")).await, None);
    let told = "[registries.\"registry.example\"]\ntell_held = true";
    assert_eq!(seen(&client(true, told)).await, Some(false));
    let told = "[registries.\"MIRROR\"]\ntell_held = true";
    assert_eq!(seen(&client(true, told)).await, Some(true));
    let off = "[registries.\"registry.example\"]\nnative = false";
    assert_eq!(seen(&client(true, off)).await, None);
}
