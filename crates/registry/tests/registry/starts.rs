//! A start in one request: what is sent is what plain requests would bring, and no more than the caller may read.

mod service;

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xebec_policy::mode::Mode;
use xebec_registry_server::memory::Memory;
use xebec_registry_server::mode_file::ModeFile;
use xebec_registry_server::state::Registry;
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::auth::guard::World;
use crate::running::{OCI_INDEX, Running, code};
use crate::upstream;
use service::{Service, Started, ask, kinds, started};

/// The request of a service that the image runs by itself.
fn usual(reference: &str) -> Value {
    json!({"reference": reference, "platform": "linux/amd64", "service": {}})
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_start_needs_is_in_one_answer() {
    let registry = Running::start().await;
    let service = Service::push(&registry, "a", "v1").await;
    let started = started(&registry, "a", &usual("v1")).await;
    let expected = [
        "manifest v1",
        "referrers",
        "manifest recording",
        "manifest indexes",
        "pieces",
    ];
    assert_eq!(kinds(&service, &started), expected);
    started.is_as_plain_requests(&registry, "a").await;
    // The index of the first layer, the page of that, and a page of the second.
    assert_eq!(
        started.pieces(),
        [(0, service.index.len() as u64 + 200), (9000, 100)]
    );
    // By digest, and a second time, when the recording is known.
    let digest = service.image.to_string();
    let started = ask_again(&registry, &usual(&digest)).await;
    assert_eq!(kinds(&service, &started)[0], format!("manifest {digest}"));
    assert_eq!(kinds(&service, &started)[1..], expected[1..]);
}

async fn ask_again(registry: &Running, request: &Value) -> Started {
    let started = started(registry, "a", request).await;
    started.is_as_plain_requests(registry, "a").await;
    started
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_holds_is_left_out() {
    let registry = Running::start().await;
    let service = Service::push_listing_both(&registry, "a", "v1").await;
    let mut request = usual("v1");
    request["held"] = service.held(0, json!([0, 1]));
    let held = ask_again(&registry, &request).await;
    assert_eq!(held.pieces(), [(9000, 100)]);
    assert_eq!(kinds(&service, &held)[4..], ["blob index 1", "pieces"]);
    // Of both: now the index of the second layer, which no zone has, is not sent either.
    request["held"] = service.held(0, json!([5, 1]));
    request["held"][service.layers[1].to_string()] =
        service.held(1, json!([0, 9]))[service.layers[1].to_string()].clone();
    let held = ask_again(&registry, &request).await;
    assert_eq!(held.pieces(), [(service.index.len() as u64, 200)]);
    assert_eq!(held.blobs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_that_no_zone_has_are_sent_as_blobs() {
    let registry = Running::start().await;
    let service = Service::push(&registry, "a", "v1").await;
    // Of a command that nobody has recorded, there are no pages.
    let mut request = usual("v1");
    request["service"]["command"] = json!([service::hash("other")]);
    let other = ask_again(&registry, &request).await;
    let expected = [
        "manifest v1",
        "referrers",
        "manifest recording",
        "manifest indexes",
        "blob index 0",
    ];
    assert_eq!(kinds(&service, &other), expected);
    request["service"]["is_said_later"] = json!(true);
    assert!(!ask_again(&registry, &request).await.pieces().is_empty());
    // A host that asks for no service asks for the zone by itself.
    request.as_object_mut().unwrap().remove("service");
    let plain = ask_again(&registry, &request).await;
    assert_eq!(kinds(&service, &plain), expected[..4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_artifacts_is_sent_with_its_configuration() {
    let registry = Running::start().await;
    let (_, digest) = registry.push_image("a", "v1", b"layer").await;
    let answered = ask_again(&registry, &usual("v1")).await;
    let kinds: Vec<&str> = answered
        .parts
        .iter()
        .map(|(part, _)| service::kind(part))
        .collect();
    assert_eq!(kinds, ["manifest", "blob", "referrers"]);
    // An index, and the image of the platform.
    let entry = |platform: Value, digest: &str| json!({"mediaType": crate::running::OCI_MANIFEST, "digest": digest, "size": 1, "platform": platform});
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [
        entry(json!({"os": "linux", "architecture": "arm64"}), &digest.to_string()),
    ]});
    assert_eq!(registry.push_manifest("a", "all", &index).await.status(), 201);
    let mut request = usual("all");
    request["platform"] = json!("linux/arm64/v8");
    let answered = ask_again(&registry, &request).await;
    let names: Vec<&str> = answered.manifests().collect();
    assert_eq!(names, ["all", &digest.to_string()]);
    assert_eq!(answered.parts.len(), 4);
    // None for this one: the client sees that by the index.
    assert_eq!(ask_again(&registry, &usual("all")).await.parts.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_refused_as_by_plain_requests() {
    let registry = Running::start().await;
    registry.push_image("a", "v1", b"layer").await;
    let none = format!("sha256:{}", "0".repeat(64));
    for reference in ["none", &none, "..", "sha256:x"] {
        let plain = registry.get(&format!("/v2/a/manifests/{reference}")).await;
        let answer = ask(&registry, "a", &usual(reference)).await;
        // A client resolves `..` in a path by itself.
        if reference != ".." {
            assert_eq!(answer.status(), plain.status(), "{reference}");
            assert_eq!(answer.text().await.unwrap(), plain.text().await.unwrap());
        } else {
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        }
    }
    assert_eq!(
        code(ask(&registry, "none", &usual("v1")).await).await,
        "MANIFEST_UNKNOWN"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_none_are_refused() {
    let registry = Running::start().await;
    registry.push_image("a", "v1", b"layer").await;
    for (body, status) in [
        (String::new(), StatusCode::BAD_REQUEST),
        ("{}".to_owned(), StatusCode::BAD_REQUEST),
        (
            r#"{"reference": "v1", "platform": "linux"}"#.to_owned(),
            StatusCode::BAD_REQUEST,
        ),
        (
            r#"{"reference": "v1", "platform": "linux/amd64", "held": {"x": {}}}"#.to_owned(),
            StatusCode::BAD_REQUEST,
        ),
        (" ".repeat((1 << 20) + 1), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let request = registry
            .request(Method::POST, "/v2/a/_xebec/start/answer")
            .body(body);
        assert_eq!(request.send().await.unwrap().status(), status);
    }
    let wrong = registry.get("/v2/a/_xebec/start/answer").await;
    assert_eq!(wrong.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(wrong.headers()["allow"], "POST");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_find_the_service_by_a_header_and_by_discovery() {
    let registry = Running::start().await;
    registry.push_image("a", "v1", b"layer").await;
    for path in [
        "/v2/",
        "/v2/a/manifests/v1",
        "/v2/a/manifests/none",
        "/v2/x",
        "/v2/a/_xebec/start/answer",
    ] {
        assert_eq!(registry.get(path).await.headers()["xebec-native"], "1", "{path}");
    }
    assert!(
        !registry
            .get("/healthz")
            .await
            .headers()
            .contains_key("xebec-native")
    );
    for path in ["/v2/_oci/ext/discover", "/v2/a/_oci/ext/discover"] {
        let answer: Value = serde_json::from_str(&registry.get(path).await.text().await.unwrap()).unwrap();
        let extension = &answer["extensions"][0];
        assert_eq!(extension["name"], "_xebec");
        let endpoints = json!([
            "_xebec/start/answer",
            "_xebec/watch/changes",
            "_xebec/push/layers"
        ]);
        assert_eq!(extension["endpoints"], endpoints);
        assert!(extension["url"].as_str().unwrap().starts_with("https://"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_may_pull_get_an_answer() {
    let world = World::new();
    let registry = Running::with(|_| {}, |registry| registry.guard = world.guard()).await;
    let secret = ask(&registry, "ci/app", &usual("v1")).await;
    assert_eq!(secret.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(secret.headers()["xebec-native"], "1");
    let challenge = secret.headers()["www-authenticate"].to_str().unwrap();
    assert!(
        challenge.contains(r#"scope="repository:ci/app:pull""#),
        "{challenge}"
    );
    let as_anna = |path: &str| {
        registry
            .request(Method::POST, path)
            .basic_auth("anna", Some("secret"))
    };
    let denied = as_anna("/v2/ci/app/_xebec/start/answer")
        .body(usual("v1").to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(denied.status(), StatusCode::FORBIDDEN);
    let hidden = registry.get("/v2/ci/app/_oci/ext/discover").await;
    assert_eq!(hidden.status(), StatusCode::UNAUTHORIZED);
    // Anybody may pull this, though nobody but anna may push.
    let public = ask(&registry, "public/app", &usual("v1")).await;
    assert_eq!(code(public).await, "MANIFEST_UNKNOWN");
}

/// An artifact may name what its repository does not have.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_another_repository_is_sent() {
    let registry = Running::with(|_| {}, |registry| registry.settings.sparse = true).await;
    let service = Service::push(&registry, "secret", "v1").await;
    // The same image and artifacts in a repository that has none of the blobs.
    for (reference, manifest) in &service.manifests {
        let put = registry.request(Method::PUT, &format!("/v2/thief/manifests/{reference}"));
        let put = put
            .header("content-type", crate::running::OCI_MANIFEST)
            .body(manifest.clone());
        assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    }
    for _ in 0..2 {
        let stolen = started(&registry, "thief", &usual("v1")).await;
        stolen.is_as_plain_requests(&registry, "thief").await;
        let expected = [
            "manifest v1",
            "referrers",
            "manifest recording",
            "manifest indexes",
        ];
        assert_eq!(kinds(&service, &stolen), expected);
        // What another repository has is known by then.
        started(&registry, "secret", &usual("v1")).await;
    }
    // An artifact that only the other repository has is none of this image here.
    registry.push_blob("other", &service.config).await;
    let put = registry.request(Method::PUT, "/v2/other/manifests/v1");
    let put = put.header("content-type", crate::running::OCI_MANIFEST);
    assert_eq!(
        put.body(service.manifests[0].1.clone())
            .send()
            .await
            .unwrap()
            .status(),
        201
    );
    let other = started(&registry, "other", &usual("v1")).await;
    assert_eq!(
        kinds(&service, &other),
        ["manifest v1", "blob config", "referrers"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_outside_of_its_manifest_counts_where_the_repository_has_it() {
    let registry = Running::with(|_| {}, |registry| registry.settings.sparse = true).await;
    let service = Service::push_apart(&registry, "a", "v1").await;
    // In this order: what one repository lacks must not be remembered of the other.
    for (reference, manifest) in &service.manifests {
        let put = registry.request(Method::PUT, &format!("/v2/b/manifests/{reference}"));
        let put = put
            .header("content-type", crate::running::OCI_MANIFEST)
            .body(manifest.clone());
        assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    }
    // All but the recording.
    for blob in [&service.zone_content, &service.index] {
        registry.push_blob("b", blob).await;
    }
    let without = [
        "manifest v1",
        "referrers",
        "manifest recording",
        "manifest indexes",
        "blob index 0",
    ];
    let started_there = async || kinds(&service, &started(&registry, "b", &usual("v1")).await);
    assert_eq!(started_there().await, without);
    let apart = started(&registry, "a", &usual("v1")).await;
    apart.is_as_plain_requests(&registry, "a").await;
    let expected = [
        "manifest v1",
        "referrers",
        "manifest recording",
        "manifest indexes",
        "blob recording",
        "pieces",
    ];
    assert_eq!(kinds(&service, &apart), expected);
    // What is known of the other repository by now must not count here.
    assert_eq!(started_there().await, without);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_registry_answers_starts() {
    let mut file = std::path::PathBuf::new();
    let registry = Running::with(
        |_| {},
        |registry| {
            file = registry.store.config().root.join("mode");
            registry.mode = ModeFile::new(file.clone(), Mode::default());
        },
    )
    .await;
    registry.push_image("a", "v1", b"layer").await;
    let until = async |mode: &str, path: &str, status: StatusCode| {
        std::fs::write(&file, mode).unwrap();
        let begun = Instant::now();
        while registry
            .request(Method::POST, path)
            .send()
            .await
            .unwrap()
            .status()
            != status
        {
            assert!(begun.elapsed() < Duration::from_secs(30), "{mode} does not count");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(
        "read-only",
        "/v2/a/blobs/uploads/",
        StatusCode::METHOD_NOT_ALLOWED,
    )
    .await;
    assert_eq!(started(&registry, "a", &usual("v1")).await.parts.len(), 3);
    until(
        "maintenance",
        "/v2/a/_xebec/start/answer",
        StatusCode::SERVICE_UNAVAILABLE,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_counts_as_pulls() {
    let told = service::Told::default();
    let registry = Running::with(|_| {}, |registry| registry.listeners.push(told.listener())).await;
    let service = Service::push(&registry, "a", "v1").await;
    assert_eq!(told.events(), [""; 0]);
    let started = started(&registry, "a", &usual("v1")).await;
    let zone = service.zone.to_string();
    let size: u64 = started.pieces().iter().map(|(_, length)| length).sum();
    let mut expected = vec![format!("pull-manifest {} v1", service.image)];
    expected.extend(
        started
            .manifests()
            .skip(1)
            .map(|digest| format!("pull-manifest {digest} ")),
    );
    expected.push(format!("pull-blob {zone} {size}"));
    assert_eq!(told.events(), expected);
    let store = &registry.registry.store;
    store.write_pulls().await.unwrap();
    let (repository, tag) = ("a".parse().unwrap(), "v1".parse().unwrap());
    assert_ne!(store.tag(&repository, &tag).await.unwrap().unwrap().pulled, 0);
    let metrics = registry.get("/metrics").await.text().await.unwrap();
    let line = r#"xebec_registry_requests_total{kind="start",method="POST",status="200"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_an_upstream_comes_with_a_start() {
    let there = FaultyRegistry::start().unwrap();
    let image = upstream::put(&there, "v1", b"contents");
    let registry = upstream::through(&there, |_| {}).await;
    let first = started(&registry, "hub/app", &usual("v1")).await;
    assert_eq!(first.manifests().collect::<Vec<_>>(), ["v1"]);
    assert_eq!(first.parts[0].1, image.manifest.bytes);
    let plain = registry.get("/v2/hub/app/manifests/none").await;
    let answer = ask(&registry, "hub/app", &usual("none")).await;
    assert_eq!(answer.status(), plain.status());
    assert_eq!(answer.text().await.unwrap(), plain.text().await.unwrap());
    // Once its blobs are here, they are sent, too.
    upstream::pull(&registry, &image, "v1").await;
    upstream::until_kept(&registry, &image).await;
    assert!(
        registry
            .get(&format!("/v2/hub/app/blobs/{}", image.config.digest))
            .await
            .status()
            .is_success()
    );
    let begun = Instant::now();
    while started(&registry, "hub/app", &usual("v1")).await.blobs() == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "the configuration is not kept"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    there.set_down(true);
    let away: Response = ask(&registry, "hub/app", &usual("other")).await;
    let plain = registry.get("/v2/hub/app/manifests/other").await;
    assert_eq!(away.status(), plain.status());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_stands_for_another_says_so_too() {
    let world = World::new();
    let registry = Running::with(
        |_| {},
        |registry| {
            let settings = UpstreamSettings::new("hub", "registry.lan");
            let upstreams = Upstreams::new(&[settings], &registry.store, &Arc::default(), |_| None);
            registry.upstreams = upstreams.unwrap();
            registry.guard = world.guard();
        },
    )
    .await;
    for path in ["/hub/v2/", "/hub/v2/app/manifests/v1"] {
        assert_eq!(registry.get(path).await.headers()["xebec-native"], "1", "{path}");
    }
    // This is of the registry as a whole, as the question whether it is one.
    let discovery = registry.get("/v2/_oci/ext/discover?ns=registry.lan").await;
    assert_eq!(discovery.status(), registry.get("/v2/").await.status());
}

/// A client that reads nothing of earlier answers takes up its own memory: it waits for none here, and keeps no other start from its turn.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_no_memory_for_is_left_out_at_once() {
    let narrow = |registry: &mut Registry| {
        registry.memory = Memory::new(1 << 20, 1 << 10, Duration::from_secs(24 * 60 * 60));
    };
    let registry = Running::with(|_| {}, narrow).await;
    let service = Service::push(&registry, "a", "v1").await;
    let request = usual("v1");
    let started = tokio::time::timeout(Duration::from_secs(120), started(&registry, "a", &request));
    // It has taken all that there is for one client.
    assert_eq!(kinds(&service, &started.await.unwrap()), ["manifest v1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_goes_away_in_the_middle_leaves_nothing_behind() {
    let registry = Running::start().await;
    let service = Service::push_large(&registry, "a", "v1", 32 << 20).await;
    for _ in 0..3 {
        let mut stream = TcpStream::connect(registry.address).await.unwrap();
        let body = usual("v1").to_string();
        let head = format!(
            "POST /v2/a/_xebec/start/answer HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut some = [0; 4096];
        stream.read_exact(&mut some).await.unwrap();
        assert!(some.starts_with(b"HTTP/1.1 200"));
    }
    let begun = Instant::now();
    let under_way = || registry.registry.metrics.text(|_| {}).unwrap();
    while !under_way().contains("xebec_registry_requests_under_way 0\n") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", under_way());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let whole = started(&registry, "a", &usual("v1")).await;
    assert_eq!(kinds(&service, &whole).last().unwrap(), "pieces");
}
