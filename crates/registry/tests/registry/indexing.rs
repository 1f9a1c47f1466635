//! Layers are indexed when their manifest has come, in the background, once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use xebec_artifact::artifact::ARTIFACT_TYPE;
use xebec_format::layer::LayerIndex;
use xebec_indexing::{Indexer, IndexingSettings};
use xebec_store::{DatabaseConfig, RepositoryName, Tag};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Blob, Image, ImageBuilder};
use xebec_testkit::registry::FaultyRegistry;
use xebec_testkit::tar::TarBuilder;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::images;
pub(crate) use crate::referring::listed;
use crate::running::{Running, artifact};

pub(crate) fn indexer(registry: &Running, settings: &IndexingSettings) -> Indexer {
    let (store, upstreams) = (
        registry.registry.store.clone(),
        registry.registry.upstreams.clone(),
    );
    Indexer::new(settings, store, upstreams, Arc::new(Notify::new())).unwrap()
}

/// Does all that is due; how many manifests that were.
pub(crate) async fn finish(indexer: &Indexer) -> usize {
    let mut done = 0;
    while indexer.work_once().await.unwrap() {
        done += 1;
    }
    done
}

pub(crate) async fn push(registry: &Running, repository: &str, tag: &str, image: &Image) {
    for blob in image.blobs() {
        registry.push_blob(repository, &blob.bytes).await;
    }
    let answer = registry
        .request(reqwest::Method::PUT, &format!("/v2/{repository}/manifests/{tag}"))
        .header("content-type", &image.manifest.media_type)
        .body(image.manifest.bytes.clone())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
}

pub(crate) fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

pub(crate) async fn blob(registry: &Running, repository: &str, digest: impl std::fmt::Display) -> Vec<u8> {
    let answer = registry.get(&format!("/v2/{repository}/blobs/{digest}")).await;
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_pushed_gets_indexes_and_only_once() {
    let registry = Running::start().await;
    let indexer = indexer(&registry, &IndexingSettings::default());
    let image = images::image(b"contents");
    push(&registry, "a", "v1", &image).await;
    push(&registry, "a", "v2", &image).await;
    assert_eq!(registry.registry.store.indexing_waits().await.unwrap(), 1);
    // The image, and then the artifact itself, of which nothing is to be indexed.
    assert_eq!(finish(&indexer).await, 2);
    let artifacts = listed(&registry.registry.store, "a", &image).await;
    let [artifact] = artifacts.as_slice() else {
        panic!("{artifacts:?}");
    };
    let blobs = &artifact.layers[&image.layers[0].digest];
    let index = LayerIndex::decode(&blob(&registry, "a", blobs.index.digest).await).unwrap();
    assert_eq!(index.layer, image.layers[0].digest);
    assert!(index.diff_id.is_some());
    for (_, part) in blobs.parts() {
        assert_eq!(blob(&registry, "a", part.digest).await.len() as u64, part.size);
    }
    assert_eq!(finish(&indexer).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_done_after_a_restart() {
    let registry = Running::start().await;
    let store = registry.registry.store.clone();
    let image = images::image(b"contents");
    push(&registry, "a", "v1", &image).await;
    // A process took it and was killed.
    assert!(
        store
            .take_indexing(Duration::from_secs(3600))
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        store
            .take_indexing(Duration::from_secs(3600))
            .await
            .unwrap()
            .is_none()
    );
    assert!(matches!(store.config().database, DatabaseConfig::Embedded));
    let indexer = Arc::new(indexer(&registry, &IndexingSettings::default()));
    let working = tokio::spawn(indexer.run());
    for _ in 0..500 {
        if !listed(&store, "a", &image).await.is_empty() {
            working.abort();
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it was never indexed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_somebody_pushed_is_kept() {
    let registry = Running::start().await;
    let image = images::image(b"contents");
    push(&registry, "a", "v1", &image).await;
    let config = registry.push_blob("a", b"{}").await;
    let subject = image.manifest.digest.to_string().parse().unwrap();
    let own = artifact(&config, &subject, ARTIFACT_TYPE);
    assert_eq!(registry.push_manifest("a", "own", &own).await.status(), 201);
    finish(&indexer(&registry, &IndexingSettings::default())).await;
    let page = registry
        .registry
        .store
        .referrers(&name("a"), &subject, Some(ARTIFACT_TYPE), 10, None)
        .await
        .unwrap();
    assert_eq!(page.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_layer_is_noted_and_the_others_are_indexed() {
    let registry = Running::start().await;
    let store = registry.registry.store.clone();
    let broken = b"\x1f\x8b this is no gzip".to_vec();
    let broken = Blob::new(broken, "application/vnd.oci.image.layer.v1.tar+gzip");
    let mut tar = TarBuilder::new();
    tar.file("file", b"contents");
    let image = ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))
        .unwrap()
        .blob(broken, xebec_format::digest::Digest::of(b"whatever"))
        .build();
    push(&registry, "a", "v1", &image).await;
    let indexer = indexer(&registry, &IndexingSettings::default());
    finish(&indexer).await;
    let problems = store.indexing_problems(10).await.unwrap();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].problem.contains("gzip"), "{}", problems[0].problem);
    assert_eq!(listed(&store, "a", &image).await[0].layers.len(), 1);
    assert_eq!(finish(&indexer).await, 0, "it is not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_lies_hurts_its_own_image_only() {
    let registry = Running::start().await;
    let store = registry.registry.store.clone();
    let image = images::image(b"contents");
    let layer = &image.layers[0];
    let same = Blob::new(layer.bytes.clone(), &layer.media_type);
    let lies = ImageBuilder::new()
        .blob(same, xebec_format::digest::Digest::of(b"not its diff ID"))
        .build();
    push(&registry, "liar", "v1", &lies).await;
    let indexer = indexer(&registry, &IndexingSettings::default());
    finish(&indexer).await;
    assert_eq!(store.indexing_problems(10).await.unwrap().len(), 1);
    assert!(listed(&store, "liar", &lies).await.is_empty());
    push(&registry, "honest", "v1", &image).await;
    finish(&indexer).await;
    assert_eq!(listed(&store, "honest", &image).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_two_images_share_is_indexed_once() {
    let registry = Running::start().await;
    let store = registry.registry.store.clone();
    let image = images::image(b"contents");
    let indexer = indexer(&registry, &IndexingSettings::default());
    push(&registry, "a", "v1", &image).await;
    finish(&indexer).await;
    // Were it read again, it would have to be here.
    push(&registry, "b", "v1", &image).await;
    let layer = image.layers[0].digest.to_string().parse().unwrap();
    store.delete_blob(&name("b"), &layer).await.unwrap();
    finish(&indexer).await;
    assert_eq!(
        listed(&store, "b", &image).await,
        listed(&store, "a", &image).await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_signed_by_the_registrys_key() {
    let registry = Running::start().await;
    let store = registry.registry.store.clone();
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let path = directory.path().join("key.pem");
    std::fs::write(&path, key.serialize_pem()).unwrap();
    let settings = IndexingSettings {
        sign_key: Some(path),
        name: Some("registry.example:5000".to_owned()),
        ..IndexingSettings::default()
    };
    let nameless = IndexingSettings {
        name: None,
        ..settings.clone()
    };
    assert!(nameless.signer().is_err());
    let image = images::image(b"contents");
    push(&registry, "a", "v1", &image).await;
    finish(&indexer(&registry, &settings)).await;
    let subject = image.manifest.digest.to_string().parse().unwrap();
    let page = store
        .referrers(&name("a"), &subject, Some(ARTIFACT_TYPE), 1, None)
        .await
        .unwrap();
    let artifact: xebec_format::digest::Digest = page.items[0].digest.to_string().parse().unwrap();
    let tag: Tag = xebec_trust::signature_tag(artifact).parse().unwrap();
    let signatures = store.tagged_manifest(&name("a"), &tag).await.unwrap().unwrap();
    let signatures = xebec_trust::SignatureManifest::parse(&signatures.content).unwrap();
    let payload = blob(&registry, "a", signatures.signatures()[0].payload).await;
    let payload = xebec_trust::Payload::parse(&payload).unwrap();
    assert_eq!(payload.manifest, artifact);
    assert_eq!(payload.identity.as_str(), "registry.example:5000/a");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_comes_through_is_fetched_whole_and_indexed() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = images::image(&[7; 100_000]);
    for blob in image.blobs() {
        upstream.put_blob("app", blob.bytes.clone());
    }
    upstream.put_manifest(
        "app",
        "v1",
        &image.manifest.media_type,
        image.manifest.bytes.clone(),
    );
    let settings = UpstreamSettings::new("hub", &upstream.host());
    let registry = Running::with(
        |_| {},
        |registry| {
            let arrived = Arc::new(Notify::new());
            registry.upstreams = Upstreams::new(&[settings], &registry.store, &arrived, |_| None).unwrap();
        },
    )
    .await;
    // Somebody looks at the image, and reads none of it.
    assert_eq!(registry.get("/v2/hub/app/manifests/v1").await.status(), 200);
    finish(&indexer(&registry, &IndexingSettings::default())).await;
    assert_eq!(listed(&registry.registry.store, "hub/app", &image).await.len(), 1);
    upstream.set_down(true);
    assert_eq!(
        blob(&registry, "hub/app", image.layers[0].digest).await,
        image.layers[0].bytes
    );
}
