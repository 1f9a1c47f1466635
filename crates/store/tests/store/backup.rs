//! Backup while pushes and collections go on; restore of all of it or nothing, or of what is sound.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use xebec_store::*;

/// Backups are of embedded records and files.
pub(crate) fn is_supported() -> bool {
    std::env::var_os(POSTGRES).is_none() && std::env::var_os(S3).is_none()
}

#[tokio::test]
async fn others_are_refused_with_advice() {
    if is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        let error = test
            .store
            .backup(&test.directory.path().join("backup"), |_| ())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("pg_dump"), "{error}");
    }
}

/// An administrator restores as root, and the registry runs as a user of its own.
#[tokio::test]
async fn what_root_restores_belongs_to_the_owner_of_the_directory() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        push(&test.store, &name("a"), b"layer").await.unwrap();
        let backup = test.directory.path().join("backup");
        test.store.backup(&backup, |_| ()).await.unwrap();
        let root = test.directory.path().join("restored");
        std::fs::create_dir(&root).unwrap();
        if chown(&root, Some(65534), Some(65533)).is_err() {
            eprintln!(
                "SKIPPED: what root restores belongs to the owner of the directory: these tests are not run as root"
            );
            return;
        }
        Store::restore(&root, &backup, |_| ()).await.unwrap();
        let (mut waiting, mut files) = (vec![root], 0);
        while let Some(path) = waiting.pop() {
            let found = std::fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.gid()), (65534, 65533), "{}", path.display());
            match found.is_dir() {
                true => waiting.extend(
                    std::fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                ),
                false => files += 1,
            }
        }
        assert!(files >= 2, "the records, and an object");
        // What is in the backup is as it was.
        let records = std::fs::metadata(backup.join("records.db")).unwrap();
        assert_eq!(records.uid(), 0);
    }
}

#[tokio::test]
async fn a_backup_is_restored() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"layer").await.unwrap();
        let new = manifest("m", vec![layer(b"layer")]);
        store.put_manifest(&a, &new, &[tag("latest")]).await.unwrap();
        let id = store.begin_upload(&a).await.unwrap();
        store.append(&a, &id, None, body(&[b"unfinished"])).await.unwrap();
        let backup = test.directory.path().join("backup");
        let first = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!(
            (first.blobs, first.bytes, first.kept, first.missing),
            (1, 5, 0, 0)
        );
        push(store, &a, b"later").await.unwrap();
        let second = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!(
            (second.blobs, second.kept),
            (2, 1),
            "what is there already is not copied again"
        );
        let root = test.directory.path().join("restored");
        let restored = Store::restore(&root, &backup, |_| ()).await.unwrap();
        assert_eq!(
            (
                restored.repositories,
                restored.manifests,
                restored.blobs,
                restored.bytes
            ),
            (1, 1, 2, 11)
        );
        let again = Store::open(&StoreConfig::new(&root)).await.unwrap();
        let found = again.tagged_manifest(&a, &tag("latest")).await.unwrap().unwrap();
        assert_eq!(found.content, new.content);
        let blob = again.blob(&a, &digest(b"layer")).await.unwrap().unwrap();
        assert_eq!(contents(&again, &blob).await, b"layer");
        assert_eq!(
            again.upload(&a, &id).await.unwrap(),
            None,
            "an unfinished upload is no part of a backup"
        );
        drop(again);
        let error = Store::restore(&root, &backup, |_| ()).await.unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
    }
}

/// Earlier versions left no file that says that a directory has a backup.
#[tokio::test]
async fn a_backup_of_an_earlier_version_is_brought_up_to_date_when_its_user_says_that_it_is_one() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        push(&test.store, &name("a"), b"layer").await.unwrap();
        let backup = test.directory.path().join("backup");
        test.store.backup(&backup, |_| ()).await.unwrap();
        let mark = backup.join("backup");
        std::fs::remove_file(&mark).unwrap();
        let error = test.store.backup(&backup, |_| ()).await.unwrap_err().to_string();
        assert!(
            error.contains(&format!("empty file {}", mark.display())),
            "{error}"
        );
        std::fs::write(&mark, "").unwrap();
        assert_eq!(test.store.backup(&backup, |_| ()).await.unwrap().kept, 1);
    }
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let wrong = push(store, &a, b"wrong").await.unwrap();
        let lost = push(store, &a, b"lost").await.unwrap();
        push(store, &a, b"sound").await.unwrap();
        let backup = test.directory.path().join("backup");
        store.backup(&backup, |_| ()).await.unwrap();
        let path = |blob: &Blob| backup.join("objects").join(key(blob));
        std::fs::remove_file(path(&wrong)).unwrap();
        std::fs::write(path(&wrong), b"wr0ng").unwrap();
        std::fs::remove_file(path(&lost)).unwrap();
        let root = test.directory.path().join("restored");
        let error = Store::restore(&root, &backup, |_| ()).await.unwrap_err();
        let StoreError::BadBackup { mut damaged } = error else {
            panic!("{error}")
        };
        damaged.sort();
        let mut wanted = [wrong.digest, lost.digest];
        wanted.sort();
        assert_eq!(damaged, wanted);
        assert!(!root.join("records.db").exists());
    }
}

/// A backup of which one blob has wrong bytes, one is missing, and a damaged one is named by nothing.
async fn damaged_backup(test: &TestStore) -> (PathBuf, NewManifest) {
    let (store, a) = (&test.store, name("a"));
    let wrong = push(store, &a, b"wrong").await.unwrap();
    let lost = push(store, &a, b"lost").await.unwrap();
    let idle = push(store, &a, b"idle").await.unwrap();
    push(store, &a, b"sound").await.unwrap();
    let image = manifest("m", [&b"sound"[..], b"wrong", b"lost"].map(layer).into());
    store.put_manifest(&a, &image, &[tag("v1")]).await.unwrap();
    store
        .put_manifest(&a, &manifest("index", vec![child(&image)]), &[])
        .await
        .unwrap();
    let backup = test.directory.path().join("backup");
    store.backup(&backup, |_| ()).await.unwrap();
    let path = |blob: &Blob| backup.join("objects").join(key(blob));
    for blob in [&wrong, &idle] {
        std::fs::remove_file(path(blob)).unwrap();
        std::fs::write(path(blob), b"wr0ng").unwrap();
    }
    std::fs::remove_file(path(&lost)).unwrap();
    (backup, image)
}

#[tokio::test]
async fn what_is_sound_of_a_damaged_backup_is_restored_on_request() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        let a = name("a");
        let (backup, image) = damaged_backup(&test).await;
        let root = test.directory.path().join("restored");
        // The files that a restore without the option has left are gone over.
        Store::restore(&root, &backup, |_| ()).await.unwrap_err();
        let (restored, left_out) = Store::restore_without_damaged(&root, &backup, |_| ())
            .await
            .unwrap();
        assert_eq!(
            (restored.repositories, restored.manifests, restored.blobs),
            (1, 2, 1)
        );
        let named_by = vec![NamedBy {
            repository: a.clone(),
            manifest: image.digest.clone(),
            tags: vec![tag("v1")],
        }];
        let wanted = [
            (&b"wrong"[..], Damage::WrongBytes, named_by.clone()),
            (b"idle", Damage::WrongBytes, Vec::new()),
            (b"lost", Damage::Missing, named_by),
        ];
        let mut wanted = wanted.map(|(bytes, damage, named_by)| LeftOut {
            digest: digest(bytes),
            damage,
            named_by,
        });
        wanted.sort_by(|one, other| one.digest.cmp(&other.digest));
        assert_eq!(left_out, wanted);
        let mut config = StoreConfig::new(&root);
        no_grace(&mut config);
        let test = TestStore {
            store: Store::open(&config).await.unwrap(),
            engine: test.engine,
            directory: test.directory,
        };
        is_as_after_a_scrub(&test, &image).await;
    }
}

/// Damaged blobs are absent and named, a push mends them, and a collection takes those that nothing names.
async fn is_as_after_a_scrub(test: &TestStore, image: &NewManifest) {
    let (store, a) = (&test.store, name("a"));
    let found = store.tagged_manifest(&a, &tag("v1")).await.unwrap().unwrap();
    assert_eq!(found.content, image.content);
    let sound = store.blob(&a, &digest(b"sound")).await.unwrap().unwrap();
    assert_eq!(contents(store, &sound).await, b"sound");
    for bytes in [&b"wrong"[..], b"lost", b"idle"] {
        assert_eq!(store.blob(&a, &digest(bytes)).await.unwrap(), None);
    }
    let scrubbed = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
    assert_eq!((scrubbed.damaged.len(), scrubbed.missing.len()), (0, 3));
    for bytes in [&b"wrong"[..], b"lost"] {
        let mended = push(store, &a, bytes).await.unwrap();
        assert_eq!(contents(store, &mended).await, bytes);
    }
    let scrubbed = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
    assert_eq!(scrubbed.missing, [digest(b"idle")]);
    collect_all(test).await;
    let scrubbed = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
    assert_eq!((scrubbed.blobs, scrubbed.missing), (0, vec![]));
}

/// The mark that a scrub has set is in the records of the backup, too.
#[tokio::test]
async fn a_blob_that_was_damaged_counts_again_when_the_backup_has_its_bytes() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let pushed = push(store, &a, b"right").await.unwrap();
        let object = |root: PathBuf| root.join("objects").join(key(&pushed));
        std::fs::write(object(store.config().root.clone()), b"wr0ng").unwrap();
        let scrubbed = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
        assert_eq!(scrubbed.damaged, [digest(b"right")]);
        let backup = test.directory.path().join("backup");
        store.backup(&backup, |_| ()).await.unwrap();
        // The object of an earlier backup.
        std::fs::remove_file(object(backup.clone())).unwrap();
        std::fs::write(object(backup.clone()), b"right").unwrap();
        let root = test.directory.path().join("restored");
        Store::restore(&root, &backup, |_| ()).await.unwrap();
        let restored = Store::open(&StoreConfig::new(&root)).await.unwrap();
        let found = restored.blob(&a, &digest(b"right")).await.unwrap().unwrap();
        assert_eq!(contents(&restored, &found).await, b"right");
    }
}

#[tokio::test]
async fn without_damage_both_restores_are_alike() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        push(&test.store, &name("a"), b"layer").await.unwrap();
        let backup = test.directory.path().join("backup");
        test.store.backup(&backup, |_| ()).await.unwrap();
        let root = |name: &str| test.directory.path().join(name);
        let whole = Store::restore(&root("one"), &backup, |_| ()).await.unwrap();
        let other = Store::restore_without_damaged(&root("two"), &backup, |_| ())
            .await
            .unwrap();
        assert_eq!(other, (whole, Vec::new()));
        // A path that this user may not read, or that is no file, says nothing of a blob's bytes: it is an error, and not left out.
        let blob = test.store.any_blob(&digest(b"layer")).await.unwrap().unwrap();
        let path = backup.join("objects").join(key(&blob));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = Store::restore_without_damaged(&root("three"), &backup, |_| ()).await;
        assert!(matches!(error, Err(StoreError::File { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn a_backup_that_was_broken_off_is_none() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        push(&test.store, &name("a"), b"layer").await.unwrap();
        let backup = test.directory.path().join("backup");
        test.store.backup(&backup, |_| ()).await.unwrap();
        // The files that a backup leaves which was killed before its last step.
        std::fs::rename(backup.join("records.db"), backup.join(".records.db.new")).unwrap();
        let root = test.directory.path().join("restored");
        let error = Store::restore(&root, &backup, |_| ()).await.unwrap_err();
        assert!(error.to_string().contains("broken off"), "{error}");
        assert!(!root.exists());
        let again = test.store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!((again.blobs, again.kept), (1, 1));
        // A restore that was broken off goes on; anything else in the directory is somebody else's.
        std::fs::create_dir_all(root.join("objects")).unwrap();
        let error = Store::restore(&root, &backup, |_| ()).await.unwrap_err();
        assert!(error.to_string().contains("objects"), "{error}");
        std::fs::write(root.join(".records.db.new"), b"half").unwrap();
        assert_eq!(Store::restore(&root, &backup, |_| ()).await.unwrap().blobs, 1);
    }
}

#[tokio::test]
async fn no_store_is_overwritten_by_a_backup() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        let root = test.store.config().root.clone();
        for own in [root.clone(), root.join("objects")] {
            let error = test.store.backup(&own, |_| ()).await.unwrap_err();
            assert!(error.to_string().contains("another directory"), "{error}");
        }
        let other = test.directory.path().join("other");
        let used = Store::open(&StoreConfig::new(&other)).await.unwrap();
        push(&used, &name("a"), b"layer").await.unwrap();
        let error = test.store.backup(&other, |_| ()).await.unwrap_err();
        assert!(error.to_string().contains("root directory of a store"), "{error}");
        drop(used);
        let error = test.store.backup(&other, |_| ()).await.unwrap_err();
        assert!(error.to_string().contains("root directory of a store"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_backup_is_whole_whatever_goes_on_meanwhile() {
    if !is_supported() {
        return;
    }
    for test in engines(|config| config.grace = Duration::from_millis(20)).await {
        let is_over = Arc::new(AtomicBool::new(false));
        let pushing = tokio::spawn({
            let (store, is_over) = (test.store.clone(), Arc::clone(&is_over));
            async move {
                for number in 0_u32.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (a, bytes) = (name("a"), number.to_le_bytes());
                    push(&store, &a, &bytes).await.unwrap();
                    let new = manifest(&number.to_string(), vec![layer(&bytes)]);
                    if store.put_manifest(&a, &new, &[]).await.is_ok() && number % 2 == 0 {
                        store.delete_manifest(&a, &new.digest).await.unwrap();
                    }
                    store.collect(&CollectOptions::default()).await.unwrap();
                }
            }
        });
        for number in 0..6 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            let backup = test.directory.path().join(format!("backup{number}"));
            let backed_up = test.store.backup(&backup, |_| ()).await.unwrap();
            assert_eq!(backed_up.missing, 0);
            let root = test.directory.path().join(format!("restored{number}"));
            let restored = Store::restore(&root, &backup, |_| ()).await.unwrap();
            assert_eq!(restored.blobs, backed_up.blobs);
        }
        is_over.store(true, Ordering::Relaxed);
        pushing.await.unwrap();
    }
}
