//! Backups of what has copies on several places, of which some are away or have wrong bytes.

use std::path::Path;

use crate::backup::is_supported;
use crate::common::*;
use crate::replicas::*;
use xebec_store::*;

/// A blob that is on these places.
pub(crate) async fn placed(store: &Store, bytes: &[u8], placements: &[&str]) -> Digest {
    let digest = push_kept(store, bytes).await;
    let held = held(store, &digest).await;
    store.place(&held, &wanted(placements)).await.unwrap();
    digest
}

/// Turns a bit of the only object that a place has.
fn damage(top: &Path, place: &str) {
    let [file] = &replica_files(top, place)[..] else {
        panic!("one file");
    };
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

async fn restored(backup: &Path, root: &Path, digest: &Digest) -> Vec<u8> {
    Store::restore(root, backup, |_| ()).await.unwrap();
    let store = Store::open(&StoreConfig::new(root)).await.unwrap();
    read(&store, digest).await.unwrap()
}

#[tokio::test]
async fn the_next_copy_with_right_bytes_is_taken() {
    if !is_supported() {
        return;
    }
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = placed(store, &bytes, &["main", "one", "two"]).await;
        let blob = store.any_blob(&digest).await.unwrap().unwrap();
        std::fs::remove_file(object(test.directory.path(), key(&blob))).unwrap();
        damage(elsewhere.path(), "one");
        let backup = test.directory.path().join("backup");
        let backed_up = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!(
            (
                backed_up.blobs,
                backed_up.copied,
                backed_up.damaged,
                backed_up.lacks
            ),
            (1, 1, 2, vec![])
        );
        let root = test.directory.path().join("restored");
        assert_eq!(restored(&backup, &root, &digest).await, bytes);
        // As after a scrub: the main place has it again, and the wrong copy is noted.
        let spaces = store.place_space().await.unwrap();
        let damaged: Vec<_> = spaces
            .iter()
            .map(|space| (space.place.as_str(), space.damaged))
            .collect();
        assert_eq!(damaged, [("one", 1), ("two", 0)]);
        assert_eq!(files(&test), 1);
        let scrubbed = store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap();
        assert_eq!(
            (scrubbed.mended, scrubbed.damaged, scrubbed.missing),
            (0, vec![], vec![])
        );
    }
}

/// One of three shards is wrong, and nobody knows which before it is read.
#[tokio::test]
async fn a_wrong_shard_is_passed_over() {
    if !is_supported() {
        return;
    }
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(300_000));
        let digest = placed(store, &bytes, &["two,three,four(2+1)"]).await;
        collect(store).await;
        damage(elsewhere.path(), "two");
        let backup = test.directory.path().join("backup");
        let backed_up = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!((backed_up.blobs, backed_up.damaged), (1, 1));
        let root = test.directory.path().join("restored");
        assert_eq!(restored(&backup, &root, &digest).await, bytes);
    }
}

#[tokio::test]
async fn what_no_place_gives_is_named_and_the_rest_is_backed_up() {
    if !is_supported() {
        return;
    }
    for (test, elsewhere) in stores().await {
        let store = &test.store;
        let here = placed(store, b"here", &["main"]).await;
        let away = placed(store, b"away", &["one"]).await;
        let wrong = placed(store, b"wrong", &["two"]).await;
        let (objects, aside) = (
            elsewhere.path().join("one/objects"),
            elsewhere.path().join("aside"),
        );
        std::fs::rename(&objects, &aside).unwrap();
        damage(elsewhere.path(), "two");
        let backup = test.directory.path().join("backup");
        let first = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!(
            (first.blobs, first.damaged, first.missing, first.away),
            (1, 1, 1, 1)
        );
        let lacking = |digest: &Digest| first.lacks.iter().find(|lacking| lacking.digest == *digest);
        let why = lacking(&away).unwrap().away.clone().unwrap();
        assert!(why.contains("on one: "), "{why}");
        assert_eq!(lacking(&wrong).unwrap().away, None);
        assert_eq!(lacking(&here), None);
        let list = std::fs::read_to_string(backup.join("incomplete")).unwrap();
        assert!(
            list.contains(&format!("blob {away} cannot be read now")),
            "{list}"
        );
        assert!(list.contains(&format!("blob {wrong} has no copy")), "{list}");
        assert_eq!(Store::lacking_in_backup(&backup).unwrap(), 2);
        let root = test.directory.path().join("restored");
        let error = Store::restore(&root, &backup, |_| ()).await.unwrap_err();
        let StoreError::BadBackup { damaged } = error else {
            panic!("{error}")
        };
        assert_eq!(damaged.len(), 2);
        // As after a scrub, that without right bytes counts as absent, and the other one does not.
        assert_eq!(store.peek_blob(&name("app"), &wrong).await.unwrap(), None);
        assert!(store.peek_blob(&name("app"), &away).await.unwrap().is_some());
        // The place is there again, and somebody has pushed the other one.
        std::fs::rename(&aside, &objects).unwrap();
        push(store, &name("app"), b"wrong").await.unwrap();
        let second = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!((second.blobs, second.kept, second.lacks), (3, 1, vec![]));
        assert_eq!(Store::lacking_in_backup(&backup).unwrap(), 0);
        assert_eq!(restored(&backup, &root, &away).await, b"away");
    }
}

/// A copy has the name of its object only once it is whole: otherwise the next backup would count it as kept.
#[tokio::test]
async fn what_a_broken_backup_has_left_counts_as_nothing() {
    if !is_supported() {
        return;
    }
    for (test, _elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = placed(store, &bytes, &["one"]).await;
        let backup = test.directory.path().join("backup");
        let left = [backup.join("objects/.backup.new"), backup.join(".incomplete.new")];
        std::fs::create_dir_all(backup.join("objects")).unwrap();
        left.iter()
            .for_each(|file| std::fs::write(file, b"half of it").unwrap());
        let backed_up = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!((backed_up.blobs, backed_up.lacks), (1, vec![]));
        assert!(left.iter().all(|file| !file.exists()), "nothing is left over");
        let root = test.directory.path().join("restored");
        assert_eq!(restored(&backup, &root, &digest).await, bytes);
    }
}
