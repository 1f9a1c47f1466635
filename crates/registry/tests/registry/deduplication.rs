//! Each file is kept once: layers are taken apart after they have come, and clients get the same bytes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use xebec_dedup::{Cutting, Deduplicator, Done, Restorer, Settings};
use xebec_policy::mode::Mode;
use xebec_registry_server::config::Config;
use xebec_registry_server::deduplication::{Ahead, Background, DeduplicationSettings};
use xebec_registry_server::mode_file::ModeFile;
use xebec_registry_server::state::Registry;
use xebec_settings::size::Size;
use xebec_store::{CollectOptions, Digest, Store};
use xebec_testkit::compression::Compression;
use xebec_testkit::corpus::Numbers;
use xebec_testkit::tar::TarBuilder;

use crate::commands;
use crate::redirects::{self, S3};
use crate::running::{Running, image};

/// One of the bytes at which a restored part of a layer without compression ends.
const PART: usize = 4 << 20;
const FILES: &str = "file-of-another-layer";

/// A registry that takes blobs apart when a test says so.
pub(crate) struct World {
    pub(crate) registry: Running,
    restorer: Restorer,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings of the registry.
    pub(crate) async fn with(change: impl FnOnce(&mut Registry)) -> Self {
        let mut restorer = None;
        let registry = Running::over(
            |config| config.grace = Duration::ZERO,
            |_| {},
            |registry| {
                restorer = Some(restores(registry));
                change(registry);
            },
        );
        Self {
            registry: registry.await,
            restorer: restorer.unwrap(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.registry.registry.store
    }

    /// Pushes an image of these layers; gives their digests.
    pub(crate) async fn push(&self, repository: &str, layers: &[&[u8]]) -> Vec<Digest> {
        let config = self.registry.push_blob(repository, b"{}").await;
        let mut digests = Vec::new();
        for layer in layers {
            digests.push(self.registry.push_blob(repository, layer).await);
        }
        let mut manifest = image(&config, &digests[0], layers[0].len());
        let entries = digests.iter().zip(layers).map(|(digest, layer)| {
            let mut entry = manifest["layers"][0].clone();
            (entry["digest"], entry["size"]) = (digest.to_string().into(), layer.len().into());
            entry
        });
        manifest["layers"] = entries.collect::<Vec<_>>().into();
        let answer = self.registry.push_manifest(repository, "v1", &manifest).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        digests
    }

    /// Takes apart what waits, and removes the bytes that were pushed.
    pub(crate) async fn take_apart(&self) {
        take_apart(self.store()).await;
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            self.store().collect(&CollectOptions::default()).await.unwrap();
        }
    }

    async fn is_intact(&self, repository: &str, digest: &Digest) -> bool {
        let blob = self.store().peek_blob(&repository.parse().unwrap(), digest).await;
        blob.unwrap().unwrap().object.is_some()
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.registry.request(Method::GET, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }
}

/// Has the store of a registry restore what is not intact, and some of it ahead.
fn restores(registry: &mut Registry) -> Restorer {
    let directory = registry.store.config().root.join("restored");
    let restorer = Restorer::with_files(&settings(), &directory, 64 << 20).unwrap();
    registry.store.set_restorer(Arc::new(restorer.clone()));
    let ahead = Ahead::new(registry.store.clone(), restorer.clone());
    registry.listeners.push(ahead);
    registry.restorer = Some(restorer.clone());
    registry.deduplicates = true;
    restorer
}

pub(crate) fn settings() -> Settings {
    Settings {
        least_size: 1000,
        level: 1,
        ..Settings::default()
    }
}

pub(crate) async fn take_apart(store: &Store) {
    let deduplicator = Deduplicator::new(store.clone(), settings(), Arc::new(Notify::new()));
    while let Some((blob, done)) = deduplicator.work_once().await.unwrap() {
        assert_eq!(done, Done::Recorded, "{}", blob.digest);
    }
}

/// Text that compresses as documents do.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let words: Vec<String> = (0..300).map(|_| format!("{:x} ", numbers.next() >> 40)).collect();
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        text.extend_from_slice(words[numbers.below(words.len())].as_bytes());
    }
    text.truncate(length);
    text
}

/// A layer of some files of its own, and some that all layers have.
pub(crate) fn layer(own: u64, length: usize, compression: Compression) -> Vec<u8> {
    let mut tar = TarBuilder::new();
    for number in 0..3 {
        tar.file(format!("own-{number}"), text(own * 10 + number, length / 6));
        tar.file(format!("{FILES}-{number}"), text(1000 + number, length / 6));
    }
    compression.encode(&tar.into_bytes()).unwrap()
}

async fn bytes(answer: Response) -> Vec<u8> {
    answer.bytes().await.unwrap().to_vec()
}

pub(crate) fn blob_path(repository: &str, digest: &Digest) -> String {
    format!("/v2/{repository}/blobs/{digest}")
}

fn configured(text: &str) -> Result<DeduplicationSettings, String> {
    let config = Config::parse(text, Path::new("r.toml"), &|_| None);
    config
        .map(|config| config.deduplication)
        .map_err(|error| error.to_string())
}

#[test]
fn deduplication_is_off_by_default_and_wrong_values_are_named_with_their_line() {
    let usual = configured("").unwrap();
    assert_eq!((usual.enabled, usual.jobs, usual.keep_intact), (false, 1, false));
    assert_eq!((usual.least_size.0, usual.level), (64 << 10, 9));
    assert_eq!((usual.memory.0, usual.ahead.0), (512 << 20, 10 << 30));
    assert_eq!(usual.chunks, Cutting::Files);
    let set = "[deduplication]\nenabled = true\njobs = 3\nleast_size = \"1k\"\nchunks = \"contents\"\nlevel = 22\n\
               keep_intact = true\nmemory = \"1g\"\nahead = \"0\"";
    let set = configured(set).unwrap();
    assert_eq!((set.enabled, set.jobs, set.keep_intact), (true, 3, true));
    assert_eq!((set.least_size.0, set.level), (1 << 10, 22));
    assert_eq!((set.memory.0, set.ahead.0), (1 << 30, 0));
    assert_eq!(set.chunks, Cutting::Contents);
    for (line, part) in [
        ("chunks = \"bytes\"", "contents"),
        ("level = 23", "from 1 to 22"),
        ("level = 0", "from 1 to 22"),
        ("enabled = 1", "boolean"),
        ("jobs = -1", "-1"),
        ("least_size = \"small\"", "small"),
        ("memory = 7", "a text"),
        ("aheda = \"1g\"", "ahead"),
    ] {
        let error = configured(&format!("[deduplication]\nkeep_intact = true\n{line}")).unwrap_err();
        assert!(error.starts_with("r.toml:3: ") && error.contains(part), "{error}");
    }
}

/// Of a layer of several parts, each is made by itself, and ranges begin and end within them.
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_was_taken_apart_is_given_back_whole_and_in_parts() {
    let world = World::new().await;
    let layers = [
        layer(1, 2 * PART + PART / 2, Compression::Tar),
        layer(2, 300_000, Compression::Gzip(6)),
        layer(3, 300_000, Compression::Zstd),
    ];
    let digests = world
        .push("team/app", &layers.each_ref().map(Vec::as_slice))
        .await;
    world.take_apart().await;
    for (digest, layer) in digests.iter().zip(&layers) {
        assert!(!world.is_intact("team/app", digest).await);
        let path = blob_path("team/app", digest);
        let size = layer.len();
        let head = world.registry.request(Method::HEAD, &path).send().await.unwrap();
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(head.headers()["content-length"], size.to_string());
        let tag = format!("\"{digest}\"");
        for (name, value) in [
            ("etag", &tag),
            ("docker-content-digest", &digest.to_string()),
            ("accept-ranges", &"bytes".to_owned()),
        ] {
            assert_eq!(head.headers()[name], *value, "{name}");
        }
        let whole = world.get(&path, &[]).await;
        assert_eq!(whole.status(), StatusCode::OK);
        assert_eq!(whole.headers()["content-length"], size.to_string());
        assert!(bytes(whole).await == *layer, "{digest} has other bytes");
        let middle = size / 2;
        for (range, wanted) in [
            ("bytes=0-0".to_owned(), 0..1),
            (
                format!("bytes={}-{}", middle - 100, middle + 100),
                middle - 100..middle + 101,
            ),
            (
                format!("bytes={}-{}", PART.min(middle) - 1, PART.min(middle)),
                PART.min(middle) - 1..PART.min(middle) + 1,
            ),
            (format!("bytes={}-", size - 7), size - 7..size),
            ("bytes=-9".to_owned(), size - 9..size),
            (format!("bytes=5-{}", size * 2), 5..size),
        ] {
            let part = world.get(&path, &[("range", &range)]).await;
            assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT, "{range}");
            let told = format!("bytes {}-{}/{size}", wanted.start, wanted.end - 1);
            assert_eq!(part.headers()["content-range"], told);
            assert!(
                bytes(part).await == layer[wanted],
                "{range} of {digest} has other bytes"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_hold_for_a_layer_that_was_taken_apart() {
    let world = World::new().await;
    let layer = layer(1, 100_000, Compression::Gzip(6));
    let digest = world.push("team/app", &[&layer]).await.remove(0);
    world.take_apart().await;
    let (path, tag) = (blob_path("team/app", &digest), format!("\"{digest}\""));
    let same = [("range", "bytes=1-2"), ("if-range", &*tag)];
    let part = world.get(&path, &same).await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(bytes(part).await, layer[1..3]);
    let other = [("range", "bytes=1-2"), ("if-range", "\"another\"")];
    let whole = world.get(&path, &other).await;
    assert_eq!(whole.status(), StatusCode::OK);
    assert!(bytes(whole).await == layer, "other bytes");
    let known = world.get(&path, &[("if-none-match", &tag)]).await;
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    let outside = world
        .get(&path, &[("range", &format!("bytes={}-", layer.len()))])
        .await;
    assert_eq!(outside.status(), StatusCode::RANGE_NOT_SATISFIABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_was_taken_apart_is_mounted_pushed_again_and_deleted_like_any_other() {
    let world = World::new().await;
    let registry = &world.registry;
    let layer = layer(1, 100_000, Compression::Gzip(6));
    let digest = world.push("team/app", &[&layer]).await.remove(0);
    world.take_apart().await;
    let mount = format!("/v2/other/blobs/uploads/?mount={digest}&from=team/app");
    let mounted = registry.request(Method::POST, &mount).send().await.unwrap();
    assert_eq!(mounted.status(), StatusCode::CREATED);
    let before = world.store().space().await.unwrap();
    world.push("other", &[&layer]).await;
    world.take_apart().await;
    assert_eq!(world.store().space().await.unwrap(), before);
    assert!(!world.is_intact("other", &digest).await);
    for (repository, left) in [("team/app", "other"), ("other", "")] {
        let path = format!("/v2/{repository}/manifests/v1");
        let manifest = registry.get(&path).await;
        let manifest = manifest.headers()["docker-content-digest"].to_str().unwrap();
        let manifest = format!("/v2/{repository}/manifests/{manifest}");
        for path in [&manifest, &blob_path(repository, &digest)] {
            let deleted = registry.request(Method::DELETE, path).send().await.unwrap();
            assert_eq!(deleted.status(), StatusCode::ACCEPTED, "{path}");
            assert_eq!(registry.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
        }
        if !left.is_empty() {
            let read = registry.get(&blob_path(left, &digest)).await;
            assert!(bytes(read).await == layer, "other bytes");
        }
    }
    world.take_apart().await;
    let space = world.store().space().await.unwrap();
    assert_eq!((space.recipes, space.packs, space.chunks), (0, 0, 0), "{space:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sent_to_the_bucket_for_a_layer_that_was_taken_apart() {
    let Some(s3) = S3::start() else { return };
    let registry = s3
        .registry(|registry| {
            redirects::redirects(registry);
            restores(registry);
        })
        .await;
    let layer = layer(1, 100_000, Compression::Gzip(6));
    registry.push_image("team/app", "v1", &layer).await;
    let digest = Digest::of(xebec_store::Algorithm::Sha256, &layer);
    let path = blob_path("team/app", &digest);
    let intact = redirects::ask(&registry, Method::GET, &path, &[]).await;
    assert_eq!(intact.status(), StatusCode::TEMPORARY_REDIRECT);
    take_apart(&registry.registry.store).await;
    let answer = redirects::ask(&registry, Method::GET, &path, &[]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(bytes(answer).await == layer, "other bytes");
    let part = redirects::ask(&registry, Method::GET, &path, &[("range", "bytes=7-20")]).await;
    assert_eq!(
        redirects::header(&part, "content-range"),
        Some(&*format!("bytes 7-20/{}", layer.len()))
    );
    assert_eq!(bytes(part).await, layer[7..21]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_apart_while_nothing_may_be_written() {
    let world = World::new().await;
    let layer = layer(1, 200_000, Compression::Gzip(6));
    let digest = world.push("team/app", &[&layer]).await.remove(0);
    let file = world.store().config().root.join("mode");
    std::fs::write(&file, "read-only").unwrap();
    let mut other = Registry::new(world.store().clone());
    other.mode = ModeFile::new(file.clone(), Mode::default());
    let settings = DeduplicationSettings {
        least_size: Size(1000),
        level: 1,
        ..DeduplicationSettings::default()
    };
    let background = Background::within(&other, &settings, None);
    let running = tokio::spawn(background.run());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(world.is_intact("team/app", &digest).await);
    assert_eq!(world.store().space().await.unwrap().waiting, 2);
    std::fs::remove_file(&file).unwrap();
    until("it is taken apart", async || {
        !world.is_intact("team/app", &digest).await
    })
    .await;
    running.abort();
    let read = world.get(&blob_path("team/app", &digest), &[]).await;
    assert!(bytes(read).await == layer, "other bytes");
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client that has pulled a layer has it: of a manifest that it asks for, the other layers are restored ahead.
#[tokio::test(flavor = "multi_thread")]
async fn layers_are_restored_ahead_when_their_manifest_is_pulled_but_for_those_that_the_client_has() {
    let world = World::new().await;
    let (had, new) = (
        layer(1, 200_000, Compression::Gzip(6)),
        layer(2, 300_000, Compression::Gzip(6)),
    );
    let digests = world.push("team/app", &[&had, &new]).await;
    world.take_apart().await;
    let (had_path, new_path) = (
        blob_path("team/app", &digests[0]),
        blob_path("team/app", &digests[1]),
    );
    assert!(bytes(world.get(&had_path, &[]).await).await == had);
    let blobs = || world.restorer.figures().blobs;
    assert_eq!((blobs().hit, blobs().missed), (0, 1));
    assert_eq!(world.restorer.figures().file_bytes, 0);
    world.registry.get("/v2/team/app/manifests/v1").await;
    until("the layer is restored", async || {
        world.restorer.figures().file_bytes > 0
    })
    .await;
    assert!(bytes(world.get(&new_path, &[]).await).await == new);
    assert_eq!((blobs().hit, blobs().missed), (1, 1));
    let part = world.get(&new_path, &[("range", "bytes=11-99")]).await;
    assert_eq!(bytes(part).await, new[11..100]);
    assert_eq!((blobs().hit, blobs().missed), (2, 1));
    // The other one was not restored meanwhile.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.restorer.figures().file_bytes, new.len() as u64);
    assert!(bytes(world.get(&had_path, &[]).await).await == had);
    assert_eq!((blobs().hit, blobs().missed), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn space_says_what_is_saved_and_why_blobs_stay_as_they_were_pushed() {
    let world = World::new().await;
    let layers = [
        layer(1, 200_000, Compression::Gzip(6)),
        layer(2, 200_000, Compression::Gzip(6)),
    ];
    world
        .push("team/app", &layers.each_ref().map(Vec::as_slice))
        .await;
    // Neither is what it begins as.
    let broken = [&[0x1f, 0x8b, 8][..], &[7; 5000]].concat();
    world.registry.push_image("team/broken", "v1", &broken).await;
    let deduplicator = Deduplicator::new(world.store().clone(), settings(), Arc::new(Notify::new()));
    let mut kept = 0;
    while let Some((_, done)) = deduplicator.work_once().await.unwrap() {
        kept += usize::from(matches!(done, Done::Kept(_)));
    }
    assert_eq!(kept, 1);
    let pushed = layers[0].len() + layers[1].len() + broken.len() + 2;
    let root = world.store().config().root.clone();
    let root = root.to_str().unwrap();
    let (told, code) = commands::run(&["space", "--root", root, "--json"]).await;
    assert_eq!(code, 0, "{told}");
    let told: Value = serde_json::from_str(&told).unwrap();
    let figure = |name: &str| told[name].as_u64().unwrap();
    assert_eq!((figure("blobs"), figure("blob_bytes")), (4, pushed as u64));
    assert_eq!((figure("recipes"), figure("intact"), figure("small")), (2, 2, 1));
    assert_eq!(figure("intact_bytes"), broken.len() as u64 + 2);
    // Of twelve files, three are in both.
    assert_eq!((figure("chunks"), figure("waiting")), (9, 0));
    assert!(figure("chunk_bytes") < figure("plain_bytes"), "{told}");
    let stored = figure("intact_bytes") + figure("pack_bytes") + figure("recipe_bytes");
    assert_eq!(figure("stored_bytes"), stored);
    assert!(stored < pushed as u64, "{told}");
    assert_eq!(figure("kept_blobs"), 1);
    assert_eq!(told["kept"][0]["blobs"], 1);
    let reason = told["kept"][0]["reason"].as_str().unwrap();
    assert!(!reason.is_empty() && !reason.contains("sha256:"), "{reason}");
    let (said, code) = commands::run(&["space", "--root", root]).await;
    assert_eq!(code, 0, "{said}");
    for part in [
        "blobs as they were pushed: 4",
        "with 9 files, or parts of files",
        "recipes: 2",
        "1  blobs are too small for that",
        &format!("1  stay intact: {reason}"),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
