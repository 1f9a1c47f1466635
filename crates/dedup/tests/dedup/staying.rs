//! What cannot be taken apart stays as it was pushed.

use std::sync::Arc;

use crate::common::*;
use xebec_dedup::{Deduplicator, Done, Settings};

async fn stays(world: &World, bytes: &[u8]) -> String {
    let digest = world.push(bytes).await;
    let done = world.work().await;
    let [(of, Done::Kept(why))] = &done[..] else {
        panic!("{done:?}");
    };
    assert_eq!(*of, digest);
    assert!(world.blob(&digest).await.unwrap().object.is_some());
    assert_eq!(world.read(&digest).await, bytes);
    // Nothing of the attempt is left after a collection.
    world.collect().await;
    assert!(world.objects().iter().any(|(_, stored)| stored == bytes));
    why.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_broken_or_too_large_stay_intact() {
    let world = World::with(|settings| settings.most_plain = 4 << 20).await;
    let plain = layer(1, 20, 20);
    let mut cut = gzip(&plain);
    cut.truncate(cut.len() - 20);
    assert_eq!(stays(&world, &cut).await, "the stream ends too soon");
    let mut broken = gzip(&plain);
    // A kind of block that there is not.
    broken[10] |= 6;
    stays(&world, &broken).await;
    let bomb = gzip(&vec![0; 5 << 20]);
    assert_eq!(
        stays(&world, &bomb).await,
        "there are more than 4194304 plain bytes"
    );
    let bomb = zstd(&vec![0; 5 << 20]);
    assert_eq!(
        stays(&world, &bomb).await,
        "there are more than 4194304 plain bytes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stayed_intact_is_tried_again_once_by_a_program_that_can_do_more() {
    let mut world = World::with(|settings| settings.most_plain = 1 << 20).await;
    let bytes = gzip(&vec![0; 5 << 20]);
    stays(&world, &bytes).await;
    // The database does not know yet who tried.
    assert_eq!(world.deduplicator.retry().await.unwrap(), 1);
    assert!(matches!(&world.work().await[..], [(_, Done::Kept(_))]));
    assert_eq!(world.deduplicator.retry().await.unwrap(), 0);
    assert_eq!(world.work().await, []);
    let settings = Settings {
        most_plain: 8 << 20,
        ..world.deduplicator.settings().clone()
    };
    world.deduplicator = Deduplicator::new(world.store.clone(), settings, Arc::default());
    assert_eq!(world.deduplicator.retry().await.unwrap(), 1);
    assert!(matches!(&world.work().await[..], [(_, Done::Recorded)]));
    assert_eq!(world.deduplicator.retry().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_blobs_and_those_that_are_to_stay_are_let_alone() {
    let world = World::with(|settings| settings.least_size = 1 << 20).await;
    let bytes = gzip(&layer(1, 20, 20));
    let digest = world.push(&bytes).await;
    assert_eq!(world.work().await, []);
    assert!(world.blob(&digest).await.unwrap().object.is_some());

    let world = World::with(|settings| settings.keep_intact = true).await;
    let digest = world.push(&bytes).await;
    assert_eq!(world.work().await, [(digest.clone(), Done::Recorded)]);
    assert!(world.blob(&digest).await.unwrap().object.is_some());
    assert!(world.store.recipe(&digest).await.unwrap().is_some());
    assert_eq!(world.read(&digest).await, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_description_is_large_stays_intact() {
    // A member for each twenty bytes: its head and its sums have as many.
    let members = (0..300).flat_map(|number| gzip(&text(number, 20)));
    let bytes: Vec<u8> = members.collect();
    let world = World::new().await;
    let why = stays(&world, &bytes).await;
    assert!(why.starts_with("what its plain files lack"), "{why}");
}
