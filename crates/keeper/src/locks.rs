//! The locks of keepers: one keeper per run directory, and one daemon per run directory and per root directory, since two
//! that share either would hand out each other's layers.
//!
//! The keeper's lock is its own and goes with it. The directories' locks are shared with its worker, so that they
//! are held as long as either lives.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use xebec_kernel::lock::try_lock_file;

use crate::error::LockError;
use crate::files::answers;
use crate::process_file::read_process;

/// How long a keeper that is just ending is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one that answers is waited for.
const MOMENT: Duration = Duration::from_millis(300);

/// How often a lock is tried again meanwhile.
const RETRY: Duration = Duration::from_millis(10);

/// The right to be the keeper of a run directory, until dropped.
#[derive(Debug)]
pub(crate) struct KeeperLock {
    _file: File,
}

impl KeeperLock {
    /// Takes it, or tells that there is a keeper. One that is ending is waited for; while somebody answers, it is so
    /// for a moment only: a keeper that was killed just as it started a worker.
    pub(crate) fn take(run: &Path, socket: &Path) -> Result<KeeperLock, LockError> {
        let patience = if answers(socket) { MOMENT } else { PATIENCE };
        let deadline = Instant::now() + patience;
        loop {
            match lock(run, "keeper.lock") {
                Ok(file) => return Ok(KeeperLock { _file: file }),
                Err(LockError::Held { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Both directories' locks, until the last process that has them lets go.
#[derive(Debug)]
pub(crate) struct DirectoryLocks {
    run: OwnedFd,
    root: OwnedFd,
}

impl DirectoryLocks {
    /// Takes both, or tells which is taken.
    pub(crate) fn try_take(run: &Path, root: &Path) -> Result<DirectoryLocks, LockError> {
        Ok(DirectoryLocks {
            run: lock(run, "daemon.lock")?.into(),
            root: lock(root, "daemon.lock")?.into(),
        })
    }

    /// Locks that were taken by somebody who shares them.
    pub(crate) fn from_descriptors(run: OwnedFd, root: OwnedFd) -> DirectoryLocks {
        DirectoryLocks { run, root }
    }

    /// Locks of which some were handed down. One that was lost on the way may be held by the worker: then it is as good
    /// as ours.
    pub(crate) fn complete(
        (run, run_lock): (&Path, Option<OwnedFd>),
        (root, root_lock): (&Path, Option<OwnedFd>),
    ) -> Result<DirectoryLocks, LockError> {
        let take = |directory: &Path, given: Option<OwnedFd>| match given {
            Some(lock) => Ok(lock),
            None => match lock(directory, "daemon.lock") {
                Err(LockError::Held { .. }) => open(directory, "daemon.lock").map(OwnedFd::from),
                other => other.map(OwnedFd::from),
            },
        };
        Ok(DirectoryLocks {
            run: take(run, run_lock)?,
            root: take(root, root_lock)?,
        })
    }

    /// The locks of the run directory and of the root directory.
    pub(crate) fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.run.as_fd(), self.root.as_fd())
    }
}

/// Whether a daemon has a run directory: its lock is held, and one of its processes runs. A service manager may hold
/// the lock for a daemon that has ended.
pub fn is_running(run: &Path) -> bool {
    let Ok(file) = File::open(run.join("daemon.lock")) else {
        return false;
    };
    let is_there = |name: &str| read_process(&run.join(name)).is_some();
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
        && (is_there("keeper.pid") || is_there("worker.pid"))
}

fn lock(directory: &Path, name: &str) -> Result<File, LockError> {
    let file = directory.join(name);
    try_lock_file(&file, 0o666).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => LockError::Held {
            directory: directory.to_owned(),
        },
        _ => LockError::File { file, source },
    })
}

fn open(directory: &Path, name: &str) -> Result<File, LockError> {
    let file = directory.join(name);
    let opened = File::options().create(true).append(true).open(&file);
    opened.map_err(|source| LockError::File { file, source })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_kernel::process::start_time;

    use super::*;

    /// A service manager holds the lock for a daemon that was killed, and the kernel gave the keeper's id to another process.
    #[test]
    fn a_process_with_the_id_of_an_ended_keeper_is_no_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        let own = std::process::id();
        let started = start_time(own).unwrap();
        let name = |started: u64| {
            std::fs::write(run.join("keeper.pid"), format!("{own}\nstarted={started}\n")).unwrap();
        };
        name(started);
        assert!(!is_running(run), "nobody holds the lock");
        let lock = lock(run, "daemon.lock").unwrap();
        assert!(is_running(run));
        name(started - 1);
        assert!(!is_running(run));
        drop(lock);
    }
}
