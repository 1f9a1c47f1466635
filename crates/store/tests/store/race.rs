//! Pushes against collections on a real store, with a grace time so short that blobs come and go all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use crate::toy::*;
use xebec_store::*;

const GRACE: Duration = Duration::from_millis(80);
const RUN: Duration = Duration::from_secs(2);
/// On a machine that is busy it takes longer until enough was tried.
const LONGEST: Duration = Duration::from_secs(60);
/// Few, so that pushers meet blobs that others have, had, or are losing.
const BLOBS: u8 = 3;

fn bytes(number: u8) -> Vec<u8> {
    vec![number; 1000 + usize::from(number)]
}

/// Pushes, looks or mounts, then pushes a manifest, looks at all of it, deletes it; again and again. How often a manifest was taken,
/// and how often it was refused although the promise held.
async fn work(store: Store, worker: u64, is_over: Arc<AtomicBool>) -> (u32, u32) {
    let (mut taken, mut refused) = (0, 0);
    let mut random = fastrand::Rng::with_seed(worker);
    let mine = name(&format!("worker{}", worker % 3));
    for round in 0_u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let content = bytes(random.u8(..BLOBS));
        let promised = Instant::now();
        let from = name(&format!("worker{}", random.u8(..3)));
        let is_here = match random.u8(..3) {
            0 => store.blob(&mine, &digest(&content)).await.unwrap().is_some(),
            1 => store
                .mount(&mine, &digest(&content), Some(&from))
                .await
                .unwrap()
                .is_some(),
            _ => false,
        };
        if !is_here {
            push(&store, &mine, &content).await.unwrap();
        }
        let new = manifest(&format!("{worker} {round}"), vec![layer(&content)]);
        match store.put_manifest(&mine, &new, &[]).await {
            Ok(_) => taken += 1,
            Err(StoreError::MissingReferences { .. }) => {
                // A machine that was busy for so long may break the promise.
                refused += u32::from(promised.elapsed() < GRACE / 2);
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(random.u64(..100))).await;
        let blob = store.peek_blob(&mine, &digest(&content)).await.unwrap();
        let blob = blob.expect("the blob of a manifest that was taken");
        assert_eq!(contents(&store, &blob).await, content);
        assert!(store.delete_manifest(&mine, &new.digest).await.unwrap());
        // Now and then long enough for the blob to go.
        tokio::time::sleep(Duration::from_millis(random.u64(..6) * random.u64(..80))).await;
    }
    (taken, refused)
}

/// Takes blobs apart; how many.
async fn take_apart(store: Store, is_over: Arc<AtomicBool>) -> u32 {
    let mut taken = 0;
    while !is_over.load(Ordering::Relaxed) {
        match take_next(&store, true).await {
            Some(Recording::Recorded(_)) => taken += 1,
            Some(_) => {}
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread")]
async fn no_push_loses_a_blob_to_a_collection() {
    for test in engines(|config| config.grace = GRACE).await {
        let begun = Instant::now();
        let is_over = Arc::new(AtomicBool::new(false));
        let worker = |worker| tokio::spawn(work(test.store.clone(), worker, Arc::clone(&is_over)));
        let workers: Vec<_> = (0..6).map(worker).collect();
        with_toy(&test.store);
        let deduplicators =
            [(); 2].map(|()| tokio::spawn(take_apart(test.store.clone(), Arc::clone(&is_over))));
        let mut deleted = 0;
        while begun.elapsed() < RUN || deleted < 5 && begun.elapsed() < LONGEST {
            let collected = test.store.collect(&CollectOptions::default()).await.unwrap();
            deleted += collected.deleted;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        is_over.store(true, Ordering::Relaxed);
        let (mut taken, mut refused) = (0, 0);
        for worker in workers {
            let (more_taken, more_refused) = worker.await.unwrap();
            taken += more_taken;
            refused += more_refused;
        }
        let mut taken_apart = 0;
        for deduplicator in deduplicators {
            taken_apart += deduplicator.await.unwrap();
        }
        assert!(taken_apart > 0, "no blob was taken apart: nothing raced");
        assert_eq!(refused, 0, "of {taken} manifests, over {}", test.engine);
        assert!(taken > 0, "{taken} manifests: nothing raced");
        assert!(deleted > 0, "no blob was deleted: nothing raced");
        collect_all(&test).await;
        assert_eq!(files(&test), 0, "{}", test.engine);
    }
}
