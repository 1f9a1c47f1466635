//! A registry with rights, immutable tags, an audit log and modes, asked as clients ask it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use xebec_events::audit::{Audit, AuditSettings, Pulls};
use xebec_policy::immutability::{Immutability, ImmutableRule};
use xebec_policy::mode::Mode;
use xebec_policy::quota::Quotas;
use xebec_registry_server::mode_file::ModeFile;
use xebec_store::{Algorithm, Digest};

use crate::auth::guard::{World, basic};
use crate::running::{OCI_INDEX, OCI_MANIFEST, Running, code};

/// A registry by the rules of [`World`], and its client with what it logs in by.
async fn registry(world: &World, authorization: Option<&str>) -> Running {
    let (mode, log) = (
        world.directory.path().join("mode"),
        world.directory.path().join("audit.log"),
    );
    let settings = AuditSettings {
        file: Some(log),
        pulls: Pulls::Manifests,
    };
    let audit = Audit::open(&settings).unwrap();
    let rule: ImmutableRule = toml::from_str("repositories = 'public/**'\ntags = ['v*']").unwrap();
    let mut running = Running::with(
        |_| {},
        |registry| {
            registry.guard = world.guard().observed_by(Arc::clone(&audit) as _);
            registry.listeners.push(audit);
            registry.immutability = Immutability::new(vec![rule]);
            registry.mode = ModeFile::new(mode, Mode::default());
        },
    )
    .await;
    if let Some(value) = authorization {
        running.client = client(value);
    }
    running
}

fn client(authorization: &str) -> Client {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, authorization.parse().unwrap());
    Client::builder()
        .no_proxy()
        .default_headers(headers)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_client_follows_the_challenge_and_pushes_with_the_token() {
    let world = World::new();
    let mut registry = registry(&world, None).await;
    let refused = registry
        .request(Method::POST, "/v2/public/app/blobs/uploads/")
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
    assert!(
        challenge.contains(r#"scope="repository:public/app:pull,push""#),
        "{challenge}"
    );
    assert_eq!(code(refused).await, "UNAUTHORIZED");

    let path = "/token?service=x&scope=repository:public/app:pull,push";
    let answer = registry
        .request(Method::GET, path)
        .basic_auth("anna", Some("secret"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let token: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let anonymous = std::mem::replace(
        &mut registry.client,
        client(&format!("Bearer {}", token["token"].as_str().unwrap())),
    );
    registry.push_image("public/app", "v1", b"layer").await;
    let elsewhere = registry
        .request(Method::POST, "/v2/public/other/blobs/uploads/")
        .send()
        .await
        .unwrap();
    assert_eq!(elsewhere.status(), StatusCode::UNAUTHORIZED);

    registry.client = anonymous;
    assert_eq!(
        registry.get("/v2/public/app/manifests/v1").await.status(),
        StatusCode::OK
    );
    for hidden in ["/v2/ci/app/manifests/v1", "/v2/ci/none/tags/list", "/v2/_catalog"] {
        assert_eq!(
            registry.get(hidden).await.status(),
            StatusCode::UNAUTHORIZED,
            "{hidden}"
        );
    }
    let wrong = registry
        .request(Method::GET, path)
        .basic_auth("anna", Some("wrong"))
        .send()
        .await
        .unwrap();
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    let form = registry
        .request(Method::POST, "/token")
        .body("x".repeat(100_000))
        .send()
        .await
        .unwrap();
    assert_eq!(form.status(), StatusCode::PAYLOAD_TOO_LARGE);

    let log = world.directory.path().join("audit.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    for _ in 0..1000 {
        if read().contains("\"pull-manifest\"") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let lines: Vec<Value> = read()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| {
        lines
            .iter()
            .find(|line| line["event"] == kind)
            .unwrap_or_else(|| panic!("{kind}: {lines:?}"))
    };
    assert_eq!(of("push-manifest")["user"], "anna");
    assert_eq!(of("push-manifest")["tags"][0], "v1");
    assert_eq!(of("pull-manifest").get("user"), None);
    // The refusal of a token that was shown is there; that of the first request is not.
    assert_eq!(of("refused")["needs"][0], "push public/other");
}

#[tokio::test]
async fn a_blob_is_mounted_only_from_where_the_caller_may_read() {
    let world = World::new();
    let anna = basic("anna", "secret");
    let mut registry = registry(&world, Some(&format!("Bearer {}", world.service_account()))).await;
    let hidden = registry.push_blob("ci/app", b"a secret").await;
    registry.client = client(&anna);
    let shown = registry.push_blob("public/base", b"no secret").await;
    for (from, digest, expected) in [
        ("&from=public/base", &shown, StatusCode::CREATED),
        ("&from=ci/app", &hidden, StatusCode::ACCEPTED),
        ("", &hidden, StatusCode::ACCEPTED),
        ("", &shown, StatusCode::CREATED),
    ] {
        let path = format!("/v2/public/app/blobs/uploads/?mount={digest}{from}");
        let answer = registry.request(Method::POST, &path).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{path}");
    }
    assert_eq!(
        registry
            .get(&format!("/v2/public/app/blobs/{hidden}"))
            .await
            .status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn an_immutable_tag_neither_moves_nor_goes() {
    let world = World::new();
    let mut settings = world.settings("");
    settings.administrators = vec![xebec_access::rights::Who::User("anna".to_owned())];
    let anna = basic("anna", "secret");
    let rule: ImmutableRule = toml::from_str("repositories = 'public/**'\ntags = ['v*']").unwrap();
    let guard = xebec_access::Guard::new(settings, world.directory.path(), false).unwrap();
    let mut registry = Running::with(
        |_| {},
        |registry| {
            registry.guard = guard;
            registry.immutability = Immutability::new(vec![rule]);
        },
    )
    .await;
    registry.client = client(&anna);
    let (manifest, digest) = registry.push_image("public/app", "v1", b"one").await;
    let again = registry.push_manifest("public/app", "v1", &manifest).await;
    assert_eq!(
        again.status(),
        StatusCode::CREATED,
        "the same again changes nothing"
    );
    let config = Digest::of(Algorithm::Sha256, b"{}");
    let other = registry.push_blob("public/app", b"two").await;
    let moved = registry
        .push_manifest("public/app", "v1", &crate::running::image(&config, &other, 3))
        .await;
    assert_eq!(moved.status(), StatusCode::FORBIDDEN);
    assert_eq!(code(moved).await, "DENIED");
    for path in [
        "/v2/public/app/manifests/v1".to_owned(),
        format!("/v2/public/app/manifests/{digest}"),
    ] {
        let answer = registry.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    // Nor does what it leads to.
    let (_, child) = registry.push_image("public/app", "latest", b"three").await;
    let entry = json!({"mediaType": OCI_MANIFEST, "digest": child.to_string(), "size": 1});
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]});
    registry.push_manifest("public/app", "v2", &index).await;
    let layer = Digest::of(Algorithm::Sha256, b"one");
    for path in [
        format!("/v2/public/app/manifests/{child}"),
        format!("/v2/public/app/blobs/{layer}"),
    ] {
        let answer = registry.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
        let text = answer.text().await.unwrap();
        assert!(text.contains("an image that stays"), "{text}");
        assert_eq!(registry.get(&path).await.status(), StatusCode::OK);
    }
    registry.push_image("public/app", "latest", b"one").await;
    registry.push_image("public/app", "latest", b"two").await;
    let answer = registry
        .request(Method::DELETE, "/v2/public/app/manifests/latest")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
}

#[tokio::test]
async fn the_file_mode_stops_writes_or_everything() {
    let world = World::new();
    let registry = registry(&world, Some(&basic("anna", "secret"))).await;
    registry.push_image("public/app", "latest", b"layer").await;
    let mode = world.directory.path().join("mode");
    let after_a_look = || tokio::time::sleep(std::time::Duration::from_millis(1100));

    std::fs::write(&mode, "read-only: moving house").unwrap();
    after_a_look().await;
    let refused = registry
        .request(Method::POST, "/v2/public/app/blobs/uploads/")
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(refused.text().await.unwrap().contains("moving house"));
    assert_eq!(
        registry.get("/v2/public/app/manifests/latest").await.status(),
        StatusCode::OK
    );
    let token = registry
        .request(Method::POST, "/token")
        .body("grant_type=password&username=anna&password=secret");
    assert_eq!(
        token.send().await.unwrap().status(),
        StatusCode::OK,
        "to log in writes nothing"
    );

    std::fs::write(&mode, "maintenance").unwrap();
    after_a_look().await;
    let refused = registry.get("/v2/public/app/manifests/latest").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(registry.get("/healthz").await.status(), StatusCode::OK);

    // Text that is not understood changes nothing.
    std::fs::write(&mode, "nonsense").unwrap();
    after_a_look().await;
    assert_eq!(
        registry.get("/v2/").await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    std::fs::remove_file(&mode).unwrap();
    after_a_look().await;
    assert_eq!(registry.get("/v2/").await.status(), StatusCode::OK);
}

/// A registry with 1,000 bytes for a team.
async fn narrow() -> Running {
    Running::with(
        |_| {},
        |registry| {
            let quota = toml::from_str("prefix = 'team'\nlimit = '1000'").unwrap();
            registry.quotas = Quotas::new(vec![quota]);
        },
    )
    .await
}

#[tokio::test]
async fn a_push_beyond_the_quota_is_refused_before_its_bytes_come() {
    let registry = narrow().await;
    registry.push_blob("team/app", &[1; 600]).await;
    registry.push_blob("other", &[2; 5000]).await;
    let digest = Digest::of(Algorithm::Sha256, &[3; 600]);
    let path = format!("/v2/team/other/blobs/uploads/?digest={digest}");
    let refused = registry
        .request(Method::POST, &path)
        .body(vec![3; 600])
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert!(refused.text().await.unwrap().contains("may hold 1000 bytes"));

    // Nobody says how long this one is.
    let begun = registry
        .request(Method::POST, "/v2/team/other/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let place = begun.headers()["location"].to_str().unwrap().to_owned();
    let pieces = futures_util::stream::iter((0..6).map(|_| Ok::<_, std::io::Error>(vec![3_u8; 100])));
    let streamed = reqwest::Body::wrap_stream(pieces);
    let refused = registry
        .request(Method::PATCH, &place)
        .body(streamed)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);

    registry.push_blob("team/other", &[4; 300]).await;
    // A blob that is there already needs no room.
    registry.push_blob("team/app", &[1; 600]).await;
}

/// Else a quota would be no limit for a client that pushes nothing else.
#[tokio::test]
async fn manifests_take_room_by_the_quota() {
    let registry = narrow().await;
    let config = registry.push_blob("team/app", b"{}").await;
    let numbered = |number: usize| {
        let mut manifest = crate::running::image(&config, &config, 2);
        manifest["annotations"] = json!({"number": number.to_string()});
        manifest
    };
    let length = numbered(1).to_string().len();
    let room = 998 / length;
    assert!(room >= 1, "{length}");
    for number in 0..room {
        let answer = registry
            .push_manifest("team/app", "kept", &numbered(number))
            .await;
        assert_eq!(answer.status(), StatusCode::CREATED, "{number}");
    }
    let refused = registry.push_manifest("team/app", "more", &numbered(9)).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(code(refused).await, "DENIED");
    // Another tag of what is there needs no room, and what goes makes some.
    let again = registry.push_manifest("team/app", "again", &numbered(0)).await;
    assert_eq!(again.status(), StatusCode::CREATED);
    let digest = Digest::of(Algorithm::Sha256, numbered(0).to_string().as_bytes());
    let delete = registry.request(Method::DELETE, &format!("/v2/team/app/manifests/{digest}"));
    assert_eq!(delete.send().await.unwrap().status(), StatusCode::ACCEPTED);
    let taken = registry.push_manifest("team/app", "more", &numbered(9)).await;
    assert_eq!(taken.status(), StatusCode::CREATED);
}

/// A sum takes as long as there is much: pushes must not pay for one each.
#[tokio::test]
async fn what_is_stored_is_added_up_now_and_then() {
    let quotas = Quotas::new(vec![toml::from_str("prefix = ''\nlimit = '1g'").unwrap()]);
    let of_registry = quotas.clone();
    let registry = Running::with(|_| {}, |registry| registry.quotas = of_registry).await;
    let begun = Instant::now();
    for number in 0..60_u8 {
        registry.push_blob("team/app", &[number; 100]).await;
    }
    let (sums, seconds) = (quotas.sums(), begun.elapsed().as_secs());
    assert!(sums <= seconds + 1, "{sums} sums in {seconds} s");
}

/// Else a quota would be no limit for a client that never finishes an upload.
#[tokio::test]
async fn an_upload_that_nobody_has_finished_takes_room() {
    let registry = narrow().await;
    let begun = registry
        .request(Method::POST, "/v2/team/app/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let place = begun.headers()["location"].to_str().unwrap().to_owned();
    let patch = |length| {
        registry
            .request(Method::PATCH, &place)
            .body(vec![1_u8; length])
            .send()
    };
    for wanted in [StatusCode::ACCEPTED, StatusCode::ACCEPTED, StatusCode::FORBIDDEN] {
        assert_eq!(patch(450).await.unwrap().status(), wanted);
    }
    let digest = Digest::of(Algorithm::Sha256, &[2; 200]);
    let path = format!("/v2/team/other/blobs/uploads/?digest={digest}");
    let other = || registry.request(Method::POST, &path).body(vec![2_u8; 200]).send();
    assert_eq!(other().await.unwrap().status(), StatusCode::FORBIDDEN);
    let given_up = registry.request(Method::DELETE, &place).send().await.unwrap();
    assert_eq!(given_up.status(), StatusCode::NO_CONTENT);
    assert_eq!(other().await.unwrap().status(), StatusCode::CREATED);
}

/// A body whose request was let in when its head came is taken to its end, however long it takes; the next request needs another token.
#[tokio::test]
async fn a_body_whose_token_ends_meanwhile_is_taken_to_its_end() {
    let world = World::new();
    let (token, guard) = world.brief(3);
    let mut registry = Running::with(|_| {}, |registry| registry.guard = guard).await;
    registry.client = client(&format!("Bearer {token}"));
    let begin = registry.request(Method::POST, "/v2/ci/app/blobs/uploads/");
    let begun = begin.send().await.unwrap();
    assert_eq!(begun.status(), StatusCode::ACCEPTED);
    let place = begun.headers()["location"].to_str().unwrap().to_owned();
    let content = vec![7; 200_000];
    let (early, late) = content.split_at(100_000);
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    let head = format!(
        "PATCH {place} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(early).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while registry.get(&place).await.status() != StatusCode::UNAUTHORIZED {
        assert!(Instant::now() < deadline, "the token never ends");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stream.write_all(late).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 202") && answer.contains("range: 0-199999"),
        "{answer}"
    );
    registry.client = client(&format!("Bearer {}", world.service_account()));
    let digest = Digest::of(Algorithm::Sha256, &content);
    let end = registry.request(Method::PUT, &format!("{place}?digest={digest}"));
    assert_eq!(end.send().await.unwrap().status(), StatusCode::CREATED);
}
