//! While nothing may be written, the registry itself writes nothing either.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use tokio::sync::Notify;
use xebec_indexing::{Indexer, IndexingSettings};
use xebec_policy::mode::Mode;
use xebec_registry_server::mode_file::ModeFile;
use xebec_registry_server::state::Registry;
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::running::Running;
use crate::upkeep::Serving;
use crate::upstream::{layer_path, pull, put, until_kept};
use crate::{commands, images, indexing};

/// A registry whose `hub/…` is what `upstream` has, and the file by which its mode is changed.
async fn through(upstream: &FaultyRegistry) -> (Running, PathBuf) {
    let mut settings = UpstreamSettings::new("hub", &upstream.host());
    settings.tag_ttl = Duration::ZERO;
    let mut file = PathBuf::new();
    let running = Running::with(
        |_| {},
        |registry| {
            let arrived = Arc::new(Notify::new());
            registry.upstreams = Upstreams::new(&[settings], &registry.store, &arrived, |_| None).unwrap();
            file = registry.store.config().root.join("mode");
            registry.mode = ModeFile::new(file.clone(), Mode::default());
        },
    )
    .await;
    (running, file)
}

/// The file is looked at once a second.
async fn after_a_look() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_an_upstream_in_read_only_mode() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", b"first");
    let (registry, mode) = through(&upstream).await;
    pull(&registry, &image, "v1").await;
    until_kept(&registry, &image).await;
    let other = put(&upstream, "v2", b"second");

    std::fs::write(&mode, "read-only: a disk is being replaced").unwrap();
    after_a_look().await;
    let before = upstream.log().len();
    pull(&registry, &image, "v1").await;
    let answer = registry.get("/v2/hub/app/manifests/v1").await;
    let warning = answer.headers()["warning"].to_str().unwrap();
    assert!(
        warning.contains("read-only now: a disk is being replaced"),
        "{warning}"
    );
    let digest = &other.manifest.digest;
    for path in [
        "/v2/hub/app/manifests/v2".to_owned(),
        format!("/v2/hub/app/manifests/{digest}"),
        layer_path(&other),
    ] {
        let answer = registry.get(&path).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(answer.headers()["retry-after"], "30");
        let text = answer.text().await.unwrap();
        assert!(text.contains("not fetched from its upstream meanwhile"), "{text}");
    }
    let listed = registry.get(&format!("/v2/hub/app/referrers/{digest}")).await;
    assert_eq!(listed.status(), StatusCode::OK);
    assert_eq!(upstream.log().len(), before, "the upstream is not asked");

    std::fs::remove_file(&mode).unwrap();
    after_a_look().await;
    pull(&registry, &other, "v2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_indexed_while_nothing_may_be_written() {
    let registry = Running::start().await;
    let store = registry.registry.store.clone();
    let image = images::image(b"contents");
    indexing::push(&registry, "team/app", "v1", &image).await;
    let file = store.config().root.join("mode");
    std::fs::write(&file, "read-only").unwrap();
    let mut other = Registry::new(store.clone());
    other.mode = ModeFile::new(file.clone(), Mode::default());
    let arrived = Arc::new(Notify::new());
    let indexer = Indexer::new(
        &IndexingSettings::default(),
        store.clone(),
        Upstreams::default(),
        arrived,
    );
    let running = tokio::spawn(Arc::new(indexer.unwrap().within(other.surroundings())).run());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.indexing_waits().await.unwrap(), 1);
    std::fs::remove_file(&file).unwrap();
    let begun = Instant::now();
    while indexing::listed(&store, "team/app", &image).await.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not indexed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_collected_while_nothing_may_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let (mode, file, log) = (
        root.join("mode"),
        directory.path().join("r.toml"),
        directory.path().join("log"),
    );
    std::fs::write(&mode, "maintenance").unwrap();
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[storage]\nroot = {root:?}\n[collection]\nevery = \"1s\""
    );
    std::fs::write(&file, text).unwrap();
    let mut serve = commands::program(&["serve", "--config", file.to_str().unwrap()]);
    let to = std::fs::File::create(&log).unwrap();
    let _serving = Serving(serve.stderr(to).spawn().unwrap());
    let until_said = async |what: &str| {
        let begun = Instant::now();
        while !std::fs::read_to_string(&log).unwrap().contains(what) {
            let text = std::fs::read_to_string(&log).unwrap();
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{what} is not in {text}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until_said("nothing is collected while nothing may be written").await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("collected what nothing refers to"), "{text}");
    std::fs::remove_file(&mode).unwrap();
    until_said("collected what nothing refers to").await;
}
