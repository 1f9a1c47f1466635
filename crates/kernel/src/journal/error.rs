//! Errors of the journal.

use std::io;
use std::os::fd::RawFd;

use super::limits::CAPACITY;
use crate::fanotify::FanotifyError;

/// Why the journal of owed events cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The shared memory could not be made.
    #[error("cannot create the journal of owed events: {source}")]
    Create {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The shared memory could not be mapped.
    #[error("cannot map the journal of owed events: {source}")]
    Open {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The descriptor is not a journal of this version.
    #[error("the inherited descriptor is no journal for this version of Xebec: {problem}")]
    Foreign {
        /// The mismatch, in words.
        problem: &'static str,
    },
    /// A number that is owed could not be occupied; reading events would be unsound.
    #[error("cannot occupy descriptor {number}, which an owed event is named by: {source}")]
    Hold {
        /// The number.
        number: RawFd,
        /// The error of the kernel; `EBADF` means that the limit of open files is lower than the predecessor's.
        source: io::Error,
    },
    /// Another process owes answers.
    #[error("another worker serves already (process {pid}); end it first")]
    Serving {
        /// The worker that the journal names.
        pid: i32,
    },
    /// The right to owe answers could not be asked for.
    #[error("cannot lock the journal of owed events: {source}")]
    Lock {
        /// The error of the kernel.
        source: io::Error,
    },
    /// The journal was adopted twice in one process.
    #[error("the journal is already in use in this process")]
    InUse,
    /// The pending table has no room left.
    #[error("the table of owed events is full ({CAPACITY} entries)")]
    Full,
    /// The kernel delivered something that is no event; its reader waits for ever.
    #[error("the kernel delivered an event that this version of Xebec cannot read: {0}")]
    Malformed(#[from] crate::fanotify::MalformedEvent),
    /// Reading or answering failed.
    #[error(transparent)]
    Fanotify(#[from] FanotifyError),
}
