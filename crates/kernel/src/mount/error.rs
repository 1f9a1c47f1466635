//! Errors of mounts.

use std::io;
use std::path::PathBuf;

/// Why a call about mounts failed: to mount, attach or unmount, to read the table of mounts, or to set a read-ahead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// A file system could not be mounted.
    #[error("cannot mount {filesystem} from {origin} ({step}): {source}{message}")]
    Create {
        /// `erofs`, `overlay`.
        filesystem: &'static str,
        /// The source, for people.
        origin: String,
        /// The parameter or call that was refused.
        step: String,
        /// The error of the kernel.
        source: io::Error,
        /// The message of the file system itself, with a leading `; `, or nothing.
        message: String,
    },
    /// A directory could not be bound to another, or a mount could not be attached.
    #[error("cannot attach {origin} at {target}: {source}")]
    Attach {
        /// The directory or mount that was to be attached.
        origin: String,
        /// The directory at which it was to be attached.
        target: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A mount could not be taken down.
    #[error("cannot unmount {target}: {source}{}", busy_advice(.source))]
    Unmount {
        /// The mount point.
        target: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The table of mounts could not be read.
    #[error("cannot read the table of mounts: {problem}")]
    Table {
        /// The fault, in words.
        problem: String,
    },
    /// A mount's read-ahead could not be read or set.
    #[error("cannot {action} the read-ahead of {device}: {source}")]
    ReadAhead {
        /// `read` or `set`.
        action: &'static str,
        /// Name of the backing device, or of the metadata image if the device was not found.
        device: String,
        /// The error of the kernel.
        source: io::Error,
    },
}

fn busy_advice(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(libc::EBUSY) {
        "; a process still uses it: end the process or leave the directory, then try again"
    } else {
        ""
    }
}
