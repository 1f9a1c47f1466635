//! Blobs in a bucket, to which clients are sent if the operator wants that. The bucket is a real server's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use tokio::sync::Notify;
use xebec_events::{Event, EventKind, Listener};
use xebec_registry_server::state::Registry;
use xebec_store::{Algorithm, Digest, ObjectsConfig, StoreConfig};
use xebec_testkit::registry::FaultyRegistry;
use xebec_testkit::servers;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::auth::guard::World;
use crate::images;
use crate::running::{Running, code};

const BUCKET: &str = "blobs";
const LOGIN: (&str, &str) = ("xebec", "for tests only");
const LASTING: Duration = Duration::from_secs(900);

/// An S3 server, until this is dropped.
pub(crate) struct S3 {
    server: servers::Server,
    _directory: tempfile::TempDir,
}

impl S3 {
    /// Nothing, and a line that says so, if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = servers::s3_program() else {
            use std::io::Write;
            let said = "SKIPPED: redirects to S3: versitygw is not here; `make setup-test` installs it";
            let _ = writeln!(std::io::stderr(), "{said}");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let server = servers::s3(&program, &directory.path().join("s3"), BUCKET, LOGIN).unwrap();
        Some(Self {
            server,
            _directory: directory,
        })
    }

    /// A registry over it.
    pub(crate) async fn registry(&self, change: impl FnOnce(&mut Registry)) -> Running {
        self.registry_known_as(None, change).await
    }

    /// The same, whose clients know the server by another name.
    async fn registry_known_as(
        &self,
        public_endpoint: Option<String>,
        change: impl FnOnce(&mut Registry),
    ) -> Running {
        let objects = ObjectsConfig::S3 {
            endpoint: Some(self.server.address.clone()),
            public_endpoint,
            bucket: BUCKET.to_owned(),
            prefix: "some/prefix".to_owned(),
            region: "us-east-1".to_owned(),
            access_key: Some(LOGIN.0.to_owned()),
            secret_key: Some(LOGIN.1.to_owned()),
        };
        let store = |config: &mut StoreConfig| config.objects = objects;
        Running::over(store, |_| {}, change).await
    }
}

pub(crate) fn redirects(registry: &mut Registry) {
    registry.settings.redirect = Some(LASTING);
}

/// The answer to a client that follows no redirects.
pub(crate) async fn ask(
    registry: &Running,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Response {
    let client = Client::builder().no_proxy().redirect(Policy::none()).build();
    let mut request = client
        .unwrap()
        .request(method, format!("http://{}{path}", registry.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

pub(crate) fn header<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Pulls of blobs, as listeners are told of them: by their sizes.
#[derive(Default)]
struct Pulls(Mutex<Vec<u64>>);

impl Listener for Pulls {
    fn happened(&self, event: &Event) {
        if event.kind == EventKind::PullBlob {
            self.0.lock().extend(event.size);
        }
    }
}

#[tokio::test]
async fn a_client_is_sent_to_the_bucket_for_a_blob_and_a_part_of_it() {
    let Some(s3) = S3::start() else { return };
    let pulls = Arc::<Pulls>::default();
    let registry = s3
        .registry(|registry| {
            redirects(registry);
            registry.listeners.push(Arc::clone(&pulls) as _);
        })
        .await;
    let content: Vec<u8> = (0..6_000_000_u32).map(|at| (at / 7) as u8).collect();
    let digest = registry.push_blob("a", &content).await;
    let path = format!("/v2/a/blobs/{digest}");

    let answer = ask(&registry, Method::GET, &path, &[]).await;
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
    let address = header(&answer, "location").unwrap().to_owned();
    assert!(address.starts_with(&s3.server.address), "{address}");
    assert!(address.contains("X-Amz-Expires=900&"), "{address}");
    assert_eq!(
        header(&answer, "docker-content-digest"),
        Some(&*digest.to_string())
    );
    // Nobody else may have it from a cache, and the client not at its end.
    assert_eq!(header(&answer, "cache-control"), Some("private, max-age=450"));
    assert_eq!(answer.bytes().await.unwrap().len(), 0);
    assert_eq!(*pulls.0.lock(), [6_000_000]);

    // The bucket knows the address, without a login, and no other one.
    let read = registry.client.get(&address).send().await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), content);
    let forged = address.replace("X-Amz-Expires=900", "X-Amz-Expires=901");
    let forged = registry.client.get(forged).send().await;
    assert_eq!(forged.unwrap().status(), StatusCode::FORBIDDEN);

    // Clients go there by themselves, and ask for the same part again.
    let whole = registry.get(&path).await;
    assert_eq!(whole.bytes().await.unwrap(), content);
    let part = registry
        .request(Method::GET, &path)
        .header("range", "bytes=5000000-5000009")
        .send()
        .await
        .unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        header(&part, "content-range"),
        Some("bytes 5000000-5000009/6000000")
    );
    assert_eq!(part.bytes().await.unwrap(), content[5_000_000..5_000_010]);
    assert_eq!(*pulls.0.lock(), [6_000_000, 6_000_000, 10]);
}

/// The server is 127.0.0.1 for the registry, and localhost for clients.
#[tokio::test]
async fn clients_are_sent_to_the_name_that_they_reach_the_bucket_by() {
    let Some(s3) = S3::start() else { return };
    let known = s3.server.address.replace("127.0.0.1", "localhost");
    assert_ne!(known, s3.server.address);
    let registry = s3.registry_known_as(Some(known.clone()), redirects).await;
    let content = vec![7_u8; 6_000_000];
    let digest = registry.push_blob("a", &content).await;
    let path = format!("/v2/a/blobs/{digest}");
    let answer = ask(&registry, Method::GET, &path, &[]).await;
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
    let address = header(&answer, "location").unwrap().to_owned();
    assert!(
        address.starts_with(&format!("{known}/{BUCKET}/some/prefix/")),
        "{address}"
    );
    let read = registry.client.get(&address).send().await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), content);
    // It is signed for that name, and for no other.
    let other = address.replace(&known, &s3.server.address);
    let other = registry.client.get(other).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::FORBIDDEN);
    let whole = registry.get(&path).await;
    assert_eq!(whole.bytes().await.unwrap(), content);
}

#[tokio::test]
async fn what_needs_no_bytes_is_answered_here() {
    let Some(s3) = S3::start() else { return };
    let registry = s3.registry(redirects).await;
    let (_, manifest) = registry.push_image("a", "v1", b"layer").await;
    let digest = Digest::of(Algorithm::Sha256, b"layer");
    let (path, tag) = (format!("/v2/a/blobs/{digest}"), format!("\"{digest}\""));
    let head = ask(&registry, Method::HEAD, &path, &[]).await;
    assert_eq!(head.status(), StatusCode::OK);
    assert_eq!(header(&head, "content-length"), Some("5"));
    let known = ask(&registry, Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    let outside = ask(&registry, Method::GET, &path, &[("range", "bytes=5-")]).await;
    assert_eq!(header(&outside, "content-range"), Some("bytes */5"));
    assert_eq!(outside.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    let other = Digest::of(Algorithm::Sha256, b"other");
    let absent = ask(&registry, Method::GET, &format!("/v2/a/blobs/{other}"), &[]).await;
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);
    assert_eq!(code(absent).await, "BLOB_UNKNOWN");
    // The bucket has another name for the content.
    for name in ["if-range", "if-match"] {
        let part = [("range", "bytes=1-2"), (name, &tag)];
        let part = ask(&registry, Method::GET, &path, &part).await;
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT, "{name}");
        assert_eq!(part.bytes().await.unwrap(), "ay");
    }
    let manifest = ask(
        &registry,
        Method::GET,
        &format!("/v2/a/manifests/{manifest}"),
        &[],
    )
    .await;
    assert_eq!(manifest.status(), StatusCode::OK);
}

#[tokio::test]
async fn without_the_setting_or_a_bucket_all_bytes_come_from_here() {
    let directory = Running::with(|_| {}, redirects).await;
    let s3 = S3::start();
    let mut registries = vec![directory];
    if let Some(s3) = &s3 {
        registries.push(s3.registry(|_| {}).await);
    }
    for registry in &registries {
        let digest = registry.push_blob("a", b"layer").await;
        let answer = ask(registry, Method::GET, &format!("/v2/a/blobs/{digest}"), &[]).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.bytes().await.unwrap(), "layer");
    }
}

#[tokio::test]
async fn nobody_gets_an_address_without_the_right_to_pull() {
    let Some(s3) = S3::start() else { return };
    let world = World::new();
    let registry = s3
        .registry(|registry| {
            redirects(registry);
            registry.guard = world.guard();
        })
        .await;
    let (store, digest) = (&registry.registry.store, Digest::of(Algorithm::Sha256, b"layer"));
    for (repository, status) in [
        ("public/app", StatusCode::TEMPORARY_REDIRECT),
        ("ci/app", StatusCode::UNAUTHORIZED),
    ] {
        let name = repository.parse().unwrap();
        let id = store.begin_upload(&name).await.unwrap();
        let body = stream::iter([Ok(Bytes::from_static(b"layer"))]);
        store.append(&name, &id, None, body).await.unwrap();
        store.finish_upload(&name, &id, &digest).await.unwrap();
        let path = format!("/v2/{repository}/blobs/{digest}");
        let answer = ask(&registry, Method::GET, &path, &[]).await;
        assert_eq!(answer.status(), status, "{repository}");
        assert_eq!(
            header(&answer, "location").is_some(),
            status == StatusCode::TEMPORARY_REDIRECT
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_upstream_has_comes_through_here_until_it_is_kept() {
    let Some(s3) = S3::start() else { return };
    let upstream = FaultyRegistry::start().unwrap();
    let image = images::image(b"a layer of the upstream");
    let layer = &image.layers[0];
    upstream.put_blob("app", layer.bytes.clone());
    let registry = s3
        .registry(|registry| {
            redirects(registry);
            let (settings, arrived) = (
                UpstreamSettings::new("hub", &upstream.host()),
                Arc::new(Notify::new()),
            );
            registry.upstreams = Upstreams::new(&[settings], &registry.store, &arrived, |_| None).unwrap();
        })
        .await;
    let path = format!("/v2/hub/app/blobs/{}", layer.digest);
    let first = ask(&registry, Method::GET, &path, &[]).await;
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(first.bytes().await.unwrap(), layer.bytes);
    // It is the store's a moment after its last byte was sent.
    for _ in 0..500 {
        let next = ask(&registry, Method::GET, &path, &[]).await;
        if next.status() == StatusCode::TEMPORARY_REDIRECT {
            assert_eq!(registry.get(&path).await.bytes().await.unwrap(), layer.bytes);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the layer is never read from the bucket");
}
