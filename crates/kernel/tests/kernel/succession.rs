//! One worker after another, each a process of its own: the successor answers the events that a dead worker read.
//!
//! The deterministic counterpart of the random tests in `crates/fill/tests/keeper`. A worker here is this executable again, started
//! with the group and the journal at the numbers 3 and 4, as the keeper does.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::isolation::isolated;
use xebec_kernel::fanotify::{Denial, Group};
use xebec_kernel::journal::{Journal, JournalError, Owed, Stage, Verdict, observe_stages};
use xebec_kernel::mount;
use xebec_kernel::process::{self, Ending, Spawn};

const LIMIT: Duration = Duration::from_secs(20);
const PAGE: usize = 4096;
const ROLE: &str = "XEBEC_TEST_ROLE";
const PLACE: &str = "XEBEC_TEST_PLACE";

/// Not a test: the work of a worker, when this executable is started as one.
#[test]
fn worker() {
    let (Some(role), Some(place)) = (std::env::var_os(ROLE), std::env::var_os(PLACE)) else {
        return;
    };
    let role = role.to_str().unwrap();
    if role == "dies before it records" {
        observe_stages(|stage| {
            if stage == Stage::Read {
                std::process::abort();
            }
        });
    }
    let group = Group::from_inherited(process::take_inherited(3).unwrap());
    let journal = Arc::new(Journal::open(process::take_inherited(4).unwrap()).unwrap());
    assert!(
        process::take_inherited(4).is_err(),
        "the same descriptor was given out twice"
    );
    let (mut intake, left) = journal.adopt().unwrap();
    assert!(matches!(journal.adopt(), Err(JournalError::InUse)));

    let mut new = Vec::new();
    assert!(group.wait(LIMIT).unwrap());
    intake.read(&group, &mut new).unwrap();
    if role.starts_with("dies") {
        new.iter().for_each(Owed::begin);
        std::process::abort();
    }
    // The successor: everything it opens from now on must have numbers of its own.
    let files: Vec<File> = (0..200).map(|_| File::open("/dev/zero").unwrap()).collect();
    for old in &left {
        assert!(
            files.iter().all(|file| file.as_raw_fd() != old.number()),
            "an owed number was reused"
        );
        assert!(
            new.iter().all(|event| event.number() != old.number()),
            "two events of one name"
        );
        assert_eq!(old.file.is_some(), role == "answers what was recorded");
        assert_eq!(old.deaths, u32::from(role == "answers what was recorded"));
    }
    assert_eq!(left.len(), 1);
    let data = File::options()
        .write(true)
        .open(Path::new(&place).join("layers/data"))
        .unwrap();
    // New ones first: the order must not matter.
    for event in new.into_iter().chain(left) {
        let page = event.offset / PAGE as u64;
        data.write_all_at(&contents(page), page * PAGE as u64).unwrap();
        event.answer(&group, Verdict::Allow).unwrap();
    }
    assert_eq!(journal.counters().owed, 0);
}

#[test]
fn what_was_recorded_is_answered() {
    isolated("succession::what_was_recorded_is_answered", LIMIT, || {
        succession("dies", "answers what was recorded")
    });
}

#[test]
fn what_was_only_read_is_answered() {
    isolated("succession::what_was_only_read_is_answered", LIMIT, || {
        succession("dies before it records", "answers what was not recorded");
    });
}

#[test]
fn what_nobody_answers_is_denied_before_the_group_ends() {
    isolated(
        "succession::what_nobody_answers_is_denied_before_the_group_ends",
        LIMIT,
        || {
            let place = Place::new();
            let first = place.read(1);
            assert_ne!(place.start("dies"), Ending::Exited(0));
            let second = place.read(2);
            assert!(place.group.wait(LIMIT).unwrap());
            let denied = place.journal.deny_everything(&place.group, Denial::Io).unwrap();
            assert_eq!(denied, 2);
            for reader in [first, second] {
                assert_eq!(
                    reader.join().unwrap().unwrap_err().raw_os_error(),
                    Some(Denial::Io.errno())
                );
            }
        },
    );
}

fn succession(first_role: &str, second_role: &str) {
    let place = Place::new();
    let first = place.read(1);
    assert_ne!(place.start(first_role), Ending::Exited(0));
    // The journal knows who adopted it.
    let worker = place.journal.counters().worker_pid;
    let recorded = second_role == "answers what was recorded";
    assert_eq!(place.journal.record_end(worker, true), usize::from(recorded));
    assert_eq!(place.journal.counters().owed, u64::from(recorded));
    let second = place.read(2);
    assert_eq!(place.start(second_role), Ending::Exited(0));
    assert!(first.join().unwrap().unwrap() == contents(1));
    assert!(second.join().unwrap().unwrap() == contents(2));
    let counters = place.journal.counters();
    assert_eq!(
        (counters.adopted_pending, counters.adopted_raw),
        (u64::from(recorded), u64::from(!recorded))
    );
}

struct Place {
    directory: tempfile::TempDir,
    group: Group,
    journal: Arc<Journal>,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let (layers, guarded) = (directory.path().join("layers"), directory.path().join("guarded"));
        std::fs::create_dir(&layers).unwrap();
        std::fs::create_dir(&guarded).unwrap();
        File::create(layers.join("data"))
            .unwrap()
            .set_len(16 * PAGE as u64)
            .unwrap();
        let group = Group::new().unwrap();
        mount::bind_private(&layers, &guarded).unwrap();
        group.mark_mount(&guarded).unwrap();
        let journal = Journal::create().unwrap();
        Place {
            directory,
            group,
            journal: Arc::new(journal),
        }
    }

    fn start(&self, role: &str) -> Ending {
        let spawn = Spawn::own_executable()
            .arguments(["--exact", "succession::worker", "--nocapture", "--test-threads=1"])
            .variable(ROLE, role)
            .variable(PLACE, self.directory.path())
            // In an order that only works when numbers are not overwritten too early.
            .descriptor(self.journal.as_fd(), 4)
            .descriptor(self.group.as_fd(), 3);
        spawn.start().unwrap().wait().unwrap()
    }

    fn read(&self, page: u64) -> JoinHandle<std::io::Result<[u8; PAGE]>> {
        let path: PathBuf = self.directory.path().join("guarded/data");
        std::thread::spawn(move || {
            let mut bytes = [0; PAGE];
            File::open(path)?.read_exact_at(&mut bytes, page * PAGE as u64)?;
            Ok(bytes)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(
            self.directory.path().join("guarded"),
            rustix::mount::UnmountFlags::DETACH,
        );
    }
}

fn contents(page: u64) -> [u8; PAGE] {
    [page as u8 + 1; PAGE]
}
