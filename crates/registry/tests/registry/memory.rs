//! Manifests that come slowly, or that nobody reads, take no more memory than there is for them.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use xebec_registry_server::memory::Memory;
use xebec_store::Digest;

use crate::running::{OCI_MANIFEST, Running, artifact, code};

/// A registry with room for three large manifests, two of them of one client.
async fn narrow() -> Running {
    let memory = || Memory::new(12 << 20, 8 << 20, Duration::from_millis(300));
    let proxy = "127.0.0.1".parse().unwrap();
    Running::with(
        |settings| settings.proxies = vec![proxy],
        |registry| (registry.memory, registry.incoming) = (memory(), memory()),
    )
    .await
}

/// A connection that takes in little of what it is sent, and a request over it.
async fn ask(registry: &Running, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(registry.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Pushes a manifest of nearly 4 MiB, and says where it is.
async fn push_large(registry: &Running, config: &Digest, letter: &str) -> String {
    let mut manifest = artifact(config, config, letter);
    manifest["annotations"] = json!({"long": letter.repeat(4_100_000)});
    let answer = registry.push_manifest("a", letter, &manifest).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let digest = answer.headers()["docker-content-digest"].to_str().unwrap();
    format!("/v2/a/manifests/{digest}")
}

#[tokio::test]
async fn manifests_that_come_slowly_leave_no_room_for_more() {
    let registry = narrow().await;
    let config = registry.push_blob("a", b"{}").await;
    let manifest = artifact(&config, &config, "quick");
    let pushed = registry.push_manifest("a", "quick", &manifest).await;
    assert_eq!(pushed.status(), StatusCode::CREATED);
    let head = format!(
        "PUT /v2/a/manifests/slow HTTP/1.1\r\nHost: x\r\nContent-Type: {OCI_MANIFEST}\r\nContent-Length: {}\r\n\r\n{{",
        4 << 20
    );
    let slow = [ask(&registry, &head).await, ask(&registry, &head).await];
    let deadline = Instant::now() + Duration::from_secs(60);
    let refused = loop {
        let answer = registry.push_manifest("a", "quick", &manifest).await;
        if answer.status() != StatusCode::CREATED {
            break answer;
        }
        assert!(Instant::now() < deadline, "there is always room");
    };
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(code(refused).await, "UNAVAILABLE");
    // The pushes so far had one client's part of the room.
    let other = registry.request(Method::PUT, "/v2/a/manifests/other");
    let other = other.header("x-forwarded-for", "10.0.0.1");
    let other = other
        .header("content-type", OCI_MANIFEST)
        .body(manifest.to_string());
    assert_eq!(other.send().await.unwrap().status(), StatusCode::CREATED);
    // Manifests that go out have room of their own, and blobs are streamed.
    assert_eq!(
        registry.get("/v2/a/manifests/quick").await.status(),
        StatusCode::OK
    );
    registry.push_blob("a", b"another layer").await;
    drop(slow);
    while registry.push_manifest("a", "quick", &manifest).await.status() != StatusCode::CREATED {
        assert!(Instant::now() < deadline, "there is never room again");
    }
}

/// Beside two large ones, which take nearly all of a client's room.
#[tokio::test]
async fn a_small_manifest_needs_little_room() {
    let registry = narrow().await;
    let config = registry.push_blob("a", b"{}").await;
    let small = artifact(&config, &config, "small");
    let pushed = registry.push_manifest("a", "small", &small).await;
    assert_eq!(pushed.status(), StatusCode::CREATED);
    let mut reading = Vec::new();
    for letter in ["l", "m"] {
        let large = push_large(&registry, &config, letter).await;
        let mut large = ask(&registry, &format!("GET {large} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let mut status = [0; 12];
        large.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        reading.push(large);
    }
    for _ in 0..8 {
        let answer = registry.get("/v2/a/manifests/small").await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(!answer.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn who_reads_the_same_manifest_slowly_shares_it() {
    let registry = narrow().await;
    let config = registry.push_blob("a", b"{}").await;
    let mut paths = Vec::new();
    for letter in ["a", "b", "c"] {
        paths.push(push_large(&registry, &config, letter).await);
    }
    let mut reading = Vec::new();
    let begin = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut stream = ask(&registry, &request).await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (status, stream)
    };
    for _ in 0..20 {
        let (status, stream) = begin(&paths[0]).await;
        assert_eq!(&status, b"HTTP/1.1 200");
        reading.push(stream);
    }
    let (status, second) = begin(&paths[1]).await;
    assert_eq!(&status, b"HTTP/1.1 200");
    let (status, _) = begin(&paths[2]).await;
    assert_eq!(&status, b"HTTP/1.1 503");
    drop((reading, second));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = registry.request(Method::GET, &paths[2]).send().await.unwrap();
        if answer.status() == StatusCode::OK {
            assert_eq!(answer.bytes().await.unwrap().len() >> 20, 3);
            break;
        }
        assert!(Instant::now() < deadline, "there is never room again");
    }
}
