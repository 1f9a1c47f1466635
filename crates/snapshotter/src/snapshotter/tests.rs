//! How the work is shared out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::lazy::Nothing;

#[tokio::test]
async fn threads_are_left_to_others() {
    let root = tempfile::tempdir().unwrap();
    let snapshotter = Arc::new(Snapshotter::open(root.path(), Arc::new(Nothing)).unwrap());
    let (working, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (snapshotter, working, most) = (snapshotter.clone(), working.clone(), most.clone());
        all.spawn(async move {
            let work = move |_: &Inner| {
                most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                working.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            snapshotter.in_background(work).await
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap().unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= AT_ONCE);
}

#[test]
fn what_was_removed_is_deleted_by_one_and_nobody_waits() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        // Work in it is done in the order in which it is asked for.
        .max_blocking_threads(1)
        .build();
    runtime.unwrap().block_on(deletes_one_by_one());
}

async fn deletes_one_by_one() {
    let root = tempfile::tempdir().unwrap();
    let snapshotter = Snapshotter::open(root.path(), Arc::new(Nothing)).unwrap();
    let out = root.path().join("out");
    std::fs::create_dir_all(root.path().join("u/7/of a snapshot that never was")).unwrap();
    // As if somebody were at it: neither a start nor a removal waits, and none deletes beside that one.
    let one = snapshotter.deleting.clone().lock_owned().await;
    snapshotter.reconcile().await.unwrap();
    assert_eq!(std::fs::read_dir(root.path().join("u")).unwrap().count(), 0);
    tokio::task::yield_now().await;
    tokio::task::spawn_blocking(|| ()).await.unwrap();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
    drop(one);
    // Comes after all callers that asked before.
    snapshotter.cleanup().await.unwrap();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
}
