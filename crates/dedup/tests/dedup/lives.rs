//! Blobs that come, go, and come again.

use crate::common::*;
use xebec_dedup::Done;

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_is_pushed_again_stays_as_it_is_stored() {
    let world = World::new().await;
    let bytes = layer(1, 16, 8);
    let digest = world.take_apart(&bytes).await;
    let before = world.stored();
    assert_eq!(world.push(&bytes).await, digest);
    world.collect().await;
    assert_eq!(world.work().await, []);
    assert_eq!(world.stored(), before);
    assert_eq!(world.read(&digest).await, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_go_with_the_last_blob_that_needs_them() {
    let world = World::new().await;
    let (one, other) = (layer(1, 20, 5), layer(2, 20, 5));
    let first = world.take_apart(&one).await;
    let second = world.take_apart(&other).await;
    world.delete(&first).await;
    world.collect().await;
    assert_eq!(world.blob(&first).await, None);
    // What the second one shares with it is in the first one's pack.
    assert_eq!(world.read(&second).await, other);
    world.delete(&second).await;
    world.collect().await;
    assert!(world.objects().is_empty());
    // From the beginning.
    let again = world.take_apart(&one).await;
    assert_eq!(world.read(&again).await, one);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_layers_that_are_taken_apart_at_once_are_both_whole() {
    let world = World::new().await;
    let layers: Vec<Vec<u8>> = (0..4).map(|own| layer(own, 30, 6)).collect();
    for layer in &layers {
        world.push(layer).await;
    }
    let done = futures_util::future::join_all((0..4).map(|_| world.deduplicator.work_once())).await;
    for done in done {
        assert_eq!(done.unwrap().unwrap().1, Done::Recorded);
    }
    for layer in &layers {
        let digest = xebec_store::Digest::of(xebec_store::Algorithm::Sha256, layer);
        assert_eq!(world.read(&digest).await, *layer);
    }
}
