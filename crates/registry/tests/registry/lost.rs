//! Blobs whose objects are gone though their records are here: absent to clients, and fetched again.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use xebec_testkit::registry::FaultyRegistry;

use crate::running::{Running, code};
use crate::upstream::{bytes, layer_path, noise, pull, put, through, until_kept};

/// Where the object of a blob is.
async fn object(registry: &Running, digest: &str) -> PathBuf {
    let store = &registry.registry.store;
    let blob = store.any_blob(&digest.parse().unwrap()).await.unwrap().unwrap();
    store.config().root.join("objects").join(blob.object.unwrap())
}

async fn head(registry: &Running, path: &str) -> StatusCode {
    registry
        .request(Method::HEAD, path)
        .send()
        .await
        .unwrap()
        .status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_whose_object_is_gone_is_fetched_from_its_upstream_again() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(300_000));
    let registry = through(&upstream, |settings| settings.tag_ttl = Duration::from_secs(600)).await;
    pull(&registry, &image, "v1").await;
    until_kept(&registry, &image).await;
    std::fs::remove_file(object(&registry, &image.layers[0].digest.to_string()).await).unwrap();
    let answer = registry.get(&layer_path(&image)).await;
    assert_eq!(bytes(answer, StatusCode::OK).await, image.layers[0].bytes);
    until_kept(&registry, &image).await;
    // It is here from now on.
    upstream.set_down(true);
    assert_eq!(head(&registry, &layer_path(&image)).await, StatusCode::OK);
    let answer = registry.get(&layer_path(&image)).await;
    assert_eq!(bytes(answer, StatusCode::OK).await, image.layers[0].bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_whose_object_is_gone_is_absent_until_it_is_pushed_again() {
    let registry = Running::start().await;
    for finds_out in [Method::GET, Method::HEAD] {
        let content = format!("found out by {finds_out}");
        let digest = registry.push_blob("app", content.as_bytes()).await;
        let path = format!("/v2/app/blobs/{digest}");
        std::fs::remove_file(object(&registry, &digest.to_string()).await).unwrap();
        let answer = registry.request(finds_out, &path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert_eq!(code(registry.get(&path).await).await, "BLOB_UNKNOWN");
        assert_eq!(head(&registry, &path).await, StatusCode::NOT_FOUND);
        registry.push_blob("app", content.as_bytes()).await;
        assert_eq!(
            bytes(registry.get(&path).await, StatusCode::OK).await,
            content.as_bytes()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_whose_object_is_gone_is_not_mounted() {
    let registry = Running::start().await;
    let digest = registry.push_blob("from", b"bytes").await;
    let object = object(&registry, &digest.to_string()).await;
    let mount = |to: &str| format!("/v2/{to}/blobs/uploads/?mount={digest}&from=from");
    let answer = registry.request(Method::POST, &mount("a")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    std::fs::remove_file(object).unwrap();
    let answer = registry.request(Method::POST, &mount("b")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED, "the client is to send it");
}
