//! Manifests that are removed because nobody uses them: none that somebody pushed or pulled meanwhile.

use std::sync::Arc;

use crate::common::*;
use xebec_store::*;

fn copy(text: &str) -> NewManifest {
    let mut copy = manifest(text, Vec::new());
    copy.is_pushed = false;
    copy
}

async fn held(store: &Store, repository: &RepositoryName, digest: &Digest) -> Holding {
    let page = store.holdings(repository, 100, None).await.unwrap();
    assert!(!page.next);
    let mut found = page.items.into_iter();
    found.find(|holding| holding.digest == *digest).unwrap()
}

fn unused(manifests: &[&NewManifest], since: u64, is_copy: bool) -> Unused {
    Unused {
        manifests: manifests.iter().map(|new| new.digest.clone()).collect(),
        since,
        is_copy,
    }
}

#[tokio::test]
async fn holdings_say_who_pushed_what_and_what_room_it_takes() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"layer").await.unwrap();
        // One that the repository lacks takes no room.
        let mut here = manifest("here", vec![layer(b"layer")]);
        let mut elsewhere = layer(b"elsewhere");
        elsewhere.required = false;
        here.references.push(elsewhere);
        store.put_manifest(&a, &here, &[]).await.unwrap();
        let mut index = copy("index");
        index.references = vec![Reference {
            kind: ReferenceKind::Manifest,
            digest: here.digest.clone(),
            required: true,
        }];
        store.put_manifest(&a, &index, &[]).await.unwrap();
        let found = held(store, &a, &here.digest).await;
        assert_eq!(found.blobs, [(digest(b"layer"), 5)], "{}", test.engine);
        assert!(found.pushed >= found.created && found.created > 0);
        let found = held(store, &a, &index.digest).await;
        assert_eq!((found.pushed, found.children), (0, vec![here.digest.clone()]));
        // A client's push counts from then on; that an upstream has it, too, changes nothing.
        index.is_pushed = true;
        store.put_manifest(&a, &index, &[]).await.unwrap();
        index.is_pushed = false;
        store.put_manifest(&a, &index, &[]).await.unwrap();
        assert!(held(store, &a, &index.digest).await.pushed > 0);
        let one = store.holdings(&a, 1, None).await.unwrap();
        assert!(one.next);
        let last = one.items.last().map(|holding| holding.digest.clone());
        let other = store.holdings(&a, 1, last.as_ref()).await.unwrap();
        assert_eq!((other.items.len(), other.next), (1, false));
        assert_ne!(one.items, other.items);
    }
}

#[tokio::test]
async fn copies_go_with_their_tags_unless_one_of_them_is_in_use() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        let (one, other) = (copy("one"), copy("other"));
        store.put_manifest(&a, &one, &[tag("v1")]).await.unwrap();
        store.put_manifest(&a, &other, &[]).await.unwrap();
        let seen = held(store, &a, &one.digest)
            .await
            .created
            .max(held(store, &a, &other.digest).await.created);
        let both = |since| unused(&[&one, &other], since, true);
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        store.note_pull(&a, &other.digest, None, 0);
        store.write_pulls().await.unwrap();
        assert!(
            !store.remove_unused(&a, &both(seen)).await.unwrap(),
            "one was pulled: {}",
            test.engine
        );
        let seen = held(store, &a, &other.digest).await.pulled;
        // Somebody attaches a signature.
        let mut signature = manifest("signature", Vec::new());
        signature.subject = Some(one.digest.clone());
        store.put_manifest(&a, &signature, &[]).await.unwrap();
        assert!(
            !store.remove_unused(&a, &both(seen)).await.unwrap(),
            "one has a signature"
        );
        store.delete_manifest(&a, &signature.digest).await.unwrap();
        // The tag is confirmed.
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        store.put_manifest(&a, &one, &[tag("v1")]).await.unwrap();
        assert!(
            !store.remove_unused(&a, &both(seen)).await.unwrap(),
            "the tag was asked for"
        );
        let seen = store.tag(&a, &tag("v1")).await.unwrap().unwrap().updated;
        assert!(
            store.manifest(&a, &other.digest).await.unwrap().is_some(),
            "all or none"
        );
        assert!(store.remove_unused(&a, &both(seen)).await.unwrap());
        assert_eq!(store.tag(&a, &tag("v1")).await.unwrap(), None);
        assert_eq!(store.manifest(&a, &other.digest).await.unwrap(), None);
        // A client pushes it.
        let mut pushed = one.clone();
        pushed.is_pushed = true;
        store.put_manifest(&a, &pushed, &[]).await.unwrap();
        assert!(
            !store.remove_unused(&a, &both(u64::MAX)).await.unwrap(),
            "one was pushed"
        );
    }
}

/// By its name or by its digest, in this process or another: what a client was answered moments ago stays.
#[tokio::test]
async fn a_tag_stays_that_was_pulled_a_moment_ago() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        let other = Store::open(store.config()).await.unwrap();
        let one = manifest("one", Vec::new());
        store.put_manifest(&a, &one, &[tag("v1")]).await.unwrap();
        for by_tag in [true, false] {
            // No rule's decision, of this process or the other, has seen the pull.
            let seen = store.tag(&a, &tag("v1")).await.unwrap().unwrap();
            let pulled = held(store, &a, &one.digest).await.pulled;
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            let v1 = tag("v1");
            store.note_pull(&a, &one.digest, by_tag.then_some(&v1), now());
            assert!(
                !store.remove_unused_tag(&a, &seen, pulled).await.unwrap(),
                "by tag: {by_tag}, {}",
                test.engine
            );
        }
        let before = held(&other, &a, &one.digest).await.pulled;
        let long_ago = 1;
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        store.note_pull(&a, &one.digest, None, long_ago);
        let mut known = before;
        for _ in 0..500 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            known = held(&other, &a, &one.digest).await.pulled;
            if known > before {
                break;
            }
        }
        assert!(known > before, "another process does not learn of the pull");
        let seen = other.tag(&a, &tag("v1")).await.unwrap().unwrap();
        assert!(!other.remove_unused_tag(&a, &seen, before).await.unwrap());
        assert!(other.remove_unused_tag(&a, &seen, known).await.unwrap());
    }
}

fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[tokio::test]
async fn a_manifest_goes_by_itself_only_while_nothing_leads_to_it() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        let one = manifest("one", Vec::new());
        store.put_manifest(&a, &one, &[tag("v1")]).await.unwrap();
        let alone = unused(&[&one], u64::MAX, false);
        assert!(
            !store.remove_unused(&a, &alone).await.unwrap(),
            "a tag: {}",
            test.engine
        );
        let seen = store.tag(&a, &tag("v1")).await.unwrap().unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        store.put_manifest(&a, &one, &[tag("v1")]).await.unwrap();
        assert!(
            !store.remove_unused_tag(&a, &seen, 0).await.unwrap(),
            "it was pushed again"
        );
        let seen = store.tag(&a, &tag("v1")).await.unwrap().unwrap();
        let mut signature = manifest("signature", Vec::new());
        signature.subject = Some(one.digest.clone());
        store.put_manifest(&a, &signature, &[]).await.unwrap();
        let signature = unused(&[&signature], u64::MAX, false);
        assert!(
            !store.remove_unused(&a, &signature).await.unwrap(),
            "what it refers to has its tag yet"
        );
        assert!(store.remove_unused_tag(&a, &seen, 0).await.unwrap());
        assert!(store.remove_unused(&a, &signature).await.unwrap());
        let mut index = manifest("index", Vec::new());
        index.references = vec![Reference {
            kind: ReferenceKind::Manifest,
            digest: one.digest.clone(),
            required: true,
        }];
        store.put_manifest(&a, &index, &[]).await.unwrap();
        assert!(!store.remove_unused(&a, &alone).await.unwrap(), "an index");
        store.delete_manifest(&a, &index.digest).await.unwrap();
        assert!(store.remove_unused(&a, &alone).await.unwrap());
        assert!(!store.remove_unused(&a, &alone).await.unwrap(), "it is gone");
    }
}

/// Clients tag a manifest by its digest while retention takes manifests without a tag: a client that was told that the push was taken
/// finds what it pushed.
#[tokio::test(flavor = "multi_thread")]
async fn no_push_that_was_acknowledged_is_lost_to_a_removal() {
    for test in engines(no_grace).await {
        let (store, a) = (Arc::new(test.store.clone()), name("a"));
        let new = manifest("raced", Vec::new());
        for _ in 0..150 {
            store.put_manifest(&a, &new, &[]).await.unwrap();
            let since = held(&store, &a, &new.digest).await.pushed;
            let removing = tokio::spawn({
                let (store, a, new) = (store.clone(), a.clone(), new.clone());
                async move {
                    store
                        .remove_unused(&a, &unused(&[&new], since, false))
                        .await
                        .unwrap()
                }
            });
            store.put_manifest(&a, &new, &[tag("v1")]).await.unwrap();
            removing.await.unwrap();
            let found = store.tagged_manifest(&a, &tag("v1")).await.unwrap();
            assert!(found.is_some(), "{}: the push was lost", test.engine);
            store.delete_manifest(&a, &new.digest).await.unwrap();
        }
    }
}
