//! Copies on places that fail: that lose or damage what they have, are full, away, or forgotten.

use std::time::Duration;

use crate::common::*;
use crate::replicas::*;
use crate::toy::*;
use xebec_store::*;

const SHARDS: &str = "two,three,four(2+1)";

async fn place(store: &Store, blob: &Digest, placements: &[&str]) -> Result<Placed> {
    store.place(&held(store, blob).await, &wanted(placements)).await
}

async fn scrub(store: &Store) -> Scrubbed {
    store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap()
}

/// Turns one bit of the only object that a place has.
fn damage(top: &std::path::Path, place: &str) {
    let [file] = &replica_files(top, place)[..] else {
        panic!("one file");
    };
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_bit_of_any_shard_is_found_and_mended() {
    for (test, elsewhere) in stores().await {
        let (store, bytes, top) = (&test.store, some_bytes(300_000), elsewhere.path());
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &[SHARDS]).await.unwrap();
        collect(store).await;
        for damaged in ["two", "three", "four"] {
            damage(top, damaged);
            let scrubbed = scrub(store).await;
            assert_eq!(
                (scrubbed.replicas, scrubbed.damaged_replicas),
                (3, 1),
                "{damaged}"
            );
            assert_eq!(scrubbed.damaged, []);
            assert_eq!(read(store, &digest).await.unwrap(), bytes, "without {damaged}");
            let placed = place(store, &digest, &[SHARDS]).await.unwrap();
            assert_eq!((placed.made, placed.dropped), (1, 0));
            collect(store).await;
            assert_eq!(scrub(store).await.damaged_replicas, 0);
            assert_eq!(replica_files(top, damaged).len(), 1);
        }
    }
}

/// Nobody has scrubbed: a placer that reads wrong shards finds out which these are.
#[tokio::test]
async fn a_placer_that_reads_a_wrong_shard_reads_others_the_next_time() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(300_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &[SHARDS]).await.unwrap();
        collect(store).await;
        damage(elsewhere.path(), "two");
        let failed = place(store, &digest, &["main"]).await.unwrap_err().to_string();
        assert!(failed.contains("its bytes have digest"), "{failed}");
        place(store, &digest, &["main"]).await.unwrap();
        collect(store).await;
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        for place in PLACES {
            assert_eq!(replica_files(elsewhere.path(), place).len(), 0);
        }
    }
}

#[tokio::test]
async fn a_place_without_room_costs_nothing_else() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        let other = push_kept(store, b"other").await;
        place(store, &other, &["main", "one"]).await.unwrap();
        // No folder can be made there.
        let objects = elsewhere.path().join("one/objects");
        let names: Vec<_> = (0..=255_u8)
            .map(|number| objects.join(format!("{number:02x}")))
            .collect();
        let full: Vec<_> = names.into_iter().filter(|path| !path.exists()).collect();
        full.iter().for_each(|path| std::fs::write(path, "").unwrap());
        let failed = place(store, &digest, &["two", "one"])
            .await
            .unwrap_err()
            .to_string();
        assert!(failed.contains("place one"), "{failed}");
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        assert_eq!(files(&test), 2, "it stays on the main place");
        full.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        collect(store).await;
        assert_eq!(replica_files(elsewhere.path(), "one").len(), 1);
        place(store, &digest, &["two", "one"]).await.unwrap();
        assert_nothing_forgotten(test.directory.path());
    }
}

/// What was damaged and is not wanted any more goes like the rest.
#[tokio::test]
async fn a_damaged_copy_that_nobody_wants_goes() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["main", "one"]).await.unwrap();
        damage(elsewhere.path(), "one");
        assert_eq!(scrub(store).await.damaged_replicas, 1);
        let placed = place(store, &digest, &["main"]).await.unwrap();
        assert_eq!((placed.made, placed.dropped), (0, 1));
        collect(store).await;
        assert_eq!(replica_files(elsewhere.path(), "one").len(), 0);
        assert_eq!(scrub(store).await.replicas, 0);
    }
}

/// A disk is not mounted: what is under its name has lost nothing.
#[tokio::test]
async fn of_a_place_that_is_away_nothing_is_concluded() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["main", "one"]).await.unwrap();
        let blob = store.any_blob(&digest).await.unwrap().unwrap();
        let (objects, aside) = (
            elsewhere.path().join("one/objects"),
            elsewhere.path().join("aside"),
        );
        // A short while ago it was there.
        std::fs::rename(&objects, &aside).unwrap();
        std::fs::create_dir(&objects).unwrap();
        std::fs::remove_file(object(test.directory.path(), blob.object.as_deref().unwrap())).unwrap();
        let scrubbed = scrub(store).await;
        assert_eq!(
            (scrubbed.damaged_replicas, scrubbed.missing.len()),
            (0, 0),
            "{}",
            test.engine
        );
        assert!(!scrubbed.unreadable.is_empty());
        let error = read(store, &digest).await.unwrap_err();
        assert!(!matches!(error, StoreError::Lost(_)), "{error}");
        // Meanwhile another copy cannot be made, and nothing else is done either.
        assert!(place(store, &digest, &["two"]).await.is_err());
        std::fs::remove_dir(&objects).unwrap();
        std::fs::rename(&aside, &objects).unwrap();
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        // That reader has the main place looked into, where a scrub may be the first to mend it.
        let scrubbed = scrub(store).await;
        assert!(scrubbed.mended <= 1 && scrubbed.missing.is_empty());
        let now = store.any_blob(&digest).await.unwrap().unwrap();
        assert!(object(test.directory.path(), key(&now)).is_file() && now.object != blob.object);
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn copies_are_made_and_dropped_while_another_place_is_away() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["main", "one"]).await.unwrap();
        let (objects, aside) = (
            elsewhere.path().join("one/objects"),
            elsewhere.path().join("aside"),
        );
        std::fs::rename(&objects, &aside).unwrap();
        let again = Store::open(store.config()).await.unwrap();
        let placed = place(&again, &digest, &["main", "two"]).await.unwrap();
        assert_eq!((placed.made, placed.dropped), (1, 1));
        // Its garbage waits, and that of others goes.
        place(&again, &digest, &["main"]).await.unwrap();
        let collected = again.collect(&CollectOptions::default()).await.unwrap();
        assert_eq!(collected.failed, 1);
        assert_eq!(replica_files(elsewhere.path(), "two").len(), 0);
        std::fs::rename(&aside, &objects).unwrap();
        let dry = again.collect(&CollectOptions { dry_run: true }).await.unwrap();
        assert_eq!(replica_files(elsewhere.path(), "one").len(), 1);
        let collected = again.collect(&CollectOptions::default()).await.unwrap();
        assert_eq!((dry.objects, dry.object_bytes), (1, bytes.len() as u64));
        assert_eq!((collected.objects, collected.failed), (1, 0));
        assert_eq!(replica_files(elsewhere.path(), "one").len(), 0);
    }
}

/// A place that the configuration does not name any more may have the only copy.
#[tokio::test]
async fn without_its_place_in_the_configuration_an_object_is_not_lost() {
    for (test, _elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["one"]).await.unwrap();
        let mut config = store.config().clone();
        config.places.clear();
        let without = Store::open(&config).await.unwrap();
        let error = read(&without, &digest).await.unwrap_err();
        assert!(!matches!(error, StoreError::Lost(_)), "{error}");
        assert_eq!(scrub(&without).await.missing, []);
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
    }
}

/// The main place has wrong bytes, and no room for others.
#[tokio::test]
async fn without_room_for_right_bytes_they_are_read_elsewhere() {
    for (test, _elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["main", "one"]).await.unwrap();
        let blob = store.any_blob(&digest).await.unwrap().unwrap();
        let file = object(test.directory.path(), blob.object.as_deref().unwrap());
        let mut wrong = bytes.clone();
        wrong[17] ^= 1;
        std::fs::write(file, wrong).unwrap();
        let mut config = store.config().clone();
        config.reserve = u64::MAX;
        let full = Store::open(&config).await.unwrap();
        let scrubbed = scrub(&full).await;
        assert_eq!(
            (scrubbed.mended, scrubbed.damaged.len()),
            (1, 0),
            "{}",
            test.engine
        );
        assert_eq!(read(&full, &digest).await.unwrap(), bytes);
        place(store, &digest, &["main", "one"]).await.unwrap();
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        assert_eq!(scrub(store).await.mended, 0);
    }
}

/// Somebody has read a pack where it was before, and found nothing there.
#[tokio::test]
async fn a_pack_that_was_moved_is_not_damaged() {
    for (test, _elsewhere) in stores().await {
        let store = with_toy(&test.store);
        let bytes = some_bytes(20_000);
        let blob = push_apart(store, &name("app"), &bytes).await;
        push_kept(store, &bytes).await;
        for placements in [&["one"][..], &["main"]] {
            let recipe = store.recipe(&blob.digest).await.unwrap().unwrap();
            for pack in &recipe.packs {
                store
                    .place(&Held::of_pack(pack), &wanted(placements))
                    .await
                    .unwrap();
                assert!(
                    !store.note_pack_damaged(pack.key).await.unwrap(),
                    "{placements:?}"
                );
            }
            collect(store).await;
            assert_eq!(read(store, &blob.digest).await.unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn a_lost_place_is_filled_again() {
    for (test, elsewhere) in stores().await {
        let store = &test.store;
        let mut blobs = Vec::new();
        for number in 0..5_u8 {
            let digest = push_kept(store, &[number; 1000]).await;
            place(store, &digest, &["main", "one"]).await.unwrap();
            blobs.push(digest);
        }
        lose(elsewhere.path(), "one");
        assert_eq!(store.lose_place(&"one".parse().unwrap()).await.unwrap(), 5);
        assert_eq!(
            store.lose_place(&"one".parse().unwrap()).await.unwrap(),
            0,
            "once more"
        );
        let again = Store::open(store.config()).await.unwrap();
        let mut unplaced = again.take_unplaced(9, Duration::ZERO).await.unwrap();
        unplaced.sort();
        blobs.sort();
        assert_eq!(unplaced, blobs);
        for digest in &blobs {
            assert_eq!(place(&again, digest, &["main", "one"]).await.unwrap().made, 1);
        }
        assert_eq!(replica_files(elsewhere.path(), "one").len(), 5);
        assert_nothing_forgotten(test.directory.path());
    }
}

/// It may be another registry's: nothing is written over a mark that cannot be read.
#[tokio::test]
async fn a_place_whose_mark_cannot_be_read_is_not_taken_into_use() {
    for (test, elsewhere) in stores().await {
        let store = &test.store;
        let digest = push_kept(store, &some_bytes(1000)).await;
        let mark = elsewhere.path().join("one/objects/place");
        std::fs::create_dir_all(&mark).unwrap();
        assert!(place(store, &digest, &["main", "one"]).await.is_err());
        assert_eq!(store.place_space().await.unwrap(), []);
        std::fs::remove_dir(&mark).unwrap();
        place(store, &digest, &["main", "one"]).await.unwrap();
        assert_eq!(store.place_space().await.unwrap().len(), 1);
    }
}

/// A placer that saw the place a short while ago begins nothing there after it was forgotten.
#[tokio::test]
async fn nothing_is_recorded_on_a_place_that_was_forgotten() {
    for (test, _elsewhere) in stores().await {
        let store = &test.store;
        let first = push_kept(store, &some_bytes(1000)).await;
        let second = push_kept(store, &some_bytes(2000)).await;
        place(store, &first, &["main", "one"]).await.unwrap();
        assert_eq!(store.lose_place(&"one".parse().unwrap()).await.unwrap(), 1);
        assert!(place(store, &second, &["main", "one"]).await.is_err());
        assert_nothing_forgotten(test.directory.path());
        assert_eq!(
            store
                .placements(&held(store, &second).await, &std::collections::BTreeSet::new())
                .await
                .unwrap(),
            wanted(&["main"])
        );
    }
}

/// Each object that waits on a place that is away counts as one that could not be deleted, and others are deleted.
#[tokio::test]
async fn garbage_of_a_place_that_is_away_waits() {
    for (test, elsewhere) in stores().await {
        let store = &test.store;
        for number in 0..4_u8 {
            let digest = push_kept(store, &[number; 1000]).await;
            place(store, &digest, &["main", "one", "two"]).await.unwrap();
            place(store, &digest, &["main"]).await.unwrap();
        }
        let (objects, aside) = (
            elsewhere.path().join("one/objects"),
            elsewhere.path().join("aside"),
        );
        std::fs::rename(&objects, &aside).unwrap();
        let again = Store::open(store.config()).await.unwrap();
        let collected = again.collect(&CollectOptions::default()).await.unwrap();
        assert_eq!((collected.failed, collected.objects), (4, 4));
        std::fs::rename(&aside, &objects).unwrap();
        let collected = again.collect(&CollectOptions::default()).await.unwrap();
        assert_eq!((collected.failed, collected.objects), (0, 4));
    }
}
