//! Manifests and tags that come from an upstream leave those alone that clients have pushed.

use crate::common::*;
use xebec_store::*;

fn copy(text: &str) -> NewManifest {
    NewManifest {
        is_pushed: false,
        ..manifest(text, Vec::new())
    }
}

async fn named(store: &Store, repository: &RepositoryName, text: &str) -> Digest {
    store.tag(repository, &tag(text)).await.unwrap().unwrap().digest
}

#[tokio::test]
async fn a_copy_moves_no_tag_that_a_client_pushed() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let (pushed, theirs, later) = (manifest("pushed", Vec::new()), copy("theirs"), copy("later"));
        store.put_manifest(&a, &pushed, &[tag("mine")]).await.unwrap();
        let put = store
            .put_copy(&a, &theirs, &[tag("mine"), tag("v1")])
            .await
            .unwrap();
        assert_eq!(put.moved, [(tag("v1"), None)], "{}", test.engine);
        assert_eq!(named(store, &a, "mine").await, pushed.digest);
        assert!(store.is_own_tag(&a, &tag("mine")).await.unwrap());
        // Its own tags it moves.
        assert!(!store.is_own_tag(&a, &tag("v1")).await.unwrap());
        store.put_copy(&a, &later, &[tag("v1")]).await.unwrap();
        assert_eq!(named(store, &a, "v1").await, later.digest);
        // A tag of theirs that came to name what a client had pushed before is theirs all the same.
        pause().await;
        let same = NewManifest {
            is_pushed: false,
            ..pushed.clone()
        };
        store.put_copy(&a, &same, &[tag("v1")]).await.unwrap();
        assert!(!store.is_own_tag(&a, &tag("v1")).await.unwrap());
        assert!(store.is_own_tag(&a, &tag("mine")).await.unwrap());
        // And a client may take one over.
        store.put_manifest(&a, &pushed, &[tag("v1")]).await.unwrap();
        store.put_copy(&a, &later, &[tag("v1")]).await.unwrap();
        assert_eq!(named(store, &a, "v1").await, pushed.digest);
    }
}

#[tokio::test]
async fn a_copy_moves_no_immutable_tag_and_sets_one_that_is_not_there() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let of = |text: &str| NewManifest {
            immutable: vec![tag("v1")],
            ..copy(text)
        };
        let (first, second) = (of("first"), of("second"));
        store.put_copy(&a, &first, &[tag("v1")]).await.unwrap();
        let put = store
            .put_copy(&a, &second, &[tag("v1"), tag("edge")])
            .await
            .unwrap();
        assert_eq!(put.moved, [(tag("edge"), None)], "{}", test.engine);
        assert_eq!(named(store, &a, "v1").await, first.digest);
        assert!(!store.is_own_tag(&a, &tag("v1")).await.unwrap());
        assert!(!store.is_own_tag(&a, &tag("none")).await.unwrap());
        assert!(!store.is_own_tag(&name("b"), &tag("v1")).await.unwrap());
    }
}

/// Until the clock of the records has gone on.
async fn pause() {
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
}
