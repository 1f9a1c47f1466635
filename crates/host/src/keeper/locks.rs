//! One keeper per run directory, and one per root directory: two that share either would hand out each other's
//! layers.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

/// A keeper that is ending holds its locks while it takes its mounts down. That takes milliseconds; a start that
/// falls into them waits so long before it gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a lock is tried again meanwhile.
const RETRY: Duration = Duration::from_millis(10);

/// A directory is another daemon's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A lock is held.
    #[error(
        "{} belongs to a daemon that is running; stop it first (`xebec daemon stop`) or choose another directory",
        .directory.display()
    )]
    Held {
        /// The directory.
        directory: PathBuf,
    },
    /// A lock file could not be opened or locked.
    #[error("cannot lock {}: {source}", .file.display())]
    File {
        /// The lock file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Both locks, until dropped. Workers inherit them: while one lives that lost its keeper, no other may start.
#[derive(Debug)]
pub(super) struct Locks {
    run: File,
    root: File,
}

impl Locks {
    /// Takes both, or tells which is taken. A daemon that answers on `socket` is not waited for.
    pub(super) fn take(run: &Path, root: &Path, socket: &Path) -> Result<Locks, LockError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Locks::try_take(run, root) {
                Err(LockError::Held { .. })
                    if Instant::now() < deadline && UnixStream::connect(socket).is_err() =>
                {
                    std::thread::sleep(RETRY);
                }
                result => return result,
            }
        }
    }

    /// The locks of the run directory and of the root directory.
    pub(super) fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.run.as_fd(), self.root.as_fd())
    }

    fn try_take(run: &Path, root: &Path) -> Result<Locks, LockError> {
        Ok(Locks {
            run: lock(run)?,
            root: lock(root)?,
        })
    }
}

fn lock(directory: &Path) -> Result<File, LockError> {
    let path = directory.join("daemon.lock");
    let error = |source| LockError::File {
        file: path.clone(),
        source,
    };
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(error)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Held {
            directory: directory.to_owned(),
        }),
        Err(errno) => Err(error(errno.into())),
    }
}
