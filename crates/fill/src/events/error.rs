//! Errors that keep a worker from serving.

use xebec_kernel::journal::JournalError;

/// What keeps a worker from serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// A descriptor that the keeper hands down is missing.
    #[error(
        "descriptor {number} ({what}) was not handed down: {source}; \
         a worker is started by the keeper, not by hand"
    )]
    NotInherited {
        /// What should have been there.
        what: &'static str,
        /// At which number.
        number: i32,
        /// What was wrong with it.
        source: std::io::Error,
    },
    /// The journal could not be taken over.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The thread that reads events could not be started.
    #[error("cannot start the thread that reads events: {source}")]
    Thread {
        /// What was wrong.
        source: std::io::Error,
    },
}
