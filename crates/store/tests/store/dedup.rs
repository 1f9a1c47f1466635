//! The blobs that wait to be taken apart, as a deduplicator takes them.

use std::time::Duration;

use crate::common::*;
use crate::toy::*;
use xebec_store::*;

const LEASE: Duration = Duration::from_secs(60);

async fn pause() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}

#[tokio::test]
async fn blobs_are_taken_once_each_the_oldest_first() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        for bytes in [&b"first"[..], b"second", b"tiny"] {
            push(store, &a, bytes).await.unwrap();
            pause().await;
        }
        assert_eq!(store.space().await.unwrap().waiting, 3, "{}", test.engine);
        let first = store.take_dedup(LEASE, 5).await.unwrap().unwrap();
        assert_eq!((first.blob.digest.clone(), first.tries), (digest(b"first"), 1));
        let second = store.take_dedup(LEASE, 5).await.unwrap().unwrap();
        assert_eq!(second.blob.digest, digest(b"second"));
        assert_eq!(
            store.take_dedup(LEASE, 5).await.unwrap(),
            None,
            "one is too small"
        );
        store
            .settle_dedup(&first, "its encoder is unknown")
            .await
            .unwrap();
        store
            .postpone_dedup(&second, Duration::ZERO, "no room")
            .await
            .unwrap();
        let again = store.take_dedup(LEASE, 5).await.unwrap().unwrap();
        assert_eq!((again.blob, again.tries), (second.blob, 2));
        let space = store.space().await.unwrap();
        assert_eq!((space.waiting, space.small), (1, 1));
        assert_eq!(space.kept, [("its encoder is unknown".to_owned(), 1)]);
        // The process that had taken it is gone, and the limit is another one now.
        assert_eq!(store.release_dedup(4).await.unwrap(), 2);
        assert_eq!(store.retry_dedup_by("2").await.unwrap(), 1);
        assert_eq!(store.retry_dedup_by("2").await.unwrap(), 0);
        let mut taken = Vec::new();
        while let Some(task) = store.take_dedup(LEASE, 4).await.unwrap() {
            taken.push(task.blob.size);
        }
        taken.sort_unstable();
        assert_eq!(taken, [4, 5, 6], "{}", test.engine);
    }
}

#[tokio::test]
async fn a_blob_that_nobody_has_or_that_is_damaged_is_not_taken() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        push(store, &a, b"deleted").await.unwrap();
        let damaged = push(store, &a, b"damaged").await.unwrap();
        std::fs::write(object(test.directory.path(), key(&damaged)), b"daMaged").unwrap();
        store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
        store.delete_blob(&a, &digest(b"deleted")).await.unwrap();
        assert_eq!(store.take_dedup(LEASE, 1).await.unwrap(), None, "{}", test.engine);
        // A push mends it, and it waits.
        push(store, &a, b"damaged").await.unwrap();
        let task = store.take_dedup(LEASE, 1).await.unwrap().unwrap();
        assert_eq!(task.blob.digest, digest(b"damaged"));
        let stale = DedupTask {
            blob: damaged,
            tries: 1,
        };
        store.settle_dedup(&stale, "an earlier object's").await.unwrap();
        assert_eq!(store.space().await.unwrap().kept, []);
    }
}

#[tokio::test]
async fn many_small_blobs_keep_no_large_one_waiting() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        for number in 0..80_u8 {
            push(store, &a, &[number; 3]).await.unwrap();
        }
        pause().await;
        push(store, &a, b"large").await.unwrap();
        let task = store.take_dedup(LEASE, 5).await.unwrap().unwrap();
        assert_eq!(task.blob.digest, digest(b"large"), "{}", test.engine);
        assert_eq!(store.space().await.unwrap().waiting, 1);
    }
}

#[tokio::test]
async fn a_draft_that_is_too_large_is_refused_and_one_that_nobody_needs_goes() {
    for test in engines(|config| config.upload_timeout = Duration::from_millis(20)).await {
        let store = &test.store;
        let piece = bytes::Bytes::from(vec![0; 1 << 20]);
        let refused = store.put_draft(vec![piece; 65]).await.unwrap_err();
        assert!(refused.to_string().contains("at most"), "{refused}");
        let draft = store.put_draft(vec!["one ".into(), "two".into()]).await.unwrap();
        assert_eq!(draft.size, 7);
        let reader = store.read_object(&draft.object, 2..6).await.unwrap();
        let pieces: Vec<_> = futures_util::StreamExt::collect::<Vec<_>>(reader).await;
        let read: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.unwrap()).collect();
        assert_eq!(read, b"e tw");
        assert!(store.drop_draft(&draft).await.unwrap());
        assert!(!store.drop_draft(&draft).await.unwrap());
        files_become(&test, 0).await;
        store.put_draft(vec!["old".into()]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(40)).await;
        let dry = CollectOptions { dry_run: true };
        for options in [dry, CollectOptions::default()] {
            let collected = store.collect(&options).await.unwrap();
            let found = (collected.drafts, collected.draft_bytes);
            assert_eq!(found, (1, 3), "{}, {options:?}", test.engine);
        }
        files_become(&test, 0).await;
    }
}

#[tokio::test]
async fn the_room_of_everything_is_added_up() {
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (one, two) = (of_chunks(&[1, 2, 3]), of_chunks(&[1, 2, 4]));
        push(store, &a, b"kept").await.unwrap();
        let task = store.take_dedup(LEASE, 1).await.unwrap().unwrap();
        store.settle_dedup(&task, "it is small").await.unwrap();
        push_apart(store, &a, &one).await;
        push_apart(store, &a, &two).await;
        let space = store.space().await.unwrap();
        let bytes = one.len() as u64;
        assert_eq!(bytes, 195);
        let wanted = Space {
            blobs: 3,
            blob_bytes: 2 * bytes + 4,
            intact: 1,
            intact_bytes: 4,
            packs: 2,
            // Two bytes more for each chunk.
            pack_bytes: 4 * 64 + 6 + 2 * 6,
            chunks: 6,
            chunk_bytes: 4 * 64 + 6,
            recipes: 2,
            recipe_bytes: 2 * 4 * 32,
            plain_bytes: 2 * bytes,
            waiting: 0,
            small: 0,
            kept_blobs: 1,
            kept: vec![("it is small".to_owned(), 1)],
            ..Space::default()
        };
        assert_eq!(space, wanted, "{}", test.engine);
        let of_repository = RepositorySpace {
            blobs: 3,
            bytes: 2 * bytes + 4,
            recipes: 2,
            recipe_bytes: 2 * bytes,
        };
        let found = store.repository_space(&a).await.unwrap();
        assert_eq!(found, Some(of_repository), "{}", test.engine);
        assert_eq!(store.repository_space(&name("none")).await.unwrap(), None);
        // For a minute it is remembered.
        assert_eq!(*store.space_of_late().await.unwrap(), wanted);
        push(store, &name("b"), b"one more").await.unwrap();
        assert_eq!(*store.space_of_late().await.unwrap(), wanted);
        assert_eq!(store.space().await.unwrap().blobs, 4);
    }
}
