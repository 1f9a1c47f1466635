//! What a keeper is told, and what keeps it from keeping.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use xebec_kernel::fanotify::FanotifyError;
use xebec_kernel::journal::{DEFAULT_DEATHS_ALLOWED, JournalError};
use xebec_kernel::mount::MountError;
use xebec_kernel::process::SpawnError;

use super::locks::LockError;

/// What a keeper keeps.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// The root directory; `layers` below it is what is guarded.
    pub root: PathBuf,
    /// The run directory: `guarded`, `xebec.sock`, `keeper.pid` and `daemon.lock` are below it.
    pub run: PathBuf,
    /// Where containerd connects, if it is served.
    pub snapshots: Option<PathBuf>,
    /// The program of the worker; this executable when absent.
    pub worker: Option<PathBuf>,
    /// Arguments of the worker.
    pub worker_arguments: Vec<OsString>,
    /// How many workers an event may kill before it is denied.
    pub deaths_allowed: u32,
    /// Longest wait before a worker is started again; the first restart does not wait at all.
    pub longest_delay: Duration,
}

impl KeeperConfig {
    /// A keeper of these directories, whose worker is this executable with `arguments`.
    pub fn new(root: impl Into<PathBuf>, run: impl Into<PathBuf>, arguments: Vec<OsString>) -> KeeperConfig {
        KeeperConfig {
            root: root.into(),
            run: run.into(),
            snapshots: None,
            worker: None,
            worker_arguments: arguments,
            deaths_allowed: DEFAULT_DEATHS_ALLOWED,
            longest_delay: Duration::from_secs(1),
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.run.join("xebec.sock")
    }

    pub(super) fn guarded(&self) -> PathBuf {
        self.run.join("guarded")
    }

    pub(super) fn pid_file(&self) -> PathBuf {
        self.run.join("keeper.pid")
    }

    pub(super) fn worker_pid_file(&self) -> PathBuf {
        self.run.join("worker.pid")
    }
}

/// What ends a keeper before its time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// Another keeper (or a worker whose keeper died) has one of the directories.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file or directory of the keeper could not be made.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was being done, as a verb.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cache directory could not be guarded.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Somebody else's file system is where the cache is to be mounted.
    #[error(
        "{filesystem} from {origin} is mounted at {at}, which is the daemon's; it is left alone: unmount it (umount(8)), or choose \
         another directory by --run"
    )]
    Stranger {
        /// Where.
        at: PathBuf,
        /// Which.
        filesystem: String,
        /// Of what.
        origin: PathBuf,
    },
    /// The group could not be made, or the mark could not be set.
    #[error(transparent)]
    Fanotify(#[from] FanotifyError),
    /// The journal could not be made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The first worker could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Waiting for the worker failed.
    #[error("cannot wait for the worker: {source}")]
    Wait {
        /// What the system said.
        source: io::Error,
    },
    /// Worker after worker died instead of stopping.
    #[error("{deaths} workers in a row died instead of stopping; readers that waited were denied with EIO")]
    NoStop {
        /// How many.
        deaths: u32,
    },
}
