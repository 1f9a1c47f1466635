//! The reserve: with less room nothing is taken, and everything else works.

use crate::common::*;
use xebec_store::*;

#[tokio::test]
async fn with_less_than_the_reserve_nothing_is_taken_and_deletions_work() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        let blob = push(store, &a, b"bytes").await.unwrap();
        let new = manifest("one", vec![layer(b"bytes")]);
        store.put_manifest(&a, &new, &[tag("v1")]).await.unwrap();
        let copy = NewManifest {
            is_pushed: false,
            ..manifest("copy", Vec::new())
        };
        // Somebody else has taken all the room.
        let mut config = config(test.directory.path());
        config.grace = std::time::Duration::ZERO;
        config.reserve = u64::MAX;
        let full = Store::open(&config).await.unwrap();
        assert_eq!(full.room().await, 0);
        let is_elsewhere =
            !full.has_objects_in_root() && !matches!(config.database, DatabaseConfig::Embedded);
        let refused = |result: Result<()>| {
            assert_eq!(
                matches!(result, Err(StoreError::Full { .. })),
                !is_elsewhere,
                "{}",
                test.engine
            );
        };
        refused(full.begin_upload(&a).await.map(|_| ()));
        refused(
            full.put_manifest(&a, &manifest("two", Vec::new()), &[])
                .await
                .map(|_| ()),
        );
        refused(full.put_copy(&a, &copy, &[]).await.map(|_| ()));
        // An upload that has begun ends when a MiB has come.
        let id = store.begin_upload(&a).await.unwrap();
        let large = vec![7; 3 << 20];
        let appended = full.append(&a, &id, None, body(&[large.as_slice()])).await;
        let is_refused = matches!(appended, Err(AppendError::Store(StoreError::Full { .. })));
        assert_eq!(is_refused, full.has_objects_in_root(), "{}", test.engine);
        assert!(full.cancel_upload(&a, &id).await.unwrap());
        assert_eq!(contents(&full, &blob).await, b"bytes");
        assert!(full.delete_tag(&a, &tag("v1")).await.unwrap());
        assert!(full.delete_manifest(&a, &new.digest).await.unwrap());
        full.collect(&CollectOptions::default()).await.unwrap();
    }
}
