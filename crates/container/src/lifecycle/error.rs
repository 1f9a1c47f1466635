//! Says why something could not be done to a container, and which command helps.

use std::io;

use crate::container::FindError;
use crate::{RecordError, RunError};

/// Something could not be done to a container.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// It is not there, or not the only one.
    #[error(transparent)]
    Find(#[from] FindError),
    /// It does not run.
    #[error("the container {0} does not run")]
    NotRunning(String),
    /// It runs.
    #[error("the container {name} is {status}; stop it first: xebec stop {name}")]
    Active {
        /// Its name.
        name: String,
        /// Its status, in a word.
        status: &'static str,
    },
    /// It runs, and is to be removed.
    #[error(
        "the container {name} is {status}; stop it first (xebec stop {name}), or use `xebec rm --force {name}`"
    )]
    InUse {
        /// Its name.
        name: String,
        /// Its status, in a word.
        status: &'static str,
    },
    /// It is frozen already, or not.
    #[error("the container {0} is {1}")]
    Paused(String, &'static str),
    /// It cannot be frozen.
    #[error("the container {0} cannot be paused: this host's control groups have no freezer")]
    NoFreezer(String),
    /// Its processes are not frozen in time.
    #[error(
        "the processes of the container {0} are not frozen after {1} s: one of them waits in the kernel; try again, or use --no-pause"
    )]
    NotFrozen(String, u64),
    /// It has no layer that could be read.
    #[error("the container {name} is {status}, and has no layer to commit yet, or none any more")]
    NoLayer {
        /// Its name.
        name: String,
        /// Its status, in a word.
        status: &'static str,
    },
    /// It is not as it was when its layer began to be read.
    #[error(
        "the container {0} ended, was started or was removed while its layer was read; nothing was kept: commit it again"
    )]
    Changed(String),
    /// Its processes are in another namespace of process ids.
    #[error(
        "the container {0} was started in another namespace of processes, and may still run there; use xebec there"
    )]
    Elsewhere(String),
    /// A name that is taken.
    #[error(
        "a container named {0} exists already; choose another name, or remove that container: xebec rm {0}"
    )]
    Taken(String),
    /// A name that cannot be one.
    #[error(
        "{0:?} cannot name a container; use up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
    )]
    Name(String),
    /// Another command works on it.
    #[error("another command works on the container {0} just now; try again")]
    Busy(String),
    /// It has not ended in time.
    #[error("the container {0} has not ended {1} s after SIGKILL: a process of it waits in the kernel")]
    Stays(String, u64),
    /// A signal could not be sent.
    #[error("cannot send signal {signal} to the container {name}: {source}")]
    Signal {
        /// The container.
        name: String,
        /// The signal.
        signal: i32,
        /// The error.
        source: io::Error,
    },
    /// A file or directory of it could not be changed.
    #[error("container {name}: {source}")]
    File {
        /// The container.
        name: String,
        /// The error.
        source: Box<RunError>,
    },
    /// Its record or its file could not be changed.
    #[error(transparent)]
    Record(#[from] RecordError),
}
