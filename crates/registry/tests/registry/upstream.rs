//! Images of an upstream that misbehaves: fetched once, verified, kept, and answered while the upstream is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use xebec_store::{Store, StoreConfig};
use xebec_testkit::image::Image;
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, LoggedRequest, Options, Place, When};
use xebec_upstream::{Immutable, UpstreamSettings, Upstreams};

use crate::images;
use crate::running::{OCI_MANIFEST, Running, artifact, code};

/// A registry whose `hub/…` is what `upstream` has.
pub(crate) async fn through(
    upstream: &FaultyRegistry,
    change: impl FnOnce(&mut UpstreamSettings),
) -> Running {
    let nothing: Immutable = Arc::new(|_, _| false);
    through_keeping(upstream, change, &nothing).await
}

/// The same, with immutable tags.
pub(crate) async fn through_keeping(
    upstream: &FaultyRegistry,
    change: impl FnOnce(&mut UpstreamSettings),
    immutable: &Immutable,
) -> Running {
    let mut settings = UpstreamSettings::new("hub", &upstream.host());
    settings.patience = Duration::from_secs(4);
    settings.wait = Duration::from_millis(300);
    change(&mut settings);
    let environment = |name: &str| (name == "PASSWORD").then(|| "secret".to_owned());
    Running::with(
        |_| {},
        |registry| {
            let arrived = Arc::new(Notify::new());
            let upstreams = Upstreams::new(&[settings], &registry.store, &arrived, environment).unwrap();
            registry.upstreams = upstreams.keeping(immutable);
        },
    )
    .await
}

/// As many bytes as nobody can compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

pub(crate) fn put(upstream: &FaultyRegistry, tag: &str, contents: &[u8]) -> Image {
    let image = images::image(contents);
    for blob in image.blobs() {
        upstream.put_blob("app", blob.bytes.clone());
    }
    upstream.put_manifest(
        "app",
        tag,
        &image.manifest.media_type,
        image.manifest.bytes.clone(),
    );
    image
}

pub(crate) fn layer_path(image: &Image) -> String {
    format!("/v2/hub/app/blobs/{}", image.layers[0].digest)
}

pub(crate) async fn bytes(answer: Response, status: StatusCode) -> Vec<u8> {
    assert_eq!(answer.status(), status);
    answer.bytes().await.unwrap().to_vec()
}

pub(crate) async fn json(answer: Response) -> Value {
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

pub(crate) fn gets<'a>(log: &'a [LoggedRequest], part: &str) -> Vec<&'a LoggedRequest> {
    let is_get = |request: &&LoggedRequest| request.head.method == "GET" && request.head.path.contains(part);
    log.iter().filter(is_get).collect()
}

/// Pulls manifest, configuration and layer as a client does.
pub(crate) async fn pull(registry: &Running, image: &Image, tag: &str) {
    let manifest = registry.get(&format!("/v2/hub/app/manifests/{tag}")).await;
    assert_eq!(bytes(manifest, StatusCode::OK).await, image.manifest.bytes);
    for blob in image.blobs() {
        let answer = registry.get(&format!("/v2/hub/app/blobs/{}", blob.digest)).await;
        assert_eq!(bytes(answer, StatusCode::OK).await, blob.bytes);
    }
}

/// A blob is the store's a moment after its last byte was sent.
pub(crate) async fn until_kept(registry: &Running, image: &Image) {
    let digest = image.layers[0].digest.to_string().parse().unwrap();
    let name = "hub/app".parse().unwrap();
    for _ in 0..500 {
        if registry
            .registry
            .store
            .peek_blob(&name, &digest)
            .await
            .unwrap()
            .is_some()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the layer never came");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_fetched_once_and_served_while_its_upstream_is_away() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(300_000));
    let registry = through(&upstream, |settings| settings.tag_ttl = Duration::ZERO).await;
    pull(&registry, &image, "v1").await;
    until_kept(&registry, &image).await;
    let log = upstream.log();
    assert_eq!(gets(&log, "/blobs/").len(), 2, "configuration and layer");
    assert_eq!(gets(&log, "/manifests/").len(), 1);
    upstream.set_down(true);
    pull(&registry, &image, "v1").await;
    let answer = registry.get("/v2/hub/app/manifests/v1").await;
    let warning = answer.headers()["warning"].to_str().unwrap();
    assert!(warning.contains("cannot be reached"), "{warning}");
    let missing = registry.get("/v2/hub/app/manifests/v2").await;
    assert_eq!(missing.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(missing.headers().contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_hangs_holds_nobody_up_who_can_be_answered() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", b"contents");
    let registry = through(&upstream, |settings| settings.tag_ttl = Duration::ZERO).await;
    pull(&registry, &image, "v1").await;
    upstream.inject(When::any(), Fault::Hang);
    // The first one waits for as long as the settings say, and finds out for all.
    let start = Instant::now();
    pull(&registry, &image, "v1").await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let start = Instant::now();
    for _ in 0..20 {
        pull(&registry, &image, "v1").await;
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_cut_goes_on_where_it_was_cut() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(2_000_000));
    let registry = through(&upstream, |_| {}).await;
    upstream.inject(When::blob().range(false).times(1), Fault::Truncate(500_000));
    upstream.inject(When::blob().range(true).times(1), Fault::Reset(400_000));
    let answer = registry.get(&layer_path(&image)).await;
    assert_eq!(bytes(answer, StatusCode::OK).await, image.layers[0].bytes);
    let log = upstream.log();
    let ranges: Vec<_> = gets(&log, "/blobs/")
        .into_iter()
        .map(|request| request.head.range.clone())
        .collect();
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert!(
        ranges[0].is_none() && ranges[1].is_some() && ranges[2].is_some(),
        "{ranges:?}"
    );
    until_kept(&registry, &image).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_the_upstream_is_passed_on_only_where_nothing_is_here() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", b"contents");
    put(&upstream, "v2", b"others");
    let registry = through(&upstream, |settings| settings.tag_ttl = Duration::ZERO).await;
    pull(&registry, &image, "v1").await;
    let limit = Fault::Status {
        code: 429,
        retry_after: Some("77".to_owned()),
    };
    upstream.inject(When::any(), limit);
    let answer = registry.get("/v2/hub/app/manifests/v2").await;
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((70..=78).contains(&after), "{after}");
    assert_eq!(code(answer).await, "TOOMANYREQUESTS");
    upstream.clear_log();
    let kept = registry.get("/v2/hub/app/manifests/v1").await;
    let warning = kept.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("limits requests"), "{warning}");
    assert_eq!(bytes(kept, StatusCode::OK).await, image.manifest.bytes);
    let again = registry.get("/v2/hub/app/manifests/v2").await;
    assert_eq!(again.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(
        upstream.log().is_empty(),
        "it is left alone for as long as it asked for"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_moved_is_noticed_when_its_time_is_over() {
    let upstream = FaultyRegistry::start().unwrap();
    let first = put(&upstream, "v1", b"first");
    // A busy machine takes longer for an answer than other tests wait.
    let registry = through(&upstream, |settings| {
        settings.tag_ttl = Duration::from_secs(4);
        settings.wait = Duration::from_secs(4);
    })
    .await;
    let path = "/v2/hub/app/manifests/v1";
    assert_eq!(
        bytes(registry.get(path).await, StatusCode::OK).await,
        first.manifest.bytes
    );
    let second = put(&upstream, "v1", b"second");
    assert_eq!(
        bytes(registry.get(path).await, StatusCode::OK).await,
        first.manifest.bytes
    );
    tokio::time::sleep(Duration::from_millis(4200)).await;
    assert_eq!(
        bytes(registry.get(path).await, StatusCode::OK).await,
        second.manifest.bytes
    );
    // Unchanged since: a question without a body, and no manifest.
    tokio::time::sleep(Duration::from_millis(4200)).await;
    upstream.clear_log();
    assert_eq!(
        bytes(registry.get(path).await, StatusCode::OK).await,
        second.manifest.bytes
    );
    let log = upstream.log();
    assert_eq!(gets(&log, "/manifests/").len(), 0);
    assert_eq!(log.len(), 1);
    // The first one is still there by its digest.
    let old = registry
        .get(&format!("/v2/hub/app/manifests/{}", first.manifest.digest))
        .await;
    assert_eq!(bytes(old, StatusCode::OK).await, first.manifest.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_kept_nowhere_and_never_sent_to_their_end() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(300_000));
    let registry = through(&upstream, |_| {}).await;
    upstream.inject(When::blob().times(1), Fault::WrongBytes);
    let answer = registry.get(&layer_path(&image)).await;
    assert!(
        answer.bytes().await.is_err(),
        "the client must see that the answer is not whole"
    );
    let digest = image.layers[0].digest.to_string().parse().unwrap();
    assert!(registry.registry.store.any_blob(&digest).await.unwrap().is_none());
    let answer = registry.get(&layer_path(&image)).await;
    assert_eq!(bytes(answer, StatusCode::OK).await, image.layers[0].bytes);
    // A manifest by digest, too.
    upstream.inject(When::manifest(), Fault::WrongBytes);
    let wrong = registry
        .get(&format!("/v2/hub/app/manifests/{}", image.manifest.digest))
        .await;
    assert_eq!(wrong.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_clients_are_one_to_the_upstream() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(400_000));
    let registry = through(&upstream, |_| {}).await;
    upstream.inject(When::any(), Fault::Delay(Duration::from_millis(200)));
    let pulls = (0..300).map(|_| async {
        let manifest = registry.get("/v2/hub/app/manifests/v1").await;
        assert_eq!(bytes(manifest, StatusCode::OK).await, image.manifest.bytes);
        let layer = registry.get(&layer_path(&image)).await;
        assert_eq!(bytes(layer, StatusCode::OK).await, image.layers[0].bytes);
    });
    join_all(pulls).await;
    let log = upstream.log();
    assert_eq!(gets(&log, "/blobs/").len(), 1);
    assert_eq!(gets(&log, "/manifests/").len(), 1);
    assert!(log.len() <= 5, "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_sent_what_has_come_so_far() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(600_000));
    let registry = through(&upstream, |_| {}).await;
    let slowly = Fault::Trickle {
        bytes_per_second: 200_000,
    };
    upstream.inject(When::blob(), slowly);
    let start = Instant::now();
    let mut first = registry.get(&layer_path(&image)).await;
    assert!(first.chunk().await.unwrap().is_some());
    assert!(
        start.elapsed() < Duration::from_millis(2500),
        "{:?}",
        start.elapsed()
    );
    // A client that comes later is sent the beginning at once, and a client that goes away stops nothing.
    let mut second = registry.get(&layer_path(&image)).await;
    let piece = second.chunk().await.unwrap().unwrap();
    assert_eq!(piece, image.layers[0].bytes[..piece.len()]);
    drop((first, second));
    until_kept(&registry, &image).await;
    assert_eq!(gets(&upstream.log(), "/blobs/").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_a_large_blob_does_not_wait_for_the_blob() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", &noise(4_000_000));
    let layer = &image.layers[0].bytes;
    let registry = through(&upstream, |_| {}).await;
    let slowly = Fault::Trickle {
        bytes_per_second: 1_000_000,
    };
    upstream.inject(When::blob().range(false), slowly);
    let range = layer.len() - 1000..layer.len() - 500;
    let start = Instant::now();
    let answer = registry
        .request(Method::GET, &layer_path(&image))
        .header("range", format!("bytes={}-{}", range.start, range.end - 1))
        .send()
        .await
        .unwrap();
    assert_eq!(bytes(answer, StatusCode::PARTIAL_CONTENT).await, layer[range]);
    assert!(
        start.elapsed() < Duration::from_millis(2500),
        "{:?}",
        start.elapsed()
    );
    // The whole comes behind it.
    until_kept(&registry, &image).await;
    let whole = registry.get(&layer_path(&image)).await;
    assert_eq!(bytes(whole, StatusCode::OK).await, *layer);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_lacks_is_asked_for_once_in_a_while() {
    let upstream = FaultyRegistry::start().unwrap();
    put(&upstream, "v1", b"contents");
    let registry = through(&upstream, |settings| {
        settings.negative_ttl = Duration::from_secs(3)
    })
    .await;
    for _ in 0..10 {
        let missing = registry.get("/v2/hub/app/manifests/none").await;
        assert_eq!(code(missing).await, "MANIFEST_UNKNOWN");
    }
    assert_eq!(upstream.count("/manifests/none"), 1);
    tokio::time::sleep(Duration::from_millis(3200)).await;
    let image = put(&upstream, "none", b"now it is there");
    pull(&registry, &image, "none").await;
    let blob = format!("/v2/hub/app/blobs/sha256:{}", "0".repeat(64));
    for _ in 0..3 {
        assert_eq!(code(registry.get(&blob).await).await, "BLOB_UNKNOWN");
    }
    assert_eq!(upstream.count("/blobs/sha256:000"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_to_the_upstream_and_nowhere_else() {
    let access = Access::Basic {
        username: "robot".to_owned(),
        password: "secret".to_owned(),
    };
    let upstream = FaultyRegistry::with(Options {
        access,
        redirect_blobs: Some(Duration::from_secs(60)),
        ..Options::default()
    })
    .unwrap();
    let image = put(&upstream, "v1", b"contents");
    let registry = through(&upstream, |settings| {
        settings.username = Some("robot".to_owned());
        settings.password_env = Some("PASSWORD".to_owned());
    })
    .await;
    pull(&registry, &image, "v1").await;
    let log = upstream.log();
    let (there, elsewhere): (Vec<_>, Vec<_>) = log
        .iter()
        .partition(|request| request.head.place == Place::Registry);
    assert!(there.iter().any(|request| request.head.authorization.is_some()));
    assert!(!elsewhere.is_empty());
    assert!(
        elsewhere
            .iter()
            .all(|request| request.head.authorization.is_none()),
        "{elsewhere:?}"
    );
    // Without them, it is refused, and not said to be missing.
    let stranger = through(&upstream, |_| {}).await;
    let answer = stranger.get("/v2/hub/app/manifests/v1").await;
    assert_eq!(code(answer).await, "DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_refers_to_an_image_comes_through_by_api_and_by_fallback_tag() {
    for referrers_api in [true, false] {
        let upstream = FaultyRegistry::with(Options {
            referrers_api,
            ..Options::default()
        })
        .unwrap();
        let image = put(&upstream, "v1", b"contents");
        let subject = image.manifest.digest.to_string().parse().unwrap();
        let config = upstream
            .put_blob("app", b"{}".to_vec())
            .to_string()
            .parse()
            .unwrap();
        let attached = artifact(&config, &subject, "a/b").to_string();
        let digest = upstream.put_manifest("app", &xebec_digest(&attached), OCI_MANIFEST, attached.clone());
        let entry = serde_json::json!({
            "mediaType": OCI_MANIFEST, "digest": digest.to_string(), "size": attached.len(), "artifactType": "a/b",
        });
        let list = serde_json::json!({
            "schemaVersion": 2, "mediaType": crate::running::OCI_INDEX, "manifests": [entry],
        });
        let tag = image.manifest.digest.to_string().replace(':', "-");
        if !referrers_api {
            upstream.put_manifest("app", &tag, crate::running::OCI_INDEX, list.to_string());
        }
        let registry = through(&upstream, |settings| settings.tag_ttl = Duration::ZERO).await;
        for _ in 0..2 {
            let path = format!("/v2/hub/app/referrers/{}?artifactType=a/b", image.manifest.digest);
            let listed = json(registry.get(&path).await).await;
            assert_eq!(listed["manifests"][0]["digest"], digest.to_string(), "{listed}");
            let tagged = json(registry.get(&format!("/v2/hub/app/manifests/{tag}")).await).await;
            assert_eq!(tagged["manifests"][0]["digest"], digest.to_string(), "{tagged}");
            let manifest = registry.get(&format!("/v2/hub/app/manifests/{digest}")).await;
            assert_eq!(bytes(manifest, StatusCode::OK).await, attached.as_bytes());
            // The second time, of what is here.
            upstream.set_down(true);
        }
    }
}

pub(crate) fn xebec_digest(text: &str) -> String {
    xebec_format::digest::Digest::of(text.as_bytes()).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_may_take_the_registry_for_a_mirror() {
    let upstream = FaultyRegistry::start().unwrap();
    let image = put(&upstream, "v1", b"contents");
    let registry = through(&upstream, |_| {}).await;
    let host = upstream.host().replace(':', "%3A");
    for path in [
        format!("/v2/app/manifests/v1?ns={host}"),
        "/hub/v2/app/manifests/v1".to_owned(),
    ] {
        assert_eq!(
            bytes(registry.get(&path).await, StatusCode::OK).await,
            image.manifest.bytes,
            "{path}"
        );
    }
    let other = registry.get("/v2/app/manifests/v1?ns=other.example").await;
    assert_eq!(other.status(), StatusCode::NOT_FOUND);

    // The name that the repository has here decides which callers may see that such a request failed.
    upstream.set_down(true);
    let paths = [
        format!("/v2/app/manifests/v2?ns={host}"),
        "/hub/v2/app/manifests/v2".to_owned(),
    ];
    for failed in join_all(paths.iter().map(|path| registry.get(path))).await {
        bytes(failed, StatusCode::SERVICE_UNAVAILABLE).await;
    }
    let entries = || registry.registry.activity.all().0;
    let deadline = Instant::now() + Duration::from_secs(20);
    while entries().len() < 2 {
        assert!(Instant::now() < deadline, "{:?}", entries());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for entry in entries() {
        assert_eq!(entry.repository.as_deref(), Some("hub/app"), "{entry:?}");
    }
}

/// Xebec sends it in lower case, and containerd as the user wrote it.
#[tokio::test]
async fn a_mirror_is_asked_by_its_host_in_upper_or_lower_case() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&StoreConfig::new(directory.path())).await.unwrap();
    let settings = UpstreamSettings::new("lan", "Registry.LAN");
    let upstreams = Upstreams::new(&[settings], &store, &Arc::new(Notify::new()), |_| None).unwrap();
    for query in ["ns=Registry.LAN", "ns=registry.lan"] {
        let path = upstreams.path("/v2/app/manifests/v1", query);
        assert_eq!(path.as_deref(), Some("/v2/lan/app/manifests/v1"), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_another_repository_is_used_only_if_the_upstream_has_the_blob_there() {
    let upstream = FaultyRegistry::start().unwrap();
    let registry = through(&upstream, |_| {}).await;
    let secret = registry.push_blob("private", b"secret").await;
    let path = format!("/v2/hub/app/blobs/{secret}");
    assert_eq!(code(registry.get(&path).await).await, "BLOB_UNKNOWN");
    upstream.put_blob("other", b"secret".to_vec());
    let path = format!("/v2/hub/other/blobs/{secret}");
    assert_eq!(bytes(registry.get(&path).await, StatusCode::OK).await, b"secret");
    assert_eq!(
        gets(&upstream.log(), "/other/blobs/").len(),
        0,
        "it is here already"
    );
}
