//! A store that does not do something now does it later: blobs stay intact until then, and nothing of an attempt is left.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use xebec_dedup::{Deduplicator, Done, Settings};
use xebec_store::{Digest, Store, StoreConfig};

use crate::common::*;

/// Where the small disk is, for the program that runs there.
const DISK: &str = "XEBEC_DEDUP_TEST_SMALL_DISK";

/// Bytes that no compression makes less of.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

/// All that is stored once nobody is at work: what is garbage goes in the background.
async fn objects_become(world: &World, number: usize) {
    for _ in 0..500 {
        if world.objects().len() == number {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} objects are there", world.objects().len());
}

/// It is tried again, however often it fails.
async fn is_put_off(world: &World, deduplicator: &Deduplicator, digest: &Digest) -> String {
    let mut last = String::new();
    for _ in 0..7 {
        deduplicator.release().await.unwrap();
        match deduplicator.work_once().await.unwrap() {
            Some((blob, Done::Later(why))) if blob.digest == *digest => last = why,
            other => panic!("{other:?}"),
        }
        assert!(world.blob(digest).await.unwrap().object.is_some());
    }
    last
}

async fn is_taken_apart(world: &World, digest: &Digest, bytes: &[u8]) {
    world.deduplicator.release().await.unwrap();
    assert_eq!(world.work().await, [(digest.clone(), Done::Recorded)]);
    assert!(world.read(digest).await == bytes);
    // The recipe and a pack.
    objects_become(world, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_stays_intact_while_there_is_no_room_but_the_reserve() {
    let world = World::new().await;
    let bytes = layer(1, 3, 3);
    let digest = world.push(&bytes).await;
    let mut config = StoreConfig::new(world.directory.path());
    config.reserve = u64::MAX / 2;
    let full = Store::open(&config).await.unwrap();
    let settings = Settings {
        least_size: 1,
        level: 1,
        gives_way: false,
        ..Settings::default()
    };
    let deduplicator = Deduplicator::new(full, settings, Arc::new(Notify::new()));
    let why = is_put_off(&world, &deduplicator, &digest).await;
    assert!(why.contains("stay free"), "{why}");
    assert_eq!(world.read(&digest).await, bytes);
    objects_become(&world, 1).await;
    is_taken_apart(&world, &digest, &bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_cannot_be_read_now_is_taken_apart_later() {
    let world = World::new().await;
    let bytes = layer(1, 3, 3);
    let digest = world.push(&bytes).await;
    let (path, _) = world.objects().remove(0);
    let aside = world.directory.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    // Reading a directory is an error that says nothing of the bytes.
    std::fs::create_dir(&path).unwrap();
    is_put_off(&world, &world.deduplicator, &digest).await;
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    is_taken_apart(&world, &digest, &bytes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_of_a_blob_that_is_not_taken_apart_go_at_once() {
    let world = World::new().await;
    // More than a pack has.
    let bytes = tar(&[("a", &noise(1, 34 << 20))]);
    let digest = world.push(&bytes).await;
    let (path, _) = world.objects().remove(0);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64 - (1 << 20)).unwrap();
    let done = world.work().await;
    assert!(
        matches!(&done[..], [(of, Done::Later(_))] if *of == digest),
        "{done:?}"
    );
    objects_become(&world, 1).await;
}

/// Runs a test of this program once more on a disk of its own; false: this is that program, or there can be no such disk.
fn is_elsewhere(test: &str) -> bool {
    if std::env::var_os(DISK).is_some() {
        return false;
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=8m small \"$1\" || exit 77; shift; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
    command.arg(disk.path()).arg(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]);
    command.env(DISK, disk.path()).env("TMPDIR", disk.path());
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: a file system of its own needs root, unshare(1) and mount(8)");
        return true;
    };
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    match said[0].contains("running 1 test") {
        true => assert!(
            output.status.success() && said[0].contains("1 passed"),
            "{said:?}"
        ),
        false => eprintln!("SKIPPED: a file system of its own needs root, unshare(1) and mount(8)"),
    }
    true
}

fn free(disk: &Path) -> usize {
    let stat = rustix::fs::statvfs(disk).unwrap();
    (stat.f_bavail * stat.f_frsize) as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_stays_intact_on_a_full_disk_and_is_taken_apart_when_there_is_room() {
    if is_elsewhere("full::a_blob_stays_intact_on_a_full_disk_and_is_taken_apart_when_there_is_room") {
        return;
    }
    let disk = std::env::var_os(DISK).unwrap();
    let disk = Path::new(&disk);
    let world = World::new().await;
    let bytes = tar(&[("a", &noise(1, 1 << 20)), ("b", &noise(2, 1 << 20))]);
    let digest = world.push(&bytes).await;
    let filler = disk.join("others");
    // Enough for records, and not for the pack.
    std::fs::write(&filler, vec![1; free(disk) - (1 << 20)]).unwrap();
    let why = is_put_off(&world, &world.deduplicator, &digest).await;
    assert!(why.contains("No space left"), "{why}");
    assert!(world.read(&digest).await == bytes);
    objects_become(&world, 1).await;
    std::fs::remove_file(filler).unwrap();
    is_taken_apart(&world, &digest, &bytes).await;
}
