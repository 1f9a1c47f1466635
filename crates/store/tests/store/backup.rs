//! Backup while pushes and collections go on; restore of all of it or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use xebec_store::*;

/// Backups are of embedded records and files.
fn is_supported() -> bool {
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
        let path = |blob: &Blob| backup.join("objects").join(&blob.object);
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

#[tokio::test]
async fn a_backup_that_was_broken_off_is_none() {
    if !is_supported() {
        return;
    }
    for test in engines(|_| ()).await {
        push(&test.store, &name("a"), b"layer").await.unwrap();
        let backup = test.directory.path().join("backup");
        test.store.backup(&backup, |_| ()).await.unwrap();
        // What one that was killed before its last step leaves.
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
