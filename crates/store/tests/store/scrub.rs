//! Scrub: what is damaged is found, is absent, and is mended by the next push.

use std::time::{Duration, Instant};

use crate::common::*;
use xebec_store::*;

async fn scrub(store: &Store) -> Scrubbed {
    store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap()
}

#[tokio::test]
async fn what_is_damaged_is_found_and_mended_by_a_push() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let sound = push(store, &a, b"sound").await.unwrap();
        let wrong = push(store, &a, b"wrong").await.unwrap();
        let short = push(store, &a, b"short").await.unwrap();
        let lost = push(store, &a, b"lost").await.unwrap();
        let references = [&b"sound"[..], b"wrong", b"short", b"lost"].map(layer);
        store
            .put_manifest(&a, &manifest("m", references.into()), &[])
            .await
            .unwrap();
        let clean = scrub(store).await;
        assert_eq!(
            (clean.blobs, clean.manifests, clean.bytes),
            (4, 1, 5 + 5 + 5 + 4 + 1),
            "{}",
            test.engine
        );
        let path = |blob: &Blob| object(test.directory.path(), key(blob));
        std::fs::write(path(&wrong), b"wr0ng").unwrap();
        std::fs::write(path(&short), b"sho").unwrap();
        std::fs::remove_file(path(&lost)).unwrap();
        let found = scrub(store).await;
        let mut damaged = vec![wrong.digest.clone(), short.digest.clone()];
        damaged.sort();
        assert_eq!(
            (found.damaged, found.missing),
            (damaged, vec![lost.digest.clone()])
        );
        let again = ScrubOptions {
            not_within: Duration::from_secs(3600),
            ..ScrubOptions::default()
        };
        let again = store.scrub(&again, |_| ()).await.unwrap();
        assert_eq!(again.blobs, 3, "what is damaged is named until it is mended");
        assert_eq!(
            store.blob(&a, &wrong.digest).await.unwrap(),
            None,
            "a damaged blob is shown"
        );
        assert!(store.blob(&a, &sound.digest).await.unwrap().is_some());
        for bytes in [&b"wrong"[..], b"short", b"lost"] {
            let mended = push(store, &a, bytes).await.unwrap();
            assert_eq!(contents(store, &mended).await, bytes);
        }
        let mended = scrub(store).await;
        assert_eq!(
            (mended.damaged, mended.missing, mended.unreadable),
            (vec![], vec![], vec![])
        );
    }
}

#[tokio::test]
async fn a_scrub_keeps_its_rate_and_goes_on_where_it_was() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        for number in 0..4_u8 {
            push(store, &a, &[number; 10_000]).await.unwrap();
        }
        let begun = Instant::now();
        let options = ScrubOptions {
            bytes_per_second: Some(100_000),
            not_within: Duration::ZERO,
        };
        let mut reports = 0;
        let scrubbed = store.scrub(&options, |_| reports += 1).await.unwrap();
        assert_eq!((scrubbed.blobs, reports), (4, 4), "{}", test.engine);
        assert!(
            begun.elapsed() >= Duration::from_millis(390),
            "{:?}",
            begun.elapsed()
        );
        let options = ScrubOptions {
            not_within: Duration::from_secs(3600),
            ..options
        };
        assert_eq!(
            store.scrub(&options, |_| ()).await.unwrap().blobs,
            0,
            "what was read just now is read again"
        );
    }
}
