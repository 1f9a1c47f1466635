//! Hosts that watch a repository: what they are told, who may watch, and that nothing waits for them.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use xebec_indexing::IndexingSettings;
use xebec_oci::{Change, Client, ClientConfig, Repository, Watch};

use crate::auth::guard::World;
use crate::images;
use crate::indexing::{finish, indexer, push};
use crate::running::{Running, artifact, code};

/// For what should come at once.
const SOON: Duration = Duration::from_secs(30);

fn repository(registry: &Running, name: &str) -> Repository {
    let reference = format!("{}/{name}", registry.address).parse::<xebec_oci::Reference>();
    reference.unwrap().repository().clone()
}

/// A client that has seen the registry.
async fn acquainted(registry: &Running) -> Client {
    let client = Client::new(ClientConfig::default()).unwrap();
    client.check_login(&registry.address.to_string()).await.unwrap();
    client
}

async fn watch(registry: &Running, name: &str) -> Watch {
    let client = acquainted(registry).await;
    let service = client.native_service(&repository(registry, name)).unwrap();
    service.watch().await.unwrap()
}

async fn next(watch: &mut Watch) -> Option<Change> {
    let next = tokio::time::timeout(SOON, watch.next()).await;
    next.expect("the registry tells").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_hears_of_tags_and_of_what_refers_to_images() {
    let registry = Running::start().await;
    let mut watching = watch(&registry, "a").await;
    registry.push_image("b", "v1", b"another repository").await;
    let (manifest, digest) = registry.push_image("a", "v1", b"layer").await;
    let told = Change::Tagged {
        tags: vec!["v1".to_owned()],
        digest: digest.to_string().parse().unwrap(),
    };
    assert_eq!(next(&mut watching).await, Some(told));

    // Something that has no tag and refers to nothing is not worth a look.
    let answer = registry.push_manifest("a", &digest.to_string(), &manifest).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let config = registry.push_blob("a", b"{}").await;
    let referring = artifact(&config, &digest, "application/x-artifact");
    let own = xebec_store::Digest::of(xebec_store::Algorithm::Sha256, referring.to_string().as_bytes());
    let answer = registry.push_manifest("a", &own.to_string(), &referring).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let told = Change::Referred {
        subject: digest.to_string().parse().unwrap(),
    };
    assert_eq!(next(&mut watching).await, Some(told));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_hears_when_an_image_is_indexed() {
    let registry = Running::start().await;
    let indexer = indexer(&registry, &IndexingSettings::default());
    let indexer = indexer.within(registry.registry.surroundings());
    // An image without a configuration that can be read gets no index, so nothing refers to it.
    registry.push_image("a", "useless", b"no archive").await;
    let mut watching = watch(&registry, "a").await;
    finish(&indexer).await;
    let image = images::image(b"contents");
    push(&registry, "a", "v1", &image).await;
    finish(&indexer).await;
    let digest = image.manifest.digest;
    let tags = vec!["v1".to_owned()];
    assert_eq!(next(&mut watching).await, Some(Change::Tagged { tags, digest }));
    assert_eq!(
        next(&mut watching).await,
        Some(Change::Referred { subject: digest })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_ends_though_hosts_watch() {
    let mut registry = Running::start().await;
    let mut watching = watch(&registry, "a").await;
    registry.end();
    assert_eq!(next(&mut watching).await, None);
    drop(watching);
    registry.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_watch_who_may_pull() {
    let world = World::new();
    let registry = Running::with(|_| {}, |registry| registry.guard = world.guard()).await;
    let path = |name: &str| format!("/v2/{name}/{}", xebec_native::WATCH);
    let hidden = registry.get(&path("ci/app")).await;
    assert_eq!(hidden.status(), StatusCode::UNAUTHORIZED);
    let denied = registry
        .request(Method::GET, &path("ci/app"))
        .basic_auth("anna", Some("secret"))
        .send()
        .await
        .unwrap();
    assert_eq!(code(denied).await, "DENIED");
    let public = registry.get(&path("public/app")).await;
    assert_eq!(public.status(), StatusCode::OK);
    assert_eq!(public.headers()["content-type"], "text/event-stream");
    let posted = registry.request(Method::POST, &path("public/app"));
    assert_eq!(
        posted.send().await.unwrap().status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_watches_is_no_failure_of_the_host() {
    let registry = xebec_testkit::registry::FaultyRegistry::with(xebec_testkit::registry::Options {
        native: true,
        ..Default::default()
    })
    .unwrap();
    let client = Client::new(ClientConfig::default()).unwrap();
    client.check_login(&registry.host()).await.unwrap();
    let name = format!("{}/a", registry.host())
        .parse::<xebec_oci::Reference>()
        .unwrap();
    let service = client.native_service(name.repository()).unwrap();
    let error = service.watch().await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}
