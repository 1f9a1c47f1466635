//! Blobs: what is pushed is read again, and only by those who have it.

use crate::common::*;
use xebec_store::*;

#[tokio::test]
async fn what_is_pushed_is_read_again() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        let a = name("a");
        let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at / 7) as u8).collect();
        let blob = push(store, &a, &bytes).await.unwrap();
        assert_eq!(blob.size, 700_000, "{}", test.engine);
        assert_eq!(contents(store, &blob).await, bytes);
        assert_eq!(
            range(store, &blob, 131_000..400_001).await,
            bytes[131_000..400_001]
        );
        assert_eq!(range(store, &blob, 699_999..u64::MAX).await, bytes[699_999..]);
        assert_eq!(range(store, &blob, 900_000..900_001).await, b"");
        assert_eq!(store.blob(&a, &blob.digest).await.unwrap(), Some(blob.clone()));
        // Another store over the same directory sees the same.
        let again = Store::open(store.config()).await.unwrap();
        let found = again.blob(&a, &blob.digest).await.unwrap().unwrap();
        assert_eq!(contents(&again, &found).await, bytes);
    }
}

#[tokio::test]
async fn an_empty_blob_is_a_blob() {
    for test in engines(|_| ()).await {
        let blob = push(&test.store, &name("a"), b"").await.unwrap();
        assert_eq!(contents(&test.store, &blob).await, b"");
    }
}

#[tokio::test]
async fn blobs_belong_to_repositories() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        let (a, b, c) = (name("a"), name("b"), name("c"));
        let blob = push(store, &a, b"bytes").await.unwrap();
        assert_eq!(store.blob(&b, &blob.digest).await.unwrap(), None);
        assert_eq!(store.any_blob(&blob.digest).await.unwrap(), Some(blob.clone()));
        assert_eq!(
            store.mount(&b, &blob.digest, None).await.unwrap(),
            None,
            "{}",
            test.engine
        );
        assert_eq!(store.mount(&b, &blob.digest, Some(&c)).await.unwrap(), None);
        assert_eq!(
            store.mount(&b, &blob.digest, Some(&a)).await.unwrap(),
            Some(blob.clone())
        );
        assert_eq!(store.blob(&b, &blob.digest).await.unwrap(), Some(blob.clone()));
        assert_eq!(
            store
                .mount_from_any(&c, &blob.digest, &[name("d"), b.clone()])
                .await
                .unwrap(),
            Some(blob.clone())
        );
        assert!(store.delete_blob(&a, &blob.digest).await.unwrap());
        assert!(!store.delete_blob(&a, &blob.digest).await.unwrap());
        assert_eq!(store.blob(&a, &blob.digest).await.unwrap(), None);
        assert_eq!(store.blob(&b, &blob.digest).await.unwrap(), Some(blob));
    }
}

#[tokio::test]
async fn the_same_bytes_are_kept_once() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        let first = push(store, &name("a"), b"bytes").await.unwrap();
        let second = push(store, &name("b"), b"bytes").await.unwrap();
        assert_eq!(first, second, "{}", test.engine);
        files_become(&test, 1).await;
        assert_eq!(contents(store, &second).await, b"bytes");
        assert_eq!(store.usage("").await.unwrap().bytes, 5);
    }
}

#[tokio::test]
async fn a_push_mends_a_record_without_an_object() {
    for test in engines(|_| ()).await {
        let store = &test.store;
        let first = push(store, &name("a"), b"bytes").await.unwrap();
        std::fs::remove_file(object(test.directory.path(), key(&first))).unwrap();
        let Err(lost) = store.read(&first, 0..5).await else {
            panic!("a missing object is read")
        };
        assert!(matches!(lost, StoreError::Lost(_)), "{lost}");
        let second = push(store, &name("a"), b"bytes").await.unwrap();
        assert_ne!(first.object, second.object);
        // A reader that holds the old record reads the new object.
        assert_eq!(contents(store, &first).await, b"bytes");
    }
}

#[tokio::test]
async fn a_blob_whose_object_is_gone_is_absent_once_that_is_noticed() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let read = push(store, &a, b"read").await.unwrap();
        let looked_at = push(store, &a, b"looked at").await.unwrap();
        let cut = push(store, &a, b"cut").await.unwrap();
        assert!(store.is_whole(&read).await.unwrap());
        let path = |blob: &Blob| object(test.directory.path(), key(blob));
        let kept = std::fs::read(path(&read)).unwrap();
        std::fs::remove_file(path(&read)).unwrap();
        std::fs::remove_file(path(&looked_at)).unwrap();
        std::fs::write(path(&cut), b"cu").unwrap();
        assert!(store.read(&read, 0..4).await.is_err());
        assert!(!store.is_whole(&looked_at).await.unwrap());
        assert!(!store.is_whole(&cut).await.unwrap());
        for blob in [&read, &looked_at, &cut] {
            let found = store.blob(&a, &blob.digest).await.unwrap();
            assert_eq!(found, None, "{}", test.engine);
        }
        // A client that pushes it again mends it, and a holder of the old record sees the new object.
        push(store, &a, b"looked at").await.unwrap();
        assert!(store.blob(&a, &looked_at.digest).await.unwrap().is_some());
        assert!(store.is_whole(&looked_at).await.unwrap());
        // So does a scrub that finds the object again.
        std::fs::write(path(&read), kept).unwrap();
        store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
        assert!(store.blob(&a, &read.digest).await.unwrap().is_some());
    }
}
