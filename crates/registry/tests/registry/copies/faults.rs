//! Places that are away, and copies with wrong bytes.

use std::path::{Path, PathBuf};

use xebec_store::{CollectOptions, Digest, ScrubOptions};
use xebec_testkit::compression::Compression;

use super::{World, rule, rules};
use crate::deduplication::layer;

/// A layer that is kept so, and all is done that the rule says.
async fn kept(keep: &[&str]) -> (World, Vec<u8>, Digest) {
    let world = World::new(&rule("**", keep)).await;
    let layer = layer(1, 300_000, Compression::Gzip(6));
    let digest = world.push("team/app", &layer).await;
    world.settle().await;
    (world, layer, digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_a_pack_are_mended_from_another_place_and_never_sent() {
    let (world, layer, digest) = kept(&["files@main", "files@second"]).await;
    let recipe = world.store().recipe(&digest).await.unwrap().unwrap();
    let file = world.objects("main").join(&recipe.packs[0].object);
    flip(&file);
    // A client gets right bytes, or an error that it can repeat.
    let pulls = [
        world.pull("team/app", &digest).await,
        world.pull("team/app", &digest).await,
    ];
    assert!(pulls.iter().flatten().all(|bytes| *bytes == layer));
    let scrubbed = world
        .store()
        .scrub(&ScrubOptions::default(), |_| {})
        .await
        .unwrap();
    assert!(
        scrubbed.damaged.is_empty() && scrubbed.damaged_pieces == 0,
        "{scrubbed:?}"
    );
    assert!(world.pull("team/app", &digest).await == Some(layer));
    world.settle().await;
    assert_eq!(world.apart(&digest).await, ["main", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_away_holds_up_nothing_but_its_copies() {
    let world = World::new(&rule("**", &["intact@main", "intact@second"])).await;
    let layer = layer(1, 100_000, Compression::Gzip(6));
    // It was used before, so it is known.
    world.push("team/first", b"first").await;
    world.settle().await;
    let digest = world
        .without("second", async || {
            let digest = world.push("team/app", &layer).await;
            let worked = world.placer.work_once().await.unwrap().unwrap();
            assert!(worked.failed > 0);
            assert!(worked.problem.unwrap().to_string().contains("second"));
            assert!(world.pull("team/app", &digest).await == Some(layer.clone()));
            digest
        })
        .await;
    assert_eq!(world.intact(&digest).await, ["main"]);
    world.store().place_anew().await.unwrap();
    world.settle().await;
    assert_eq!(world.intact(&digest).await, ["main", "second"]);
}

/// A place that was seen to be away is not asked again for minutes. When it is back, all that waits comes, and nothing waits for hours.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_place_comes_when_the_place_is_back() {
    let world = World::new(&rule("**", &["intact@main", "intact@second"])).await;
    world.push("team/first", b"first").await;
    world.settle().await;
    let mut waiting = Vec::new();
    world
        .without("second", async || {
            for number in 0..3 {
                let layer = layer(number, 50_000, Compression::Gzip(6));
                waiting.push(world.push("team/app", &layer).await);
            }
            while world.placer.work_once().await.unwrap().is_some() {}
        })
        .await;
    // Not even what is new asks for it now.
    let new = world.push("team/new", b"new").await;
    let worked = world.placer.work_once().await.unwrap().unwrap();
    assert!(worked.problem.unwrap().to_string().contains("after a pause"));
    assert!(world.placer.work_once().await.unwrap().is_none());
    assert!(world.store().unplaced().await.unwrap() >= 4);
    // The pause is over, and something is new.
    world.placer.begin().await.unwrap();
    let newest = world.push("team/newest", b"newest").await;
    while world.placer.work_once().await.unwrap().is_some() {}
    assert_eq!(world.store().unplaced().await.unwrap(), 0);
    for digest in waiting.iter().chain([&new, &newest]) {
        assert_eq!(world.intact(digest).await, ["main", "second"]);
    }
}

/// Nobody asks a place, and waits for it, for each blob, only since another place is away as well.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_two_places_that_are_away_is_asked_again_after_a_pause() {
    let world = World::new(&rule("**", &["intact@main", "intact@second", "intact@third"])).await;
    world.push("team/first", b"first").await;
    world.settle().await;
    world
        .without("second", async || {
            world
                .without("third", async || {
                    world.push("team/app", b"while both are away").await;
                    while world.placer.work_once().await.unwrap().is_some() {}
                })
                .await;
        })
        .await;
    let new = world.push("team/new", b"new").await;
    while world.placer.work_once().await.unwrap().is_some() {}
    assert_eq!(world.intact(&new).await, ["main"]);
    world.settle().await;
    assert_eq!(world.intact(&new).await, ["main", "second", "third"]);
}

/// What one place does not take, others do.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_away_keeps_copies_from_no_other() {
    let world = World::new(&rule("**", &["intact@main", "intact@second", "intact@third"])).await;
    world.push("team/first", b"first").await;
    world.settle().await;
    let layer = layer(1, 100_000, Compression::Gzip(6));
    let digest = world
        .without("second", async || {
            let digest = world.push("team/app", &layer).await;
            assert!(world.placer.work_once().await.unwrap().unwrap().failed > 0);
            digest
        })
        .await;
    assert_eq!(world.intact(&digest).await, ["main", "third"]);
}

/// Flips a bit in the middle of a file.
fn flip(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

/// The largest file in the directories below this one.
fn largest_file(top: &Path) -> PathBuf {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(top).unwrap().map(Result::unwrap) {
        if folder.file_type().unwrap().is_dir() {
            files.extend(
                std::fs::read_dir(folder.path())
                    .unwrap()
                    .map(|file| file.unwrap().path()),
            );
        }
    }
    files.sort_by_key(|file| std::fs::metadata(file).unwrap().len());
    files.pop().unwrap()
}

/// The recipe was proven long ago, and its pack has rotted since: the bytes that were pushed are the only right ones.
#[tokio::test(flavor = "multi_thread")]
async fn intact_bytes_stay_while_their_recipe_does_not_give_them() {
    let (world, layer, digest) = kept(&["intact@main", "files@second"]).await;
    flip(&largest_file(&world.objects("second")));
    let records = world.store().config().root.join("records.db");
    let long_ago = rusqlite::Connection::open(records).unwrap();
    long_ago.execute("UPDATE recipes SET proven = 1", []).unwrap();
    drop(long_ago);
    world.rules.set(rules(&rule("**", &["files@second"])));
    world.placer.begin().await.unwrap();
    while world
        .placer
        .work_once()
        .await
        .unwrap()
        .is_some_and(|worked| worked.failed == 0)
    {}
    assert!(!world.intact(&digest).await.is_empty());
    assert!(world.pull("team/app", &digest).await == Some(layer));
}

/// The bytes that were pushed have rotted, and the recipe still gives them.
#[tokio::test(flavor = "multi_thread")]
async fn a_recipe_stays_while_the_intact_bytes_are_wrong() {
    let (world, layer, digest) = kept(&["intact@main", "files@second"]).await;
    let blob = world.store().any_blob(&digest).await.unwrap().unwrap();
    flip(&world.objects("main").join(blob.object.unwrap()));
    world.rules.set(rules(&rule("**", &["intact@main"])));
    world.placer.begin().await.unwrap();
    let worked = world.placer.work_once().await.unwrap().unwrap();
    assert!(worked.problem.unwrap().to_string().contains("scrub"));
    assert_eq!(world.apart(&digest).await, ["second"]);
    let scrubbed = world
        .store()
        .scrub(&ScrubOptions::default(), |_| {})
        .await
        .unwrap();
    assert_eq!((scrubbed.mended, scrubbed.damaged.len()), (1, 0), "{scrubbed:?}");
    assert!(world.pull("team/app", &digest).await == Some(layer));
}

/// An empty mount point for a moment says nothing of the objects that are below the mount.
#[tokio::test(flavor = "multi_thread")]
async fn a_main_place_that_is_away_for_a_moment_costs_nothing() {
    let (world, layer, digest) = kept(&["intact@main", "files@second"]).await;
    world
        .without("main", async || {
            world
                .without("second", async || {
                    assert_eq!(world.pull("team/app", &digest).await, None);
                })
                .await;
        })
        .await;
    for _ in 0..3 {
        world.store().collect(&CollectOptions::default()).await.unwrap();
    }
    world
        .store()
        .scrub(&ScrubOptions::default(), |_| {})
        .await
        .unwrap();
    assert_eq!(world.intact(&digest).await, ["main"]);
    assert!(world.pull("team/app", &digest).await == Some(layer));
}
