//! Errors that end a keeper, or keep it from starting.

use std::io;
use std::path::PathBuf;

use xebec_kernel::fanotify::FanotifyError;
use xebec_kernel::journal::JournalError;
use xebec_kernel::mount::MountError;
use xebec_kernel::process::SpawnError;

/// An error that ends a keeper before its time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// Another keeper (or a worker whose keeper died) has one of the directories.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file or directory of the keeper could not be made.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// The action that failed, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The cache directory could not be guarded.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The root directory is on a file system that raises no events before a read.
    #[error(
        "the root directory {root} is on {filesystem}, where the kernel raises no event before a read: it must be on ext4, xfs or \
         btrfs; move it there, or choose another directory by --root"
    )]
    FileSystem {
        /// The root directory.
        root: PathBuf,
        /// The type of the file system.
        filesystem: String,
    },
    /// Somebody else's file system is where the cache is to be mounted.
    #[error(
        "{filesystem} from {origin} is mounted at {at}, which is the daemon's; it is left alone: unmount it (umount(8)), or choose \
         another directory by --run"
    )]
    Stranger {
        /// The mount point.
        at: PathBuf,
        /// The type of the file system.
        filesystem: String,
        /// The source of the mount.
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
        /// The error of the system.
        source: io::Error,
    },
    /// Worker after worker died instead of stopping.
    #[error("{deaths} workers in a row died instead of stopping; readers that waited were denied with EIO")]
    NoStop {
        /// The number of workers.
        deaths: u32,
    },
}

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
        /// The error of the system.
        source: std::io::Error,
    },
}
