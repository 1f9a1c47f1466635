//! Backups that come to no end: their process is killed, or their disk is full. The next one goes on, and what is restored is right.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::backup::is_supported;
use crate::backup_places::placed;
use crate::common::*;
use crate::replicas::{place_in, read, some_bytes};
use xebec_store::*;

/// The root of the store, for the process that takes a backup of it and is killed.
const CHILD: &str = "XEBEC_STORE_TEST_BACKUP_CHILD";
/// Where the small disk is, for the program that runs there.
const DISK: &str = "XEBEC_STORE_TEST_SMALL_DISK";
/// So many backups are killed.
const KILLS: u32 = 12;
const BEGUN: &str = "the backup begins";

fn config_of(root: &Path) -> StoreConfig {
    let mut config = StoreConfig::new(root);
    config.places = vec![place_in(root, "one")];
    config
}

/// Bytes that differ from others of the same length.
fn blob(number: u8) -> Vec<u8> {
    let mut bytes = some_bytes(500_000);
    bytes[0] = number;
    bytes
}

/// Each restored blob is as it was pushed.
async fn restores(backup: &Path, blobs: &[Vec<u8>]) {
    let root = tempfile::tempdir().unwrap();
    Store::restore(root.path(), backup, |_| ()).await.unwrap();
    let store = Store::open(&StoreConfig::new(root.path())).await.unwrap();
    for bytes in blobs {
        assert!(
            read(&store, &digest(bytes)).await.unwrap() == *bytes,
            "wrong bytes"
        );
    }
}

/// The whole objects that a directory of objects has, by their bytes.
fn objects_in(backup: &Path) -> Vec<Vec<u8>> {
    let folders = std::fs::read_dir(backup.join("objects")).into_iter().flatten();
    let folders = folders
        .map(|folder| folder.unwrap().path())
        .filter(|folder| folder.is_dir());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect()
}

/// How many files folders of objects have.
fn files_below(objects: &Path) -> usize {
    let folders = std::fs::read_dir(objects).into_iter().flatten().flatten();
    let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok());
    files.map(Iterator::count).sum()
}

#[test]
fn child() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let root = Path::new(&root);
        let store = Store::open(&config_of(root)).await.unwrap();
        let _ = std::io::stdout().write_all(format!("{BEGUN}\n").as_bytes());
        store.backup(&root.join("backup"), |_| ()).await.unwrap();
    });
}

/// Kills a process that takes a backup, once there are so many objects; whether it had not come to its end.
fn kill_backup(root: &Path, at: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "backup_broken_off::child", "--nocapture"])
        .env(CHILD, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == BEGUN), "it ended by itself");
    let objects = root.join("backup/objects");
    while child.try_wait().unwrap().is_none() && files_below(&objects) < at {
        std::thread::sleep(Duration::from_micros(200));
    }
    let is_killed = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    is_killed
}

/// Half of an object under its name would count as kept by the next backup.
#[tokio::test]
async fn a_backup_that_is_killed_leaves_no_object_with_wrong_bytes() {
    if !is_supported() || std::env::var_os(CHILD).is_some() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(&config_of(root.path())).await.unwrap();
    let blobs: Vec<Vec<u8>> = (0..24).map(blob).collect();
    for (number, bytes) in blobs.iter().enumerate() {
        // What is on the main place is linked, the rest is copied.
        placed(&store, bytes, &[if number % 4 == 0 { "main" } else { "one" }]).await;
    }
    let backup = root.path().join("backup");
    let (mut killed, mut unfinished) = (0, 0);
    for _ in 0..KILLS {
        killed += u32::from(kill_backup(root.path(), fastrand::usize(..blobs.len())));
        for object in objects_in(&backup) {
            assert!(blobs.contains(&object), "an object of {} bytes", object.len());
        }
        match backup.join("records.db").exists() {
            // From the beginning again.
            true => {
                restores(&backup, &blobs).await;
                std::fs::remove_dir_all(&backup).unwrap();
            }
            false => {
                unfinished += u32::from(!objects_in(&backup).is_empty());
                let restored = root.path().join("restored");
                assert!(Store::restore(&restored, &backup, |_| ()).await.is_err());
                assert!(!restored.join("records.db").exists());
            }
        }
    }
    println!("{killed} of {KILLS} were killed, {unfinished} of them with objects and without records");
    assert!(unfinished > 0, "no backup was killed in time");
    let whole = store.backup(&backup, |_| ()).await.unwrap();
    assert_eq!((whole.blobs, whole.lacks), (24, vec![]));
    let left: Vec<_> = std::fs::read_dir(&backup)
        .unwrap()
        .chain(std::fs::read_dir(backup.join("objects")).unwrap())
        .map(|file| file.unwrap().file_name())
        .filter(|name| name.to_string_lossy().ends_with(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    restores(&backup, &blobs).await;
}

/// Runs a test of this program once more in a mount namespace of its own, where a small disk is; false: this is that program.
fn is_elsewhere(test: &str) -> bool {
    if std::env::var_os(DISK).is_some() {
        return false;
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m small \"$1\" || exit 77; shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(DISK, disk.path())
        .output();
    let said = output.as_ref().map_or(String::new(), |output| {
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        texts.concat()
    });
    match output {
        Ok(output) if output.status.success() => assert!(said.contains("1 passed"), "{said}"),
        Ok(_) if said.contains("running 1 test") => panic!("{said}"),
        _ => {
            let skipped = "SKIPPED: a file system of its own needs root, unshare(1) and mount(8)";
            let _ = writeln!(std::io::stderr(), "{skipped}");
        }
    }
    true
}

#[tokio::test]
async fn a_backup_whose_disk_is_full_says_so_and_goes_on_when_it_has_room() {
    if !is_supported()
        || is_elsewhere("backup_broken_off::a_backup_whose_disk_is_full_says_so_and_goes_on_when_it_has_room")
    {
        return;
    }
    let backup = std::env::var_os(DISK).unwrap();
    let backup = Path::new(&backup);
    // What is copied from the main place is written in another way than what comes from others.
    for place in ["main", "one"] {
        let backup = backup.join(place);
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(&config_of(root.path())).await.unwrap();
        let blobs: Vec<Vec<u8>> = (0..12).map(blob).collect();
        placed(&store, &blobs[0], &[place]).await;
        store.backup(&backup, |_| ()).await.unwrap();
        for bytes in &blobs[1..] {
            placed(&store, bytes, &[place]).await;
        }
        let error = store.backup(&backup, |_| ()).await.unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        assert!(error.contains(backup.to_str().unwrap()), "{error}");
        for object in objects_in(&backup) {
            assert!(blobs.contains(&object), "an object of {} bytes", object.len());
        }
        // The backup before that is as it was.
        restores(&backup, &blobs[..1]).await;
        let remounted = Command::new("mount")
            .args(["-o", "remount,size=64m"])
            .arg(backup.parent().unwrap())
            .status();
        assert!(remounted.unwrap().success());
        let whole = store.backup(&backup, |_| ()).await.unwrap();
        assert_eq!((whole.blobs, whole.lacks), (12, vec![]));
        assert!(whole.kept > 1, "{} are there already", whole.kept);
        restores(&backup, &blobs).await;
        // The other one begins with a small disk, too.
        std::fs::remove_dir_all(&backup).unwrap();
        let remounted = Command::new("mount")
            .args(["-o", "remount,size=4m"])
            .arg(backup.parent().unwrap())
            .status();
        assert!(remounted.unwrap().success());
    }
}
