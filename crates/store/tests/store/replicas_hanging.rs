//! Places that answer at first and hang in the middle of an object, and copies that are cut short: who waits, and who goes on.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::time::timeout;

use crate::common::*;
use crate::replicas::*;
use crate::replicas_away::placed;
use crate::slow_bucket::*;
use crate::toy::*;
use crate::upgrade::raw::Raw;
use xebec_store::*;

/// Work in the background ends long before this.
const LONG: Duration = Duration::from_secs(25);

fn main_objects(test: &TestStore) -> std::path::PathBuf {
    object(test.directory.path(), "")
}

/// A disk that takes its time is no reason to give nobody anything, if there is no other.
#[tokio::test]
async fn a_slow_main_place_without_another_copy_is_waited_for() {
    for (test, _elsewhere) in stores().await {
        let bytes = some_bytes(1_000_000);
        let blob = placed(&test.store, &bytes, &["main"]).await;
        let pause = PATIENCE * 5 / 2;
        let bucket = SlowBucket::of(main_objects(&test)).that_pauses(pause);
        let store = with_main_at(&test.store, &bucket.endpoint).await;
        let begun = Instant::now();
        assert!(contents(&store, &blob).await == bytes);
        assert!(begun.elapsed() >= pause);
        // Another copy answers sooner.
        let both = placed(&test.store, &bytes[1..], &["main", "two"]).await;
        let store = with_main_at(&test.store, &bucket.endpoint).await;
        let begun = Instant::now();
        assert!(contents(&store, &both).await == bytes[1..]);
        assert!(begun.elapsed() < pause, "{:?}", begun.elapsed());
        // One on a place that is gone is no other copy.
        let other = placed(&test.store, &bytes[2..], &["main", "two"]).await;
        lose(_elsewhere.path(), "two");
        let store = with_main_at(&test.store, &bucket.endpoint).await;
        assert!(contents(&store, &other).await == bytes[2..]);
    }
}

/// As long as the place of the only copy gives its mark, it is slow and not away.
#[tokio::test]
async fn the_only_replica_is_waited_for_while_its_place_lives() {
    for (test, elsewhere) in stores().await {
        let bytes = some_bytes(1_000_000);
        let blob = placed(&test.store, &bytes, &["one"]).await;
        let objects = elsewhere.path().join("one/objects");
        let bucket = SlowBucket::of(objects.clone()).that_pauses(PATIENCE * 5 / 2);
        let store = with_one_at(&test.store, &bucket.endpoint).await;
        assert!(contents(&store, &blob).await == bytes);
        let bucket = SlowBucket::of(objects);
        let store = with_one_at(&test.store, &bucket.endpoint).await;
        let mut pieces = store.read(&blob, 0..blob.size).await.unwrap();
        let mut got = Vec::new();
        while let Ok(piece) = timeout(PATIENCE * 2, pieces.next()).await {
            got.extend_from_slice(&piece.expect("it goes on").unwrap());
        }
        assert!(got == bytes[..500_000]);
        bucket.die();
        let broken = timeout(LONG, pieces.next())
            .await
            .expect("it breaks off")
            .unwrap();
        assert_eq!(broken.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        // A placer that copies it does not wait for ever either.
        let held = held(&store, &blob.digest).await;
        let placing = wanted(&["one", "two"]);
        assert!(
            timeout(LONG, store.place(&held, &placing))
                .await
                .unwrap()
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_scrub_leaves_a_place_that_hangs_and_reads_the_others() {
    for (test, elsewhere) in stores().await {
        let bytes = some_bytes(400_000);
        for from in 0..3 {
            placed(&test.store, &bytes[from..], &["main", "one", "two"]).await;
        }
        let bucket = SlowBucket::of(elsewhere.path().join("one/objects"));
        let store = with_one_at(&test.store, &bucket.endpoint).await;
        let scrub = |store: Store| async move {
            let scrubbing =
                tokio::spawn(async move { store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap() });
            timeout(LONG, scrubbing).await.expect("it ends").unwrap()
        };
        let scrubbed = scrub(store).await;
        let [(_, why)] = &scrubbed.unreadable[..] else {
            panic!("one of each place: {:?}", scrubbed.unreadable);
        };
        assert!(why.starts_with("on one: ") && why.contains("3 s"), "{why}");
        assert_eq!(
            (scrubbed.blobs, scrubbed.damaged.len(), scrubbed.damaged_replicas),
            (3, 0, 0)
        );
        assert!(scrubbed.bytes >= 6 * 399_000, "main and two are read");
        assert_eq!(bucket.begun(), 1);
        // The main place itself.
        let bucket = SlowBucket::of(main_objects(&test));
        let scrubbed = scrub(with_main_at(&test.store, &bucket.endpoint).await).await;
        let [(_, why)] = &scrubbed.unreadable[..] else {
            panic!("one of each place: {:?}", scrubbed.unreadable);
        };
        assert!(why.starts_with("on main: ") && why.contains("3 s"), "{why}");
        assert_eq!(
            (scrubbed.replicas, scrubbed.damaged.len(), scrubbed.missing.len()),
            (6, 0, 0)
        );
        assert!(scrubbed.bytes >= 6 * 399_000, "one and two are read");
        // What a recipe gives is as it was: nothing was noted.
        let scrubbed = scrub(test.store.clone()).await;
        assert_eq!(scrubbed.unreadable, []);
    }
}

#[tokio::test]
async fn a_collection_leaves_a_place_that_does_not_delete() {
    for (test, elsewhere) in stores().await {
        let bytes = some_bytes(10_000);
        for from in 0..3 {
            let blob = placed(&test.store, &bytes[from..], &["main", "one", "two"]).await;
            test.store
                .place(&held(&test.store, &blob.digest).await, &wanted(&["main"]))
                .await
                .unwrap();
        }
        let bucket = SlowBucket::of(elsewhere.path().join("one/objects"));
        let store = with_one_at(&test.store, &bucket.endpoint).await;
        let begun = Instant::now();
        let collected = timeout(LONG, store.collect(&CollectOptions::default()))
            .await
            .expect("it ends")
            .unwrap();
        assert_eq!(
            (collected.failed, collected.objects),
            (3, 3),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(replica_files(elsewhere.path(), "two").len(), 0);
        collect(&test.store).await;
        assert_eq!(replica_files(elsewhere.path(), "one").len(), 0);
    }
}

/// What is not there is told from what is not asked: the name of the place is in the error, and others go on.
#[tokio::test]
async fn a_placer_leaves_a_main_place_that_hangs() {
    for (test, _elsewhere) in stores().await {
        let bytes = some_bytes(400_000);
        let blob = placed(&test.store, &bytes, &["main"]).await;
        let bucket = SlowBucket::of(main_objects(&test));
        let store = with_main_at(&test.store, &bucket.endpoint).await;
        let held = held(&store, &blob.digest).await;
        let placing = wanted(&["two"]);
        let failed = timeout(LONG, store.place(&held, &placing))
            .await
            .expect("it ends");
        let error = failed.unwrap_err().to_string();
        assert!(
            error.contains("the place main") && error.contains("3 s"),
            "{error}"
        );
        let away = std::collections::BTreeSet::from(["main".parse().unwrap()]);
        let passed_over = store.place_without(&held, &placing, &away).await.unwrap_err();
        assert!(
            matches!(passed_over.first, StoreError::Paused(_)),
            "{passed_over:?}"
        );
        assert_eq!(bucket.begun(), 1, "it is not asked again");
        // A replica may go only if the main place gives what it has.
        let both = placed(&test.store, &bytes[1..], &["main", "two"]).await;
        let held = Held::of_blob(&both).unwrap();
        let failed = timeout(LONG, store.place(&held, &wanted(&["main"])))
            .await
            .expect("it ends");
        assert!(failed.unwrap_err().to_string().contains("the place main"));
    }
}

fn cut(path: &std::path::Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

/// The keys of replicas that are noted as damaged, once there is one.
async fn noted(test: &TestStore) -> Vec<Vec<String>> {
    let root = test.directory.path().to_owned();
    for _ in 0..100 {
        let root = root.clone();
        let look = move || Raw::open(&root).rows("SELECT place FROM replicas WHERE damaged > 0");
        let found = tokio::task::spawn_blocking(look).await.unwrap();
        if !found.is_empty() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Vec::new()
}

#[tokio::test]
async fn a_copy_that_a_read_found_cut_short_is_noted_at_once() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(400_000));
        let whole = placed(store, &bytes, &["one", "two"]).await;
        collect(store).await;
        cut(&replica_files(elsewhere.path(), "one")[0]);
        assert!(contents(store, &whole).await == bytes);
        assert_eq!(noted(&test).await, [["one"]]);
        let held = held(store, &whole.digest).await;
        store.place(&held, &wanted(&["one", "two"])).await.unwrap();
        collect(store).await;
        assert!(contents(store, &whole).await == bytes);
        // A shard.
        let other = placed(store, &bytes[1..], &["two,three,four(2+1)"]).await;
        collect(store).await;
        cut(&replica_files(elsewhere.path(), "three")[0]);
        assert!(contents(store, &other).await == bytes[1..]);
        assert_eq!(noted(&test).await, [["three"]]);
    }
}

#[tokio::test]
async fn an_object_that_a_read_found_cut_short_on_the_main_place_is_mended_at_once() {
    for (test, _elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(400_000));
        let blob = placed(store, &bytes, &["main", "two"]).await;
        cut(&object(test.directory.path(), key(&blob)));
        assert!(contents(store, &blob).await == bytes);
        let mut now = blob.clone();
        for _ in 0..100 {
            now = store.any_blob(&blob.digest).await.unwrap().unwrap();
            if now.object != blob.object {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_ne!(now.object, blob.object, "it has another object");
        assert!(std::fs::read(object(test.directory.path(), key(&now))).unwrap() == bytes);
    }
}

/// Until a store that was opened anew has looked into what a reader found.
async fn look_is_over() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[tokio::test]
async fn a_recipe_that_a_read_did_not_find_once_is_not_damaged() {
    for (test, _elsewhere) in stores().await {
        let bytes = some_bytes(20_000);
        let blob = push_apart(&test.store, &name("app"), &bytes).await;
        let recipe = test.store.recipe(&blob.digest).await.unwrap().unwrap();
        let bucket = SlowBucket::of(main_objects(&test)).that_pauses(Duration::from_millis(1));
        let store = with_main_at(&test.store, &bucket.endpoint).await;
        bucket.miss_one();
        let read = store.read_object(&recipe.object, 0..recipe.size).await;
        assert_eq!(read.err().unwrap().kind(), std::io::ErrorKind::NotFound);
        for _ in 0..100 {
            if bucket.begun() > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(bucket.begun(), 1, "it is read again");
        look_is_over().await;
        let now = store.recipe(&blob.digest).await.unwrap().unwrap();
        assert!(!now.is_damaged, "it is there, and has right bytes");
        // One that restores other bytes is.
        assert!(store.note_recipe_damaged(&recipe).await.unwrap());
    }
}

/// A reader waits for the only right copy longer than one who looks in the background.
#[tokio::test]
async fn an_object_that_is_cut_is_not_lost_while_its_other_copy_is_slow() {
    for (test, elsewhere) in stores().await {
        let bytes = some_bytes(400_000);
        let blob = placed(&test.store, &bytes, &["main", "one"]).await;
        cut(&object(test.directory.path(), key(&blob)));
        let bucket = SlowBucket::of(elsewhere.path().join("one/objects")).that_pauses(PATIENCE * 2);
        let store = with_one_at(&test.store, &bucket.endpoint).await;
        let begun = Instant::now();
        assert!(contents(&store, &blob).await == bytes);
        assert!(begun.elapsed() >= PATIENCE * 2);
        look_is_over().await;
        assert!(store.blob(&name("app"), &blob.digest).await.unwrap().is_some());
    }
}

/// Its place answers, and only keeps what it has for now.
#[tokio::test]
async fn a_place_that_refuses_to_delete_is_not_away() {
    if !crate::backup::is_supported() {
        return;
    }
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let gone = placed(store, &bytes[1..], &["main"]).await;
        let blob = placed(store, &bytes, &["main", "two"]).await;
        collect(store).await;
        // Other bytes show who reads them.
        let [file] = &replica_files(elsewhere.path(), "two")[..] else {
            panic!("one file");
        };
        std::fs::write(file, vec![1; 70_000]).unwrap();
        let lock = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(object(test.directory.path(), "").join(".lock"));
        let lock = lock.unwrap();
        lock.lock().unwrap();
        let held = held(store, &gone.digest).await;
        store.place(&held, &wanted(&["two"])).await.unwrap();
        assert!(store.collect(&CollectOptions::default()).await.unwrap().failed > 0);
        assert!(contents(store, &blob).await == bytes, "of the main place");
        drop(lock);
        assert_eq!(store.collect(&CollectOptions::default()).await.unwrap().failed, 0);
    }
}
