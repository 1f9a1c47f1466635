//! A registry on a small disk of its own: it keeps a reserve, so that what makes room again still works.
//!
//! The test starts its own program again in a mount namespace of its own, with a small file system there.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use tokio::sync::Notify;
use xebec_store::{CollectOptions, Digest};
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::running::{OCI_MANIFEST, Running};
use crate::upstream::{bytes, layer_path, noise, put};

/// Where the small disk is, for the program that runs there.
const DISK: &str = "XEBEC_TEST_SMALL_DISK";
const ROOM: u64 = 48 << 20;
const RESERVE: u64 = 16 << 20;
const BLOB: usize = 1 << 20;

/// Runs a test of this program once more on a disk of its own; false: this is that program, or there can be no such disk.
fn is_elsewhere(test: &str) -> bool {
    if std::env::var_os(DISK).is_some() {
        return false;
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=48m small \"$1\" || exit 77; shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    command
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(DISK, disk.path())
        .env("TMPDIR", disk.path());
    let output = command.output();
    let said = |output: &std::process::Output| {
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    match output {
        Ok(output) if output.status.success() => {
            assert!(said(&output).contains("1 passed"), "{}", said(&output))
        }
        Ok(output) if said(&output).contains("running 1 test") => panic!("{}", said(&output)),
        _ => eprintln!("SKIPPED: a file system of its own needs root, unshare(1) and mount(8)"),
    }
    true
}

fn free() -> u64 {
    let disk = std::env::var_os(DISK).unwrap();
    let stat = rustix::fs::statvfs(Path::new(&disk)).unwrap();
    stat.f_bavail * stat.f_frsize
}

async fn small(upstream: &FaultyRegistry) -> Running {
    let settings = UpstreamSettings::new("hub", &upstream.host());
    let store = |config: &mut xebec_store::StoreConfig| {
        config.reserve = RESERVE;
        config.grace = Duration::ZERO;
    };
    let with = |registry: &mut xebec_registry_server::state::Registry| {
        let arrived = Arc::new(Notify::new());
        registry.upstreams = Upstreams::new(&[settings], &registry.store, &arrived, |_| None).unwrap();
    };
    Running::over(store, |_| {}, with).await
}

async fn push(registry: &Running, content: &[u8]) -> Response {
    let digest = Digest::of(xebec_store::Algorithm::Sha256, content);
    let path = format!("/v2/app/blobs/uploads/?digest={digest}");
    let request = registry.request(Method::POST, &path).body(content.to_vec());
    request.send().await.unwrap()
}

fn blob(number: u64) -> Vec<u8> {
    let mut content = noise(BLOB);
    content[..8].copy_from_slice(&number.to_le_bytes());
    content
}

async fn is_refused(answer: Response) {
    assert_eq!(answer.status(), StatusCode::INSUFFICIENT_STORAGE);
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("DENIED") && text.contains("give the disk more room"),
        "{text}"
    );
}

/// Begins an upload when another program has taken what is left beside the reserve.
async fn begin_on_a_fuller_disk(registry: &Running) -> Response {
    let others = Path::new(&std::env::var_os(DISK).unwrap()).join("others");
    for number in 0..100 {
        let left = free().saturating_sub(RESERVE) + (64 << 10);
        std::fs::write(
            others.with_extension(number.to_string()),
            noise(usize::try_from(left).unwrap()),
        )
        .unwrap();
        let path = "/v2/app/blobs/uploads/";
        let answer = registry.request(Method::POST, path).send().await.unwrap();
        if answer.status() != StatusCode::ACCEPTED {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("uploads begin, and {} bytes are free", free());
}

/// Pushes until no more is taken.
async fn fill(registry: &Running) -> Vec<Digest> {
    let mut pushed = Vec::new();
    for number in 0..ROOM / BLOB as u64 {
        let content = blob(number);
        let answer = push(registry, &content).await;
        if answer.status() != StatusCode::CREATED {
            is_refused(answer).await;
            return pushed;
        }
        pushed.push(Digest::of(xebec_store::Algorithm::Sha256, &content));
    }
    panic!("all of it was taken, and {} bytes are free", free());
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_leave_the_reserve_and_deletions_make_room_again() {
    if is_elsewhere("small_disk::pushes_leave_the_reserve_and_deletions_make_room_again") {
        return;
    }
    let upstream = FaultyRegistry::start().unwrap();
    let registry = small(&upstream).await;
    let pushed = fill(&registry).await;
    assert!(pushed.len() > 10, "{}", pushed.len());
    assert!(free() > RESERVE - 4 * BLOB as u64, "{} bytes are free", free());
    // Nor does one begin, nor is a manifest taken, when what the last one left is gone and others have taken its room.
    is_refused(begin_on_a_fuller_disk(&registry).await).await;
    let manifest = registry.request(Method::PUT, "/v2/app/manifests/v1");
    let index =
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[]}";
    let manifest = manifest
        .header("content-type", crate::running::OCI_INDEX)
        .body(index);
    is_refused(manifest.send().await.unwrap()).await;
    // Blobs that are here can be read and deleted.
    for digest in &pushed {
        let path = format!("/v2/app/blobs/{digest}");
        assert_eq!(bytes(registry.get(&path).await, StatusCode::OK).await.len(), BLOB);
        let deleted = registry.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(deleted.status(), StatusCode::ACCEPTED);
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        registry
            .registry
            .store
            .collect(&CollectOptions::default())
            .await
            .unwrap();
    }
    assert_eq!(push(&registry, &blob(0)).await.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_comes_to_the_reserve_ends_there_and_leaves_nothing() {
    if is_elsewhere("small_disk::an_upload_that_comes_to_the_reserve_ends_there_and_leaves_nothing") {
        return;
    }
    let upstream = FaultyRegistry::start().unwrap();
    let registry = small(&upstream).await;
    let large = noise(usize::try_from(ROOM).unwrap());
    is_refused(push(&registry, &large).await).await;
    for _ in 0..500 {
        if free() > ROOM - RESERVE {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(free() > ROOM - RESERVE, "{} bytes are free", free());
    assert_eq!(registry.registry.store.usage("").await.unwrap().uploads, 0);
    assert_eq!(push(&registry, &blob(0)).await.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_of_an_upstream_that_has_no_room_is_passed_on() {
    if is_elsewhere("small_disk::a_blob_of_an_upstream_that_has_no_room_is_passed_on") {
        return;
    }
    let upstream = FaultyRegistry::start().unwrap();
    let registry = small(&upstream).await;
    // It would take twice its size: while it comes, and where it is kept.
    let large = put(&upstream, "large", &noise(20 << 20));
    let path = layer_path(&large);
    for _ in 0..2 {
        assert!(bytes(registry.get(&path).await, StatusCode::OK).await == large.layers[0].bytes);
    }
    let part = registry
        .request(Method::GET, &path)
        .header("range", "bytes=5-104");
    let part = bytes(part.send().await.unwrap(), StatusCode::PARTIAL_CONTENT).await;
    assert_eq!(part, large.layers[0].bytes[5..105]);
    let digest = large.layers[0].digest.to_string().parse().unwrap();
    assert_eq!(registry.registry.store.any_blob(&digest).await.unwrap(), None);
    assert!(free() > ROOM - RESERVE, "{} bytes are free", free());
    let manifest = registry.get("/v2/hub/app/manifests/large").await;
    assert_eq!(manifest.headers()["content-type"], OCI_MANIFEST);
    // One for which there is room is kept.
    let small = put(&upstream, "small", b"small");
    assert_eq!(
        bytes(registry.get(&layer_path(&small)).await, StatusCode::OK).await,
        small.layers[0].bytes
    );
    crate::upstream::until_kept(&registry, &small).await;
}
