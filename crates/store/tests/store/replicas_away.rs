//! Reads of what has copies on several places, one of which was just seen to be away.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use crate::replicas::*;
use crate::slow_bucket::*;
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

/// The store anew, with a bucket that refuses everything in place of `one`.
async fn without_one(store: &Store) -> (Store, Arc<AtomicUsize>) {
    let (endpoint, asked) = refusing();
    (with_one_at(store, &endpoint).await, asked)
}

pub(crate) async fn placed(store: &Store, bytes: &[u8], placements: &[&str]) -> Blob {
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
            let bucket = SlowBucket::of(elsewhere.path().join("one/objects"));
            let store = with_one_at(&test.store, &bucket.endpoint).await;
            assert!(contents(&store, &blob).await == bytes, "{elsewhere_is}");
            assert_eq!(bucket.begun(), 1, "it is the first");
            assert!(range(&store, &blob, 7..2_000_000).await == bytes[7..2_000_000]);
            assert_eq!(bucket.begun(), 1, "it is asked last from then on");
        }
        // A shard that stops is given up, and the others are enough.
        let blob = placed(&test.store, &bytes, &["one,two,three(2+1)"]).await;
        let bucket = SlowBucket::of(elsewhere.path().join("one/objects"));
        let store = with_one_at(&test.store, &bucket.endpoint).await;
        assert!(contents(&store, &blob).await == bytes);
        assert_eq!(bucket.begun(), 1);
    }
}
