//! Collection: what goes, what stays, and what a plan says.

use std::time::Duration;

use crate::common::*;
use xebec_store::*;

async fn tick() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}

async fn collect(store: &Store) -> Collected {
    tick().await;
    store.collect(&CollectOptions::default()).await.unwrap()
}

#[tokio::test]
async fn what_no_manifest_names_goes_in_three_steps() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"loose").await.unwrap();
        push(store, &a, b"kept").await.unwrap();
        store
            .put_manifest(&a, &manifest("m", vec![layer(b"kept")]), &[])
            .await
            .unwrap();
        let first = collect(store).await;
        assert_eq!(
            (first.unlinked, first.condemned, first.deleted),
            (1, 0, 0),
            "{}",
            test.engine
        );
        let second = collect(store).await;
        assert_eq!(
            (second.unlinked, second.condemned, second.condemned_bytes),
            (0, 1, 5)
        );
        assert!(
            store.any_blob(&digest(b"loose")).await.unwrap().is_some(),
            "a condemned blob is still here"
        );
        let plan = store.collect(&CollectOptions { dry_run: true }).await.unwrap();
        assert_eq!(files(&test), 2, "a plan deletes nothing");
        let third = collect(store).await;
        assert_eq!(
            (
                third.deleted,
                third.deleted_bytes,
                third.objects,
                third.object_bytes
            ),
            (1, 5, 1, 5)
        );
        assert!(plan.deleted <= 1);
        assert_eq!(files(&test), 1);
        assert_eq!(collect(store).await, Collected::default());
        assert!(store.blob(&a, &digest(b"kept")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_plan_says_what_a_collection_does() {
    for test in engines(|config| {
        config.grace = Duration::ZERO;
        config.upload_timeout = Duration::ZERO;
    })
    .await
    {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"unlinked").await.unwrap();
        push(store, &name("b"), b"condemned").await.unwrap();
        store
            .delete_blob(&name("b"), &digest(b"condemned"))
            .await
            .unwrap();
        let id = store.begin_upload(&a).await.unwrap();
        store.append(&a, &id, None, body(&[b"abandoned"])).await.unwrap();
        tick().await;
        let plan = store.collect(&CollectOptions { dry_run: true }).await.unwrap();
        assert_eq!(store.upload(&a, &id).await.unwrap(), Some(9), "{}", test.engine);
        let done = store.collect(&CollectOptions::default()).await.unwrap();
        let shared = |collected: &Collected| {
            (
                (collected.uploads, collected.upload_bytes),
                (collected.unlinked, collected.condemned, collected.condemned_bytes),
                (collected.deleted, collected.deleted_bytes),
            )
        };
        assert_eq!(shared(&plan), ((1, 9), (1, 1, 9), (0, 0)));
        assert_eq!(shared(&plan), shared(&done));
        assert_eq!(store.upload(&a, &id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn within_the_grace_time_nothing_goes() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"loose").await.unwrap();
        let id = store.begin_upload(&a).await.unwrap();
        store.append(&a, &id, None, body(&[b"unfinished"])).await.unwrap();
        assert_eq!(collect(store).await, Collected::default(), "{}", test.engine);
        assert_eq!(store.upload(&a, &id).await.unwrap(), Some(10));
    }
}

#[tokio::test]
async fn a_condemned_blob_is_revived_by_any_use() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"bytes").await.unwrap();
        collect(store).await;
        assert_eq!(collect(store).await.condemned, 1, "{}", test.engine);
        assert!(store.adopt_blob(&a, &digest(b"bytes")).await.unwrap().is_some());
        store
            .put_manifest(&a, &manifest("m", vec![layer(b"bytes")]), &[])
            .await
            .unwrap();
        assert_eq!(collect(store).await, Collected::default());
        assert_eq!(collect(store).await, Collected::default());
        let blob = store.blob(&a, &digest(b"bytes")).await.unwrap().unwrap();
        assert_eq!(contents(store, &blob).await, b"bytes");
    }
}

#[tokio::test]
async fn children_of_an_index_stay_whether_they_have_a_tag_or_not() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"layer").await.unwrap();
        let one = manifest("one", vec![layer(b"layer")]);
        store.put_manifest(&a, &one, &[]).await.unwrap();
        let index = manifest("index", vec![child(&one)]);
        store.put_manifest(&a, &index, &[tag("latest")]).await.unwrap();
        for _ in 0..4 {
            assert_eq!(collect(store).await, Collected::default(), "{}", test.engine);
        }
        assert!(store.manifest(&a, &one.digest).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_deleted_image_goes_with_all_that_it_alone_has() {
    for test in engines(no_grace).await {
        let store = &test.store;
        for repository in ["a", "b"] {
            let repository = name(repository);
            push(store, &repository, b"shared").await.unwrap();
            push(store, &repository, repository.as_str().as_bytes())
                .await
                .unwrap();
            let references = vec![layer(b"shared"), layer(repository.as_str().as_bytes())];
            store
                .put_manifest(&repository, &manifest("m", references), &[tag("x")])
                .await
                .unwrap();
        }
        store.delete_manifest(&name("a"), &digest(b"m")).await.unwrap();
        for _ in 0..4 {
            collect(store).await;
        }
        assert_eq!(
            store.repositories(9, None).await.unwrap().items,
            [name("b")],
            "{}",
            test.engine
        );
        assert_eq!(files(&test), 2);
        assert_eq!(store.usage("").await.unwrap().blobs, 2);
    }
}

/// More than one step of each kind.
#[tokio::test]
async fn a_collection_goes_on_after_each_step() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        for number in 0..600_u32 {
            let store = store.clone();
            let a = a.clone();
            push(&store, &a, &number.to_le_bytes()).await.unwrap();
        }
        assert_eq!(collect(store).await.unlinked, 600, "{}", test.engine);
        assert_eq!(collect(store).await.condemned, 600);
        let last = collect(store).await;
        assert_eq!((last.deleted, last.objects), (600, 600));
        assert_eq!(files(&test), 0);
    }
}
