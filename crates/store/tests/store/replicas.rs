//! Copies on several places: made, read when others are gone, mended, moved and dropped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use xebec_placement::Placement;
use xebec_store::*;

use crate::common::*;
use crate::toy::*;

pub(crate) const PLACES: [&str; 4] = ["one", "two", "three", "four"];

/// A store with four more places beside its root.
pub(crate) async fn stores() -> Vec<(TestStore, tempfile::TempDir)> {
    let elsewhere = tempfile::tempdir().unwrap();
    let top = elsewhere.path().to_owned();
    let stores = engines(|config| {
        no_grace(config);
        config.places = PLACES.map(|place| place_in(&top, place)).to_vec();
    })
    .await;
    stores.into_iter().zip([elsewhere]).collect()
}

pub(crate) fn place_in(top: &Path, name: &str) -> PlaceConfig {
    let root = top.join(name);
    std::fs::create_dir_all(&root).unwrap();
    PlaceConfig {
        name: name.parse().unwrap(),
        root: Some(root),
        objects: ObjectsConfig::Directory,
    }
}

pub(crate) fn wanted(placements: &[&str]) -> BTreeSet<Placement> {
    placements
        .iter()
        .map(|placement| placement.parse().unwrap())
        .collect()
}

pub(crate) async fn read(store: &Store, digest: &Digest) -> Result<Vec<u8>> {
    let blob = store
        .any_blob(digest)
        .await?
        .ok_or_else(|| StoreError::Lost(digest.clone()))?;
    let mut pieces = store.read(&blob, 0..blob.size).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    Ok(bytes)
}

/// Files of objects below a place, without its mark and its lock.
pub(crate) fn replica_files(top: &Path, place: &str) -> Vec<PathBuf> {
    let objects = top.join(place).join("objects");
    let mut found = Vec::new();
    for folder in std::fs::read_dir(objects).into_iter().flatten() {
        let folder = folder.unwrap().path();
        if folder.is_dir() {
            found.extend(
                std::fs::read_dir(folder)
                    .unwrap()
                    .map(|file| file.unwrap().path()),
            );
        }
    }
    found
}

pub(crate) fn lose(top: &Path, place: &str) {
    std::fs::remove_dir_all(top.join(place).join("objects")).unwrap();
}

pub(crate) async fn collect(store: &Store) {
    store.collect(&CollectOptions::default()).await.unwrap();
}

/// A blob that a manifest names, so that it stays.
pub(crate) async fn push_kept(store: &Store, bytes: &[u8]) -> Digest {
    let digest = push(store, &name("app"), bytes).await.unwrap().digest;
    let new = manifest(&format!("of {digest}"), vec![layer(bytes)]);
    store.put_manifest(&name("app"), &new, &[]).await.unwrap();
    digest
}

pub(crate) fn some_bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from(at * at % 251).unwrap()).collect()
}

pub(crate) async fn held(store: &Store, digest: &Digest) -> Held {
    Held::of_blob(&store.any_blob(digest).await.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn a_blob_is_read_from_any_place_that_has_it() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(300_000));
        let digest = push(store, &name("app"), &bytes).await.unwrap().digest;
        let placed = store
            .place(
                &held(store, &digest).await,
                &wanted(&["main", "one", "two,three,four(2+1)"]),
            )
            .await
            .unwrap();
        assert_eq!((placed.made, placed.dropped), (4, 0), "{}", test.engine);
        for place in PLACES {
            assert_eq!(replica_files(elsewhere.path(), place).len(), 1, "{place}");
        }
        // Only the shards are left, and one of them is lost, too.
        let away = store
            .place(&held(store, &digest).await, &wanted(&["two,three,four(2+1)"]))
            .await
            .unwrap();
        assert_eq!((away.made, away.dropped), (0, 2));
        collect(store).await;
        assert!(replica_files(elsewhere.path(), "one").is_empty());
        for place in ["two", "three", "four"] {
            let objects = elsewhere.path().join(place).join("objects");
            let aside = elsewhere.path().join("aside");
            std::fs::rename(&objects, &aside).unwrap();
            assert_eq!(read(store, &digest).await.unwrap(), bytes, "without {place}");
            std::fs::rename(&aside, &objects).unwrap();
        }
        // Back to the main place, and nowhere else.
        let home = store
            .place(&held(store, &digest).await, &wanted(&["main"]))
            .await
            .unwrap();
        assert_eq!((home.made, home.dropped), (1, 3));
        collect(store).await;
        for place in PLACES {
            assert!(replica_files(elsewhere.path(), place).is_empty(), "{place}");
        }
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn wrong_bytes_are_mended_from_another_copy() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push(store, &name("app"), &bytes).await.unwrap().digest;
        let places = wanted(&["main", "one"]);
        store.place(&held(store, &digest).await, &places).await.unwrap();
        let [file] = &replica_files(elsewhere.path(), "one")[..] else {
            panic!("one file");
        };
        let mut wrong = bytes.clone();
        wrong[17] ^= 1;
        std::fs::write(file, &wrong).unwrap();
        let scrubbed = store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap();
        assert_eq!((scrubbed.replicas, scrubbed.damaged_replicas), (1, 1));
        assert!(scrubbed.damaged.is_empty());
        assert_eq!(
            store.take_unplaced(8, Duration::ZERO).await.unwrap(),
            std::slice::from_ref(&digest)
        );
        store.place(&held(store, &digest).await, &places).await.unwrap();
        collect(store).await;
        let [file] = &replica_files(elsewhere.path(), "one")[..] else {
            panic!("one file");
        };
        assert_eq!(std::fs::read(file).unwrap(), bytes);
        let scrubbed = store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap();
        assert_eq!((scrubbed.damaged_replicas, scrubbed.mended), (0, 0));
    }
}

#[tokio::test]
async fn what_goes_takes_its_copies_along() {
    for (test, elsewhere) in stores().await {
        let store = with_toy(&test.store);
        let bytes = some_bytes(20_000);
        let blob = push_apart(store, &name("app"), &bytes).await;
        let recipe = store.recipe(&blob.digest).await.unwrap().unwrap();
        let places = wanted(&["one", "two,three,four(1+2)"]);
        store.place(&Held::of_recipe(&recipe), &places).await.unwrap();
        for pack in &recipe.packs {
            store.place(&Held::of_pack(pack), &places).await.unwrap();
        }
        lose(elsewhere.path(), "one");
        assert_eq!(read(store, &blob.digest).await.unwrap(), bytes, "from shards");
        assert!(store.delete_blob(&name("app"), &blob.digest).await.unwrap());
        store.lose_place(&"one".parse().unwrap()).await.unwrap();
        for _ in 0..4 {
            collect(store).await;
        }
        for place in ["two", "three", "four"] {
            assert!(replica_files(elsewhere.path(), place).is_empty(), "{place}");
        }
        assert_eq!(store.any_blob(&blob.digest).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_blob_gets_another_form_and_back() {
    for (test, _elsewhere) in stores().await {
        let store = with_toy(&test.store);
        let bytes = some_bytes(20_000);
        let blob = push_apart(store, &name("app"), &bytes).await;
        assert!(store.make_intact(&blob).await.unwrap());
        let intact = store.any_blob(&blob.digest).await.unwrap().unwrap();
        assert!(intact.object.is_some());
        assert_eq!(read(store, &blob.digest).await.unwrap(), bytes);
        assert!(store.drop_recipe(&blob.digest, None).await.unwrap());
        assert_eq!(store.recipe(&blob.digest).await.unwrap(), None);
        take_all(store, true).await;
        let apart = store.any_blob(&blob.digest).await.unwrap().unwrap();
        assert_eq!(apart.object, None);
        assert!(
            !store.drop_recipe(&blob.digest, None).await.unwrap(),
            "its only form"
        );
        assert_eq!(read(store, &blob.digest).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_place_without_its_mark_is_neither_written_nor_believed() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(1000));
        let digest = push(store, &name("app"), &bytes).await.unwrap().digest;
        store
            .place(&held(store, &digest).await, &wanted(&["main", "one"]))
            .await
            .unwrap();
        let second = Store::open(store.config()).await.unwrap();
        // Something else is mounted there.
        let objects = elsewhere.path().join("one/objects");
        std::fs::rename(&objects, elsewhere.path().join("aside")).unwrap();
        let refused = second
            .place(&held(&second, &digest).await, &wanted(&["one"]))
            .await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("--lost one"), "{text}");
        std::fs::create_dir(&objects).unwrap();
        std::fs::write(objects.join("place"), "another").unwrap();
        let refused = second
            .place(&held(&second, &digest).await, &wanted(&["one"]))
            .await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("another registry"), "{text}");
        std::fs::remove_file(objects.join("place")).unwrap();
        assert_eq!(second.lose_place(&"one".parse().unwrap()).await.unwrap(), 1);
        let third = Store::open(store.config()).await.unwrap();
        let placed = third
            .place(&held(&third, &digest).await, &wanted(&["one"]))
            .await
            .unwrap();
        assert_eq!((placed.made, placed.dropped), (1, 1));
        assert_eq!(read(&third, &digest).await.unwrap(), bytes);
    }
}

/// What is wanted of a blob in another form is wanted of its bytes, once that form cannot be.
#[tokio::test]
async fn a_blob_that_stays_intact_is_looked_at_again() {
    for (test, _elsewhere) in stores().await {
        let store = &test.store;
        let small = push(store, &name("app"), b"small").await.unwrap().digest;
        let odd = push(store, &name("app"), &some_bytes(100)).await.unwrap().digest;
        for digest in store.take_unplaced(8, Duration::ZERO).await.unwrap() {
            let seen = store.standing(&digest).await.unwrap().unwrap().seen;
            assert!(store.placed(&digest, seen).await.unwrap());
        }
        assert_eq!(store.unplaced().await.unwrap(), 0);
        let task = store
            .take_dedup(Duration::from_secs(60), 50)
            .await
            .unwrap()
            .unwrap();
        store.settle_dedup(&task, "it is odd").await.unwrap();
        assert_eq!(store.take_dedup(Duration::from_secs(60), 50).await.unwrap(), None);
        let mut again = store.take_unplaced(8, Duration::ZERO).await.unwrap();
        again.sort();
        let mut wanted = vec![small, odd];
        wanted.sort();
        assert_eq!(again, wanted, "{}", test.engine);
    }
}
