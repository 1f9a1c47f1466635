//! Files between the host and a container that runs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;
use xebec_container::Record;
use xebec_copy::{ContainerRoot, CopyError, CopyOptions, Note, Side, copy, copy_from_tar, copy_to_tar};

use crate::support::{Case, Running, case};

fn start(case: &mut Case) -> (Running, Record) {
    case.set("id", "box").flag("rm");
    case.shell("trap 'exit 0' TERM; mkdir /data; echo from the container > /data/file; ln -s /data /link; echo ready; while :; do sleep 0.02; done");
    let mut running = case.start();
    running.wait_for_output("ready");
    let record = case.record("box");
    (running, record)
}

fn root_of(record: &Record) -> ContainerRoot {
    ContainerRoot {
        name: record.id.clone(),
        directory: record.open_root().unwrap(),
    }
}

fn cp(from: Side<'_>, to: Side<'_>) -> Result<Vec<Note>, CopyError> {
    let mut notes = Vec::new();
    copy(from, to, CopyOptions::default(), &mut |note| notes.push(note))?;
    Ok(notes)
}

#[test]
fn files_are_copied_in_and_out() {
    let mut case = case!();
    let shared = case.make_directory("shared");
    case.set("volume", &format!("{}:/volume", shared.display()));
    let (running, record) = start(&mut case);
    let root = root_of(&record);
    let inside = |path: &'static str| Side::Container(&root, Path::new(path));
    let here = case.make_directory("here");

    cp(inside("/data"), Side::Host(&here)).unwrap();
    assert_eq!(
        fs::read_to_string(here.join("data/file")).unwrap(),
        "from the container\n"
    );
    // The link leads to the container's /data, not to the host's.
    cp(inside("/link/file"), Side::Host(&here)).unwrap();
    assert_eq!(
        fs::read_to_string(here.join("file")).unwrap(),
        "from the container\n"
    );

    fs::write(here.join("new"), "from the host\n").unwrap();
    fs::set_permissions(here.join("new"), fs::Permissions::from_mode(0o640)).unwrap();
    for path in ["/data", "/link/", "/volume", "/data/renamed"] {
        cp(Side::Host(&here.join("new")), inside(path)).unwrap();
    }
    let seen = case.exec(
        &record,
        "cat /data/new /volume/new /data/renamed; stat -c '%a %u' /data/new",
        json!({}),
    );
    assert_eq!(
        seen.stdout,
        format!("{}640 0\n", "from the host\n".repeat(3)),
        "{seen:?}"
    );
    assert!(shared.join("new").exists(), "a volume is the host's directory");
    // From one place in the container to another.
    cp(inside("/data/."), inside("/tmp")).unwrap();
    assert_eq!(
        case.exec(&record, "cat /tmp/file", json!({})).stdout,
        "from the container\n"
    );

    running.signal(15);
    assert_eq!(running.finish().code, 0);
    let ended = record.open_root().unwrap_err().to_string();
    assert!(ended.contains("box is not running"), "{ended}");
    case.assert_clean();
}

/// A file that is mounted in the container is written; another file in its place would hide it.
#[test]
fn a_mounted_file_is_written_in_its_place() {
    let mut case = case!();
    let shared = case.make_directory("shared");
    fs::write(shared.join("file"), "old\n").unwrap();
    let before = fs::metadata(shared.join("file")).unwrap().ino();
    case.set("volume", &format!("{}:/mnt/file", shared.join("file").display()));
    let (running, record) = start(&mut case);
    let root = root_of(&record);
    let inside = |path: &'static str| Side::Container(&root, Path::new(path));
    let here = case.make_directory("here");
    fs::write(here.join("file"), "new\n").unwrap();
    cp(Side::Host(&here.join("file")), inside("/mnt")).unwrap();
    let seen = case.exec(
        &record,
        "cat /mnt/file; grep -c /mnt/file /proc/mounts",
        json!({}),
    );
    assert_eq!(seen.stdout, "new\n1\n", "{seen:?}");
    assert_eq!(fs::read_to_string(shared.join("file")).unwrap(), "new\n");
    assert_eq!(fs::metadata(shared.join("file")).unwrap().ino(), before);
    fs::remove_file(here.join("file")).unwrap();
    symlink("elsewhere", here.join("file")).unwrap();
    let refused = cp(Side::Host(&here.join("file")), inside("/mnt")).unwrap_err();
    assert!(matches!(refused, CopyError::MountInTheWay { .. }), "{refused}");
    running.signal(15);
    running.finish();
}

/// The whole root of a container, by a tar stream: without /proc and /sys, and no device on the host.
#[test]
fn a_root_is_copied_without_what_the_kernel_makes_up() {
    let mut case = case!();
    let (running, record) = start(&mut case);
    let root = root_of(&record);
    let whole = Side::Container(&root, Path::new("/"));
    let (mut stream, mut notes) = (Vec::new(), Vec::new());
    copy_to_tar(whole, &mut stream, CopyOptions::default(), &mut |note| {
        notes.push(note)
    })
    .unwrap();
    let left_out = |path: &str| notes.iter().any(|note| note.path == Path::new(path));
    assert!(left_out("proc") && left_out("sys"), "{notes:?}");
    let target = case.make_directory("target");
    let mut devices = Vec::new();
    copy_from_tar(
        stream.as_slice(),
        Side::Host(&target),
        CopyOptions::default(),
        &mut |note| devices.push(note),
    )
    .unwrap();
    assert!(target.join("bin/busybox").is_file() && target.join("data/file").is_file());
    assert!(
        devices.iter().any(|note| note.path == Path::new("dev/null")),
        "{devices:?}"
    );
    assert!(!target.join("dev/null").exists());
    let nowhere = copy_from_tar(
        stream.as_slice(),
        Side::Container(&root, Path::new("/nowhere")),
        CopyOptions::default(),
        &mut |_| (),
    );
    assert!(matches!(nowhere, Err(CopyError::NoDirectory(_))), "{nowhere:?}");
    running.signal(15);
    running.finish();
}
