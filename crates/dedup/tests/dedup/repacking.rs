//! Packs of which little is needed are put together anew, and nobody notices.

use futures_util::StreamExt as _;
use xebec_dedup::Done;
use xebec_store::Digest;

use crate::common::*;

/// A layer of these files, each of 9000 bytes and the same wherever it is.
fn of_files(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let files: Vec<(String, Vec<u8>)> = numbers
        .into_iter()
        .map(|number| (format!("usr/{number}.txt"), text(number, 9000)))
        .collect();
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_slice()))
        .collect();
    tar(&files)
}

async fn packs_of(world: &World, digest: &Digest) -> usize {
    world.store.recipe(digest).await.unwrap().unwrap().packs.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn room_comes_back_when_most_of_a_pack_is_needed_no_more() {
    let world = World::new().await;
    let (large, few, others) = (of_files(0..20), of_files(0..4), of_files([5, 6, 30]));
    let first = world.take_apart(&large).await;
    let second = world.take_apart(&few).await;
    let third = world.take_apart(&others).await;
    // All of it is needed.
    assert_eq!(world.deduplicator.repack_once().await.unwrap(), None);
    world.delete(&first).await;
    world.collect().await;
    let before = world.stored();
    // Four and two files of twenty are.
    let repacked = world.deduplicator.repack_once().await.unwrap().unwrap();
    assert_eq!((repacked.old, repacked.new), (1, 1));
    world.collect().await;
    assert_eq!(before - world.stored(), repacked.old_bytes - repacked.new_bytes);
    assert!(repacked.new_bytes < 4 * repacked.old_bytes / 10, "{repacked:?}");
    assert_eq!(
        (packs_of(&world, &second).await, packs_of(&world, &third).await),
        (1, 2)
    );
    assert_eq!(world.read(&second).await, few);
    assert_eq!(world.read(&third).await, others);
    assert_eq!(world.deduplicator.repack_once().await.unwrap(), None);
    // Chunks of the new pack are used, and it goes with the last that needs it.
    let again = world.take_apart(&of_files([0, 1, 5])).await;
    let packs = world.store.recipe(&again).await.unwrap().unwrap().packs;
    assert_eq!(packs, world.store.recipe(&second).await.unwrap().unwrap().packs);
    for digest in [second, third, again] {
        world.delete(&digest).await;
    }
    world.collect().await;
    assert_eq!(world.objects(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_needed_of_several_packs_comes_together() {
    let world = World::new().await;
    let (one, other, both) = (of_files(0..10), of_files(10..20), of_files([1, 2, 11, 12]));
    let gone = [world.take_apart(&one).await, world.take_apart(&other).await];
    let stays = world.take_apart(&both).await;
    assert_eq!(packs_of(&world, &stays).await, 2);
    for digest in &gone {
        world.delete(digest).await;
    }
    world.collect().await;
    let repacked = world.deduplicator.repack_once().await.unwrap().unwrap();
    assert_eq!((repacked.old, repacked.new), (2, 1));
    world.collect().await;
    assert_eq!((packs_of(&world, &stays).await, world.objects().len()), (1, 2));
    assert_eq!(world.read(&stays).await, both);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_is_looked_at_again_only_when_a_recipe_has_gone() {
    let world = World::new().await;
    let large = of_files(0..20);
    let first = world.take_apart(&large).await;
    assert_eq!(world.deduplicator.repack_once().await.unwrap(), None);
    // If the pack or the recipe were read again, they would be found damaged.
    let objects = world.objects();
    for (path, _) in &objects {
        std::fs::write(path, b"wrong").unwrap();
    }
    assert_eq!(world.deduplicator.repack_once().await.unwrap(), None);
    assert!(world.blob(&first).await.is_some());
    for (path, bytes) in &objects {
        std::fs::write(path, bytes).unwrap();
    }
    let second = world.take_apart(&of_files(0..4)).await;
    assert_eq!(world.deduplicator.repack_once().await.unwrap(), None);
    world.delete(&first).await;
    world.collect().await;
    assert_eq!(world.deduplicator.repack_once().await.unwrap().unwrap().old, 1);
    assert_eq!(world.read(&second).await, of_files(0..4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_meanwhile_gets_the_right_bytes() {
    // Nothing that was read once stays in memory.
    let world = World::with(|settings| (settings.frames, settings.restored) = (1, 1)).await;
    let few = of_files(0..4);
    let first = world.take_apart(&of_files(0..20)).await;
    let second = world.take_apart(&few).await;
    world.delete(&first).await;
    world.collect().await;
    let blob = world.blob(&second).await.unwrap();
    // It knows the packs, and has read nothing of them.
    let mut reading = world.store.read(&blob, 0..blob.size).await.unwrap();
    assert!(world.deduplicator.repack_once().await.unwrap().is_some());
    world.collect().await;
    let mut all = Vec::new();
    while let Some(piece) = reading.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(all, few);
    assert_eq!(world.read(&second).await, few);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_pack_is_let_alone_and_its_blobs_are_absent() {
    let world = World::new().await;
    let first = world.take_apart(&of_files(0..20)).await;
    let second = world.take_apart(&of_files(0..4)).await;
    world.delete(&first).await;
    world.collect().await;
    let pack = world
        .store
        .recipe(&second)
        .await
        .unwrap()
        .unwrap()
        .packs
        .remove(0);
    let path = world.directory.path().join("objects").join(&pack.object);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(world.deduplicator.repack_once().await.unwrap(), None);
    assert_eq!(world.blob(&second).await, None);
    world.push(&of_files(0..4)).await;
    assert_eq!(world.work().await, [(second.clone(), Done::Recorded)]);
    world.collect().await;
    assert_eq!(world.read(&second).await, of_files(0..4));
    assert_eq!(world.objects().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_are_taken_apart_meanwhile_lose_nothing() {
    let world = World::new().await;
    let (mut refused, mut replaced) = (0, 0);
    let mut kept: Vec<(Digest, Vec<u8>)> = Vec::new();
    for round in 0..12 {
        let base = 100 * round;
        let first = world.take_apart(&of_files(base..base + 12)).await;
        let few = of_files(base..base + 3);
        kept.push((world.take_apart(&few).await, few));
        world.delete(&first).await;
        world.collect().await;
        // It uses the pack while that is replaced, or just before or after it.
        let late = of_files([base + 5, base + 6, base + 7]);
        let digest = world.push(&late).await;
        let repacking = async {
            tokio::time::sleep(std::time::Duration::from_millis(round % 6)).await;
            let repacked = world.deduplicator.repack_once().await.unwrap();
            world.store.collect(&Default::default()).await.unwrap();
            repacked
        };
        let (done, repacked) = tokio::join!(world.deduplicator.work_once(), repacking);
        replaced += u32::from(repacked.is_some());
        match done.unwrap().unwrap().1 {
            Done::Recorded => {}
            Done::Later(_) => {
                refused += 1;
                assert!(world.blob(&digest).await.unwrap().object.is_some());
                world.deduplicator.release().await.unwrap();
                assert_eq!(world.work().await, [(digest.clone(), Done::Recorded)]);
            }
            other => panic!("{other:?}"),
        }
        kept.push((digest, late));
        world.collect().await;
        for (digest, bytes) in &kept {
            assert_eq!(
                world.read(digest).await,
                *bytes,
                "{refused} refused, {replaced} replaced"
            );
        }
    }
    let scrubbed = world.store.scrub(&Default::default(), |_| {}).await.unwrap();
    assert!(
        scrubbed.damaged.is_empty() && scrubbed.missing.is_empty(),
        "{scrubbed:?}"
    );
    eprintln!("{refused} refused, {replaced} replaced");
    // Else nothing was tried.
    assert!(replaced > 0);
}
