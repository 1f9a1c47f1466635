//! Manifests and tags: taken whole or not at all.

use crate::common::*;
use crate::upgrade::raw::Raw;
use xebec_store::*;

#[tokio::test]
async fn a_manifest_needs_what_it_names() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"here").await.unwrap();
        push(store, &name("b"), b"there").await.unwrap();
        let new = manifest("one", vec![layer(b"here"), layer(b"there"), layer(b"nowhere")]);
        let error = store.put_manifest(&a, &new, &[tag("latest")]).await.unwrap_err();
        let StoreError::MissingReferences { missing, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(missing, [digest(b"there"), digest(b"nowhere")], "{}", test.engine);
        assert_eq!(store.tag(&a, &tag("latest")).await.unwrap(), None);
        assert_eq!(store.manifest(&a, &new.digest).await.unwrap(), None);
        // A layer that clients fetch elsewhere need not be here.
        let mut foreign = layer(b"nowhere");
        foreign.required = false;
        let new = manifest("two", vec![layer(b"here"), foreign]);
        let put = store.put_manifest(&a, &new, &[tag("latest")]).await.unwrap();
        assert_eq!(put.moved, [(tag("latest"), None)]);
        assert!(put.is_new);
        let found = store.tagged_manifest(&a, &tag("latest")).await.unwrap().unwrap();
        assert_eq!(found.content, new.content);
        assert_eq!(store.references(&a, &new.digest).await.unwrap().len(), 2);
    }
}

/// SQLite has one writer: a client that pushes a manifest that cannot be taken does not hold it meanwhile.
#[tokio::test]
async fn a_manifest_that_lacks_much_is_refused_while_another_writes() {
    if std::env::var_os(POSTGRES).is_some() {
        return;
    }
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"here").await.unwrap();
        let numbers = (0..150).map(|number: u32| layer(number.to_string().as_bytes()));
        let new = manifest(
            "many",
            numbers.clone().chain([layer(b"here")]).chain(numbers).collect(),
        );
        let mut raw = Raw::open(test.directory.path());
        raw.run("BEGIN IMMEDIATE");
        let error = store.put_manifest(&a, &new, &[]).await.unwrap_err();
        raw.run("ROLLBACK");
        let StoreError::MissingReferences { missing, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((missing.len(), &missing[149]), (150, &digest(b"149")));
    }
}

#[tokio::test]
async fn an_index_needs_its_manifests() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let one = manifest("one", Vec::new());
        let index = manifest("index", vec![child(&one)]);
        let error = store.put_manifest(&a, &index, &[]).await.unwrap_err();
        assert!(matches!(error, StoreError::MissingReferences { .. }), "{error}");
        store.put_manifest(&a, &one, &[]).await.unwrap();
        store.put_manifest(&a, &index, &[]).await.unwrap();
        assert!(
            store.manifest(&a, &index.digest).await.unwrap().is_some(),
            "{}",
            test.engine
        );
    }
}

/// An image is no more than what its tag leads to.
#[tokio::test]
async fn what_a_held_tag_leads_to_is_not_deleted() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"layer").await.unwrap();
        let image = manifest("image", vec![layer(b"layer")]);
        let index = manifest("index", vec![child(&image)]);
        let outer = manifest("index of an index", vec![child(&index)]);
        store.put_manifest(&a, &image, &[tag("loose")]).await.unwrap();
        store.put_manifest(&a, &index, &[]).await.unwrap();
        store.put_manifest(&a, &outer, &[tag("v1")]).await.unwrap();
        let held = || -> Option<IsHeld> { Some(Box::new(|tag| tag.as_str().starts_with('v'))) };
        let (layer, b) = (digest(b"layer"), name("b"));
        for digest in [&image.digest, &index.digest, &outer.digest] {
            let error = store
                .delete_manifest_unless(&a, digest, held())
                .await
                .unwrap_err();
            assert!(
                matches!(&error, StoreError::ImmutableTag { tag, digest, .. } if tag.as_str() == "v1" && *digest == outer.digest),
                "{error}"
            );
        }
        let error = store.delete_blob_unless(&a, &layer, held()).await.unwrap_err();
        assert!(matches!(error, StoreError::ImmutableTag { .. }), "{error}");
        assert!(store.peek_blob(&a, &layer).await.unwrap().is_some());
        // Tags of other repositories hold nothing here, and what is gone holds nothing.
        store
            .put_manifest(&b, &manifest("other", Vec::new()), &[])
            .await
            .unwrap();
        assert!(
            !store
                .delete_manifest_unless(&b, &image.digest, held())
                .await
                .unwrap()
        );
        assert!(store.delete_tag(&a, &tag("v1")).await.unwrap());
        assert!(
            store
                .delete_manifest_unless(&a, &image.digest, held())
                .await
                .unwrap()
        );
        assert!(
            store.delete_blob_unless(&a, &layer, held()).await.unwrap(),
            "{}",
            test.engine
        );
    }
}

#[tokio::test]
async fn tags_move_unless_they_may_not() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let (one, mut two) = (manifest("one", Vec::new()), manifest("two", Vec::new()));
        store.put_manifest(&a, &one, &[tag("x"), tag("y")]).await.unwrap();
        let put = store.put_manifest(&a, &one, &[tag("x")]).await.unwrap();
        assert_eq!(put, PutManifest::default(), "{}", test.engine);
        two.immutable = vec![tag("x")];
        let error = store
            .put_manifest(&a, &two, &[tag("y"), tag("x")])
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::ImmutableTag { .. }), "{error}");
        assert_eq!(
            store.tag(&a, &tag("y")).await.unwrap().unwrap().digest,
            one.digest
        );
        assert_eq!(store.manifest(&a, &two.digest).await.unwrap(), None);
        two.immutable.clear();
        let put = store.put_manifest(&a, &two, &[tag("x")]).await.unwrap();
        assert_eq!(put.moved, [(tag("x"), Some(one.digest.clone()))]);
        assert_eq!(store.tags_of(&a, &one.digest, 10).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_deleted_manifest_takes_its_tags_along() {
    for test in engines(|_| ()).await {
        let (store, a, b) = (&test.store, name("a"), name("b"));
        let one = manifest("one", Vec::new());
        store.put_manifest(&a, &one, &[tag("x"), tag("y")]).await.unwrap();
        store.put_manifest(&b, &one, &[tag("x")]).await.unwrap();
        assert!(store.delete_tag(&a, &tag("y")).await.unwrap());
        assert!(!store.delete_tag(&a, &tag("y")).await.unwrap());
        assert!(
            store.manifest(&a, &one.digest).await.unwrap().is_some(),
            "{}",
            test.engine
        );
        assert!(store.delete_manifest(&a, &one.digest).await.unwrap());
        assert!(!store.delete_manifest(&a, &one.digest).await.unwrap());
        assert_eq!(store.tag(&a, &tag("x")).await.unwrap(), None);
        let other = store.tagged_manifest(&b, &tag("x")).await.unwrap().unwrap();
        assert_eq!(other.content, one.content);
    }
}

#[tokio::test]
async fn a_manifest_is_what_it_is_called_and_not_too_large() {
    for test in engines(|config| config.max_manifest = 5).await {
        let (store, a) = (&test.store, name("a"));
        let mut wrong = manifest("one", Vec::new());
        wrong.digest = digest(b"two");
        let error = store.put_manifest(&a, &wrong, &[]).await.unwrap_err();
        assert!(matches!(error, StoreError::DigestMismatch { .. }), "{error}");
        let error = store
            .put_manifest(&a, &manifest("larger", Vec::new()), &[])
            .await
            .unwrap_err();
        assert!(
            matches!(error, StoreError::ManifestTooLarge { size: 6, limit: 5 }),
            "{error}"
        );
        assert_eq!(
            store.repositories(10, None).await.unwrap().items,
            [],
            "{}",
            test.engine
        );
    }
}

#[tokio::test]
async fn pulls_are_noted() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let one = manifest("one", Vec::new());
        store.put_manifest(&a, &one, &[tag("x"), tag("y")]).await.unwrap();
        store.note_pull(&a, &one.digest, Some(&tag("x")), 0);
        store.note_pull(&name("unknown"), &one.digest, None, 0);
        store.write_pulls().await.unwrap();
        assert_ne!(
            store.tag(&a, &tag("x")).await.unwrap().unwrap().pulled,
            0,
            "{}",
            test.engine
        );
        assert_eq!(store.tag(&a, &tag("y")).await.unwrap().unwrap().pulled, 0);
        assert_ne!(store.manifest(&a, &one.digest).await.unwrap().unwrap().pulled, 0);
    }
}

#[tokio::test]
async fn pulls_that_could_not_be_written_are_written_later() {
    if std::env::var_os(POSTGRES).is_some() {
        return;
    }
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let one = manifest("one", Vec::new());
        store.put_manifest(&a, &one, &[]).await.unwrap();
        let raw = rusqlite::Connection::open(test.directory.path().join("records.db")).unwrap();
        let refuse =
            "CREATE TRIGGER refuse BEFORE UPDATE ON manifests BEGIN SELECT RAISE(ABORT, 'refused'); END";
        raw.execute_batch(refuse).unwrap();
        store.note_pull(&a, &one.digest, None, u64::MAX);
        assert!(store.write_pulls().await.is_err());
        raw.execute_batch("DROP TRIGGER refuse").unwrap();
        store.write_pulls().await.unwrap();
        let found = store.manifest(&a, &one.digest).await.unwrap();
        assert_ne!(found.unwrap().pulled, 0);
    }
}

/// The pull was noted before the second began, and is in no record while the first writes it: a process that ended then would have lost it.
#[tokio::test]
async fn when_pulls_are_written_all_are_that_were_noted_before() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let one = manifest("one", Vec::new());
        store.put_manifest(&a, &one, &[]).await.unwrap();
        store.note_pull(&a, &one.digest, None, u64::MAX);
        let (mut first, mut second) = (Box::pin(store.write_pulls()), Box::pin(store.write_pulls()));
        let is_written = futures_util::poll!(&mut first).is_ready();
        // While the first has its turn, whatever the database has done by then.
        let waits = futures_util::poll!(&mut second).is_pending();
        assert!(is_written || waits, "{}", test.engine);
        if !is_written {
            first.await.unwrap();
        }
        if waits {
            second.await.unwrap();
        }
        assert_ne!(store.manifest(&a, &one.digest).await.unwrap().unwrap().pulled, 0);
    }
}
