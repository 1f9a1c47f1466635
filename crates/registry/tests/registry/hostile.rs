//! Clients that want harm: they are refused with the right code, and others are served meanwhile.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use reqwest::{Body, Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::running::{OCI_MANIFEST, Running, code};

/// Sends bytes as they are, and says what comes back until the connection ends.
async fn raw(registry: &Running, request: &str) -> String {
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

async fn is_served(registry: &Running) {
    let answer = tokio::time::timeout(Duration::from_secs(5), registry.get("/v2/")).await;
    assert_eq!(answer.expect("others are served").status(), StatusCode::OK);
}

#[tokio::test]
async fn a_manifest_of_64_mib_is_refused_and_the_client_sees_why() {
    let registry = Running::start().await;
    let put = || {
        registry
            .request(Method::PUT, "/v2/a/manifests/latest")
            .header("content-type", OCI_MANIFEST)
    };
    let known = put().body(vec![b' '; 64 << 20]).send().await.unwrap();
    assert_eq!(known.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(code(known).await, "SIZE_INVALID");
    // Of a length that is not said before.
    let pieces = stream::iter((0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20]))));
    let unknown = put().body(Body::wrap_stream(pieces)).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::PAYLOAD_TOO_LARGE);
    is_served(&registry).await;
}

#[tokio::test]
async fn an_upload_without_end_is_ended() {
    let registry = Running::start().await;
    let answer = registry
        .request(Method::POST, "/v2/a/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let place = answer.headers()["location"].to_str().unwrap().to_owned();
    let piece = Bytes::from(vec![0; 1 << 20]);
    let endless = stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone()));
    let patch = registry
        .request(Method::PATCH, &place)
        .body(Body::wrap_stream(endless));
    // The client may still be writing when the connection ends.
    match patch.send().await {
        Ok(answer) => assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE),
        Err(error) => assert!(error.is_request() || error.is_body(), "{error:?}"),
    }
    is_served(&registry).await;
}

#[tokio::test]
async fn paths_that_lead_elsewhere_are_no_names() {
    let registry = Running::start().await;
    for path in [
        "/v2/../../etc/passwd/tags/list",
        "/v2/a/../b/tags/list",
        "/v2/%2e%2e/%2e%2e/tags/list",
        "/v2/a%2f..%2fb/manifests/latest",
        "/v2/a/blobs/sha256:../../../etc/passwd",
        "/v2/a/blobs/uploads/../../../x",
        "/v2/A/tags/list",
        "/v2/a\\b/tags/list",
    ] {
        let answer = raw(
            &registry,
            &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        )
        .await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(matches!(status, "400" | "404"), "{path}: {answer}");
    }
    let long = format!("/v2/{}/tags/list", "a".repeat(5000));
    assert!(
        raw(
            &registry,
            &format!("GET {long} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        )
        .await
        .contains("400")
    );
    is_served(&registry).await;
}

#[tokio::test]
async fn a_head_without_end_is_ended() {
    let registry = Running::with(|server| server.limits.header_size = 16 << 10, |_| {}).await;
    let large = format!(
        "GET /v2/ HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "a".repeat(100_000)
    );
    let answer = raw(&registry, &large).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let many = (0..1000)
        .map(|number| format!("X-{number}: a\r\n"))
        .collect::<String>();
    let answer = raw(&registry, &format!("GET /v2/ HTTP/1.1\r\nHost: x\r\n{many}\r\n")).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    is_served(&registry).await;
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let short = |server: &mut xebec_registry_server::server::ServerSettings| {
        server.limits.header_time = Duration::from_millis(500);
    };
    let registry = Running::with(short, |_| {}).await;
    for beginning in [
        "",
        "GET",
        "GET /v2/ HTTP/1.1\r\nHost: x\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let begun = Instant::now();
        raw(&registry, beginning).await;
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(5),
            "{beginning:?} held the connection for {took:?}"
        );
    }
    is_served(&registry).await;
}

#[tokio::test]
async fn a_body_that_stands_still_is_given_up_and_a_slow_one_is_not() {
    let short = |server: &mut xebec_registry_server::server::ServerSettings| {
        server.limits.idle = Duration::from_millis(800);
    };
    let registry = Running::with(short, |_| {}).await;
    let place = |answer: &reqwest::Response| answer.headers()["location"].to_str().unwrap().to_owned();
    let begun = registry
        .request(Method::POST, "/v2/a/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let still = format!(
        "PATCH {} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
        place(&begun)
    );
    let answer = raw(&registry, &still).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // Four times the limit in all, and never still for as long.
    let slow = stream::unfold(0, |number| async move {
        tokio::time::sleep(Duration::from_millis(400)).await;
        (number < 8).then(|| (Ok::<_, std::io::Error>(Bytes::from_static(b"x")), number + 1))
    });
    let begun = registry
        .request(Method::POST, "/v2/a/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let patch = registry
        .request(Method::PATCH, &place(&begun))
        .body(Body::wrap_stream(slow));
    let answer = patch.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    assert_eq!(answer.headers()["range"], "0-7");
}

#[tokio::test]
async fn one_client_has_so_many_connections_and_requests() {
    let few = |server: &mut xebec_registry_server::server::ServerSettings| {
        server.limits.connections_per_client = 8;
        server.limits.requests_per_client = 2;
    };
    let registry = Running::with(few, |_| {}).await;
    let begun = registry
        .request(Method::POST, "/v2/a/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let place = begun.headers()["location"].to_str().unwrap().to_owned();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(registry.address).await.unwrap();
        let head = format!("PATCH {place} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    // One of them may have been answered at once: an upload is continued by one request at a time.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut refused = 0;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(registry.address).await.unwrap();
        let _ = stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        let mut byte = [0; 1];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut byte))
            .await
            .unwrap();
        match read {
            Ok(1) => held.push(stream),
            _ => refused += 1,
        }
    }
    assert!(refused >= 12, "{refused} of 20 connections were refused");
    drop(held);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if registry.request(Method::GET, "/v2/").send().await.is_ok() {
            break;
        }
    }
    is_served(&registry).await;
}

#[tokio::test]
async fn requests_beyond_the_limit_are_told_to_come_again() {
    let registry = Running::with(|server| server.limits.requests_per_client = 1, |_| {}).await;
    let begun = registry
        .request(Method::POST, "/v2/a/blobs/uploads/")
        .send()
        .await
        .unwrap();
    let place = begun.headers()["location"].to_str().unwrap().to_owned();
    drop(begun);
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    let head = format!("PATCH {place} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut last = None;
    for _ in 0..100 {
        let answer = registry.get("/v2/").await;
        let status = answer.status();
        last = Some(answer);
        if status == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = last.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.headers().contains_key("retry-after"));
    assert_eq!(code(answer).await, "TOOMANYREQUESTS");
}

#[tokio::test]
async fn a_flood_of_tiny_uploads_leaves_the_registry_well() {
    let registry = Running::start().await;
    let uploads = (0..300).map(|_| {
        registry
            .request(Method::POST, "/v2/a/blobs/uploads/")
            .body("x")
            .send()
    });
    let answers = futures_util::future::join_all(uploads).await;
    for answer in answers {
        let status = answer.unwrap().status();
        assert!(matches!(status.as_u16(), 202 | 429), "{status}");
    }
    is_served(&registry).await;
}
