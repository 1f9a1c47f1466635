//! Tags below the prefix of an upstream that are not the upstream's to move.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::Immutable;

use crate::running::{OCI_MANIFEST, Running, artifact};
use crate::upstream::{bytes, put, through_keeping};

const PATH: &str = "/v2/hub/app/manifests/v1";

async fn pulled(registry: &Running) -> Vec<u8> {
    bytes(registry.get(PATH).await, StatusCode::OK).await
}

/// A registry that asks the upstream at each pull.
async fn asking(upstream: &FaultyRegistry, immutable: Immutable) -> Running {
    let change = |settings: &mut xebec_upstream::UpstreamSettings| {
        settings.tag_ttl = Duration::ZERO;
        settings.wait = Duration::from_secs(10);
    };
    through_keeping(upstream, change, &immutable).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_tag_stays_though_the_upstream_has_another() {
    let upstream = FaultyRegistry::start().unwrap();
    let theirs = put(&upstream, "v1", b"theirs");
    let registry = asking(&upstream, Arc::new(|_, _| false)).await;
    assert_eq!(pulled(&registry).await, theirs.manifest.bytes);
    let config = registry.push_blob("hub/app", b"{}").await;
    let subject = theirs.manifest.digest.to_string().parse().unwrap();
    let mine = artifact(&config, &subject, "a/b").to_string();
    let request = registry.request(Method::PUT, PATH);
    let request = request.header("content-type", OCI_MANIFEST).body(mine.clone());
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    upstream.clear_log();
    put(&upstream, "v1", b"later");
    for _ in 0..2 {
        assert_eq!(pulled(&registry).await, mine.as_bytes());
    }
    assert!(upstream.log().is_empty(), "it is not asked: {:?}", upstream.log());
    // Without the push it would have moved.
    let other = asking(&upstream, Arc::new(|_, _| false)).await;
    assert_ne!(pulled(&other).await, theirs.manifest.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_tag_stays_as_it_came() {
    let upstream = FaultyRegistry::start().unwrap();
    let first = put(&upstream, "v1", b"first");
    let immutable: Immutable =
        Arc::new(|repository, tag| repository.as_str() == "hub/app" && tag.as_str() == "v1");
    let registry = asking(&upstream, immutable).await;
    assert_eq!(pulled(&registry).await, first.manifest.bytes);
    let second = put(&upstream, "v1", b"second");
    put(&upstream, "v2", b"second");
    assert_eq!(pulled(&registry).await, first.manifest.bytes);
    // Others move as before.
    let path = "/v2/hub/app/manifests/v2";
    assert_eq!(
        bytes(registry.get(path).await, StatusCode::OK).await,
        second.manifest.bytes
    );
    let third = put(&upstream, "v2", b"third");
    assert_eq!(
        bytes(registry.get(path).await, StatusCode::OK).await,
        third.manifest.bytes
    );
}
