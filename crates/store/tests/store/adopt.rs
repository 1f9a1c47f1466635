//! Files that become blobs without being copied.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::common::*;
use xebec_store::*;

fn file(test: &TestStore, bytes: &[u8]) -> PathBuf {
    let path = test.directory.path().join("theirs");
    fs::write(&path, bytes).unwrap();
    path
}

/// Whether the engines have files that can be adopted; says so if not.
fn have_files() -> bool {
    let is_s3 = std::env::var_os(S3).is_some();
    if is_s3 {
        println!("SKIPPED: objects in a bucket are no files");
    }
    !is_s3
}

#[tokio::test]
async fn a_file_gets_a_second_name_and_is_a_blob() {
    for test in engines(no_grace).await {
        if !have_files() {
            return;
        }
        let (store, a) = (&test.store, name("a"));
        let path = file(&test, b"bytes of theirs");
        let wanted = digest(b"bytes of theirs");
        let blob = store
            .adopt_file(&a, &wanted, File::open(&path).unwrap())
            .await
            .unwrap();
        assert_eq!((blob.size, &blob.digest), (15, &wanted));
        let ours = object(test.directory.path(), key(&blob));
        assert_eq!(
            fs::metadata(&ours).unwrap().ino(),
            fs::metadata(&path).unwrap().ino()
        );
        assert_eq!(store.blob(&a, &wanted).await.unwrap(), Some(blob.clone()));
        assert_eq!(contents(store, &blob).await, b"bytes of theirs");
        // A collection deletes only one name of the file.
        collect_all(&test).await;
        assert_eq!(files(&test), 0);
        assert_eq!(fs::read(&path).unwrap(), b"bytes of theirs");
    }
}

#[tokio::test]
async fn a_file_with_other_bytes_leaves_nothing() {
    for test in engines(no_grace).await {
        if !have_files() {
            return;
        }
        let (store, a) = (&test.store, name("a"));
        let path = file(&test, b"other bytes");
        let adopted = store
            .adopt_file(&a, &digest(b"bytes"), File::open(&path).unwrap())
            .await;
        assert!(
            matches!(adopted, Err(StoreError::DigestMismatch { .. })),
            "{adopted:?}"
        );
        assert_eq!(files(&test), 0);
        assert_eq!(store.usage("").await.unwrap(), Usage::default());
        assert_eq!(store.blob(&a, &digest(b"bytes")).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_file_of_a_blob_that_is_here_is_let_go() {
    for test in engines(no_grace).await {
        if !have_files() {
            return;
        }
        let (store, a) = (&test.store, name("a"));
        let pushed = push(store, &a, b"bytes").await.unwrap();
        let path = file(&test, b"bytes");
        let b = name("b");
        let adopted = store
            .adopt_file(&b, &pushed.digest, File::open(&path).unwrap())
            .await
            .unwrap();
        assert_eq!(adopted, pushed);
        assert_eq!(store.blob(&b, &pushed.digest).await.unwrap(), Some(pushed));
        files_become(&test, 1).await;
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
    }
}

#[tokio::test]
async fn a_file_that_has_no_name_any_more_cannot_be_had() {
    for test in engines(no_grace).await {
        if !have_files() {
            return;
        }
        let (store, a) = (&test.store, name("a"));
        let path = file(&test, b"bytes");
        let opened = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let adopted = store.adopt_file(&a, &digest(b"bytes"), opened).await;
        assert!(matches!(adopted, Err(StoreError::Object { .. })), "{adopted:?}");
        // The upload that was begun for it is ended.
        assert_eq!(store.usage("").await.unwrap(), Usage::default());
        files_become(&test, 0).await;
    }
}
