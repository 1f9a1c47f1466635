//! Reads of what has copies on several places, one of which was just seen to be away.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;

use crate::common::*;
use crate::replicas::*;
use xebec_store::*;

/// A server that refuses everything; how often it was asked.
fn refusing() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection
                .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    (address, asked)
}

/// A server of a bucket whose objects are these files, which stops in the middle of each but the mark, and closes nothing; how many objects it began.
fn stopping(objects: PathBuf) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut connection in listener.incoming().flatten() {
            stop_in_the_middle(&mut connection, &objects, &counted);
            open.push(connection);
        }
    });
    (address, begun)
}

fn stop_in_the_middle(connection: &mut TcpStream, objects: &Path, begun: &AtomicUsize) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read > 0) {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let key = path.trim_start_matches("/bucket/");
    let bytes = std::fs::read(objects.join(key)).unwrap();
    let (all, date) = (bytes.len(), "last-modified: Mon, 01 Jan 2024 00:00:00 GMT");
    let same = format!("connection: close\r\n{date}\r\netag: \"e\"");
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let answer = match range.map(|range| range.split_once('-').unwrap()) {
        None => format!("HTTP/1.1 200 OK\r\ncontent-length: {all}\r\n{same}\r\n\r\n"),
        Some((first, last)) => {
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let length = last + 1 - first;
            let range = format!("content-range: bytes {first}-{last}/{all}\r\ncontent-length: {length}");
            let head = format!("HTTP/1.1 206 Partial Content\r\n{range}\r\n{same}\r\n\r\n");
            connection.write_all(head.as_bytes()).unwrap();
            let sent = if key == "place" { length } else { length / 2 };
            begun.fetch_add(usize::from(key != "place"), Ordering::SeqCst);
            connection.write_all(&bytes[first..first + sent]).unwrap();
            return;
        }
    };
    let answer = answer.as_bytes();
    let is_head = method == "head";
    connection.write_all(answer).unwrap();
    if !is_head {
        connection.write_all(&bytes).unwrap();
    }
}

/// The store anew, with a bucket that refuses everything in place of `one`.
async fn without_one(store: &Store) -> (Store, Arc<AtomicUsize>) {
    let (endpoint, asked) = refusing();
    (with_one_at(store, endpoint).await, asked)
}

/// The store anew, with a bucket of this server in place of `one`.
async fn with_one_at(store: &Store, endpoint: String) -> Store {
    let mut config = store.config().clone();
    config.place_patience = Duration::from_secs(4);
    for place in &mut config.places {
        if place.name.as_str() == "one" {
            place.root = None;
            place.objects = ObjectsConfig::S3 {
                endpoint: Some(endpoint.clone()),
                public_endpoint: None,
                bucket: "bucket".to_owned(),
                prefix: String::new(),
                region: "region".to_owned(),
                access_key: Some("key".to_owned()),
                secret_key: Some("secret".to_owned()),
            };
        }
    }
    Store::open(&config).await.unwrap()
}

async fn placed(store: &Store, bytes: &[u8], placements: &[&str]) -> Blob {
    let digest = push_kept(store, bytes).await;
    let held = held(store, &digest).await;
    store.place(&held, &wanted(placements)).await.unwrap();
    store.any_blob(&digest).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_place_that_is_away_is_asked_last() {
    for (test, _elsewhere) in stores().await {
        let bytes = some_bytes(70_000);
        // What is elsewhere is whole, or in shards.
        for elsewhere in ["two", "two,three,four(2+1)"] {
            let blob = placed(&test.store, &bytes, &["one", elsewhere]).await;
            // A client asks whether it is there: HEAD.
            let (store, asked) = without_one(&test.store).await;
            assert!(store.is_whole(&blob).await.unwrap());
            let first = asked.load(Ordering::SeqCst);
            assert!(first > 0, "it is the first");
            assert!(store.is_whole(&blob).await.unwrap());
            assert_eq!(contents(&store, &blob).await, bytes);
            assert_eq!(asked.load(Ordering::SeqCst), first, "{elsewhere}");
            // A client reads it: GET.
            let (store, asked) = without_one(&test.store).await;
            assert_eq!(contents(&store, &blob).await, bytes);
            let first = asked.load(Ordering::SeqCst);
            assert!(first > 0, "it is the first");
            assert!(store.is_whole(&blob).await.unwrap());
            assert_eq!(contents(&store, &blob).await, bytes);
            assert_eq!(asked.load(Ordering::SeqCst), first, "{elsewhere}");
        }
    }
}

/// Shards on places that answer are enough.
#[tokio::test]
async fn a_shard_on_a_place_that_is_away_is_asked_for_last() {
    for (test, _elsewhere) in stores().await {
        let bytes = some_bytes(300_000);
        let blob = placed(&test.store, &bytes, &["one,two,three(2+1)"]).await;
        let (store, asked) = without_one(&test.store).await;
        assert_eq!(contents(&store, &blob).await, bytes);
        let first = asked.load(Ordering::SeqCst);
        assert!(first > 0, "data shards are the first");
        assert_eq!(contents(&store, &blob).await, bytes);
        assert!(store.is_whole(&blob).await.unwrap());
        assert_eq!(asked.load(Ordering::SeqCst), first);
    }
}

/// A disk of another host that was there when the object was opened.
#[tokio::test]
async fn a_place_that_hangs_in_the_middle_of_an_object_is_left_for_the_next_one() {
    for (test, elsewhere) in stores().await {
        let bytes = some_bytes(3_000_000);
        // What is elsewhere is whole, or in shards.
        for elsewhere_is in ["two", "two,three,four(2+1)"] {
            let blob = placed(&test.store, &bytes, &["one", elsewhere_is]).await;
            let (endpoint, begun) = stopping(elsewhere.path().join("one/objects"));
            let store = with_one_at(&test.store, endpoint).await;
            assert!(contents(&store, &blob).await == bytes, "{elsewhere_is}");
            assert_eq!(begun.load(Ordering::SeqCst), 1, "it is the first");
            assert!(range(&store, &blob, 7..2_000_000).await == bytes[7..2_000_000]);
            assert_eq!(begun.load(Ordering::SeqCst), 1, "it is asked last from then on");
        }
        // A shard that stops is given up, and the others are enough.
        let blob = placed(&test.store, &bytes, &["one,two,three(2+1)"]).await;
        let (endpoint, begun) = stopping(elsewhere.path().join("one/objects"));
        let store = with_one_at(&test.store, endpoint).await;
        assert!(contents(&store, &blob).await == bytes);
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        // Nobody else has it: the reader's answer breaks off.
        let alone = placed(&test.store, &bytes[..1_000_000], &["one"]).await;
        let mut pieces = store.read(&alone, 0..alone.size).await.unwrap();
        let mut got = Vec::new();
        let error = loop {
            match pieces.next().await.expect("it breaks off") {
                Ok(piece) => got.extend_from_slice(&piece),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), got.len()), (std::io::ErrorKind::TimedOut, 500_000));
        // A placer that copies it does not wait for ever either.
        let held = held(&store, &alone.digest).await;
        assert!(store.place(&held, &wanted(&["one", "two"])).await.is_err());
    }
}
