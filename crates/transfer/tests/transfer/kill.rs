//! An import that is killed again and again: nothing is half-visible in between, and the last run completes it.
//!
//! The process is this program once more.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use xebec_store::{ReferenceKind, Store, StoreConfig};
use xebec_transfer::{ImportOptions, Taking, Tally, import};

use crate::common::Here;
use crate::old::{Old, digest};

const FROM: &str = "XEBEC_TRANSFER_TEST_FROM";
const TO: &str = "XEBEC_TRANSFER_TEST_TO";
const TAKING: &str = "XEBEC_TRANSFER_TEST_TAKING";
const IMAGES: u32 = 60;
const KILLS: u32 = 12;

#[test]
fn child() {
    let (Some(from), Some(to)) = (std::env::var_os(FROM), std::env::var_os(TO)) else {
        return;
    };
    let options = ImportOptions {
        taking: match std::env::var(TAKING).as_deref() {
            Ok("move") => Taking::Move,
            _ => Taking::Copy,
        },
        ..ImportOptions::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(&StoreConfig::new(to)).await.unwrap();
        let tally = Arc::new(Tally::default());
        import(&store, Path::new(&from), &options, &tally).await.unwrap();
    });
}

fn layer(image: u32) -> Vec<u8> {
    let mut bytes = vec![0; 200_000];
    bytes[..4].copy_from_slice(&image.to_le_bytes());
    bytes
}

/// Each manifest that is here has all that it names, with the right bytes. Returns how many there are.
async fn whole(here: &Here) -> usize {
    let name = "team/app".parse().unwrap();
    let manifests = here.store.manifests(&name, 1000, None).await.unwrap().items;
    for manifest in &manifests {
        for (kind, named) in here.store.references(&name, &manifest.digest).await.unwrap() {
            assert_ne!(kind, ReferenceKind::Manifest);
            let bytes = here
                .blob("team/app", &named)
                .await
                .expect("a manifest without its blob");
            assert_eq!(digest(&bytes), named);
        }
    }
    manifests.len()
}

fn kill_and_go_on(taking: &str) {
    let old = Old::new();
    for image in 0..IMAGES {
        let manifest = old.image("team/app", &layer(image));
        old.tag("team/app", &format!("v{image}"), &manifest);
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("store");
    let start = |round: u32| {
        let is_last = round == KILLS;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(FROM, old.root())
            .env(TO, &root)
            .env(TAKING, taking)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        if !is_last {
            // When some more blobs have come, at whichever step of the next ones it is. Four come at the same time.
            let wanted = objects(&root) + 4 + round as usize;
            while objects(&root) < wanted && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(some_time()));
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        assert!(!is_last || status.success());
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut seen = Vec::new();
    for round in 0..=KILLS {
        start(round);
        let here = runtime.block_on(Here::at(&root));
        seen.push(runtime.block_on(whole(&here)));
        if round == KILLS {
            runtime.block_on(async {
                for image in 0..IMAGES {
                    assert!(
                        here.tag("team/app", &format!("v{image}")).await.is_some(),
                        "{seen:?}"
                    );
                }
            });
        }
    }
    assert_eq!(seen.last(), Some(&(IMAGES as usize)));
    assert!(seen.is_sorted(), "{seen:?}");
    let is_between = |seen: &&usize| (1..IMAGES as usize).contains(*seen);
    assert!(
        seen.iter().any(|seen| is_between(&seen)),
        "no kill came in the middle: {seen:?}"
    );
}

/// So many files are among the store's objects.
fn objects(root: &Path) -> usize {
    let directories = std::fs::read_dir(root.join("objects"))
        .into_iter()
        .flatten()
        .flatten();
    let files = directories.filter_map(|directory| std::fs::read_dir(directory.path()).ok());
    files.map(Iterator::count).sum()
}

/// Some microseconds, different each time.
fn some_time() -> u64 {
    let time = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    u64::from(time.subsec_nanos() / 100) % 10_000
}

#[test]
fn a_killed_copy_goes_on() {
    kill_and_go_on("copy");
}

#[test]
fn a_killed_move_loses_nothing() {
    kill_and_go_on("move");
}
