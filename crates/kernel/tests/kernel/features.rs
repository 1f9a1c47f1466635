//! The checks of `xebec doctor`, on a directory where everything works and on one where it cannot.

use std::path::Path;
use std::time::Duration;

use crate::isolation::isolated;
use xebec_kernel::features::{Outcome, check_all};

fn outcome(directory: &Path, name: &str) -> Outcome {
    let checks = check_all(Some(directory));
    let check = checks.iter().find(|check| check.name == name).unwrap();
    println!("{check:?}");
    check.outcome
}

#[test]
fn everything_works_on_this_hosts_disk_and_nothing_is_left() {
    isolated(
        "features::everything_works_on_this_hosts_disk_and_nothing_is_left",
        Duration::from_secs(20),
        || {
            let directory = tempfile::tempdir().unwrap();
            let mounts = xebec_kernel::mount::mounts().unwrap();
            for check in check_all(Some(directory.path())) {
                println!("{check:?}");
                assert!(
                    check.outcome == Outcome::Good || matches!(check.name, "linking" | "root directory"),
                    "{check:?}"
                );
            }
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
            // Mounts that were copied here may vanish, when their mount points are removed outside.
            let after = xebec_kernel::mount::mounts().unwrap();
            assert!(after.iter().all(|mount| mounts.contains(mount)), "{after:#?}");
        },
    );
}

#[test]
fn a_file_system_without_pre_content_events_is_named() {
    isolated(
        "features::a_file_system_without_pre_content_events_is_named",
        Duration::from_secs(20),
        || {
            let directory = tempfile::tempdir().unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("none", directory.path(), "tmpfs", flags, c"").unwrap();
            assert_eq!(outcome(directory.path(), "pre-content events"), Outcome::Missing);
            rustix::mount::unmount(directory.path(), rustix::mount::UnmountFlags::empty()).unwrap();
        },
    );
}

#[test]
fn a_directory_that_is_not_there_is_an_answer_too() {
    isolated(
        "features::a_directory_that_is_not_there_is_an_answer_too",
        Duration::from_secs(20),
        || {
            assert_eq!(outcome(Path::new("/nowhere"), "root directory"), Outcome::Missing);
            assert_eq!(outcome(Path::new("/nowhere"), "overlayfs"), Outcome::NotTried);
            assert_eq!(outcome(Path::new("/nowhere"), "kernel"), Outcome::Good);
        },
    );
}

/// A fault of the directory is reported as one of the directory, and not as one of the kernel's features.
#[test]
fn a_full_and_a_read_only_directory_are_named_as_such() {
    isolated(
        "features::a_full_and_a_read_only_directory_are_named_as_such",
        Duration::from_secs(20),
        || {
            use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            mount("none", path, "tmpfs", MountFlags::empty(), c"size=64k").unwrap();
            let detail = |name: &str| {
                let checks = check_all(Some(path));
                let check = checks.into_iter().find(|check| check.name == name).unwrap();
                (check.outcome, check.detail)
            };
            let (outcome, text) = detail("root directory");
            assert_eq!(outcome, Outcome::Missing);
            assert!(text.ends_with("is full"), "{text}");
            assert_eq!(detail("EROFS over files").0, Outcome::NotTried);
            mount_remount(path, MountFlags::RDONLY, c"").unwrap();
            let (_, text) = detail("root directory");
            assert!(text.ends_with("is on a read-only file system"), "{text}");
            let (outcome, text) = detail("pre-content events");
            assert_eq!(outcome, Outcome::NotTried);
            assert!(text.contains("root directory"), "{text}");
            unmount(path, UnmountFlags::empty()).unwrap();
        },
    );
}

#[test]
fn without_a_directory_the_rest_is_checked() {
    let checks = check_all(None);
    assert!(checks.iter().all(|check| check.name != "root directory"));
    let tried = checks.iter().find(|check| check.name == "overlayfs").unwrap();
    assert_eq!(tried.outcome, Outcome::NotTried);
}
