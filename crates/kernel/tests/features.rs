//! The checks of `xebec doctor`, on a directory where everything works and on one where it cannot.

mod isolation;

use std::path::Path;
use std::time::Duration;

use isolation::isolated;
use xebec_kernel::features::{Outcome, check_all};

fn outcome(directory: &Path, name: &str) -> Outcome {
    let checks = check_all(directory);
    let check = checks.iter().find(|check| check.name == name).unwrap();
    println!("{check:?}");
    check.outcome
}

#[test]
fn everything_works_on_this_hosts_disk_and_nothing_is_left() {
    isolated(
        "everything_works_on_this_hosts_disk_and_nothing_is_left",
        Duration::from_secs(20),
        || {
            let directory = tempfile::tempdir().unwrap();
            let mounts = xebec_kernel::mount::mounts().unwrap();
            for check in check_all(directory.path()) {
                println!("{check:?}");
                assert!(
                    check.outcome == Outcome::Good || check.name == "linking",
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
        "a_file_system_without_pre_content_events_is_named",
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
        "a_directory_that_is_not_there_is_an_answer_too",
        Duration::from_secs(20),
        || {
            assert_eq!(outcome(Path::new("/nowhere"), "overlayfs"), Outcome::Missing);
            assert_eq!(outcome(Path::new("/nowhere"), "kernel"), Outcome::Good);
        },
    );
}
