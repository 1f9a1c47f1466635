//! Errors that keep a worker from serving.

use xebec_kernel::journal::JournalError;

/// A failure that keeps a worker from serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// A descriptor that the keeper hands down is missing.
    #[error(
        "descriptor {number} ({what}) was not handed down: {source}; \
         a worker is started by the keeper, not by hand"
    )]
    NotInherited {
        /// The kind of descriptor that is missing, in words.
        what: &'static str,
        /// The number that it should have.
        number: i32,
        /// The error of looking at that number.
        source: std::io::Error,
    },
    /// The journal could not be taken over.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The thread that reads events could not be started.
    #[error("cannot start the thread that reads events: {source}")]
    Thread {
        /// The error of the kernel.
        source: std::io::Error,
    },
}
