//! Events of a container, for the caller of this crate.

use std::time::Duration;

use crate::{ExitCode, Identity};

/// An event of a container. The caller's function that receives it returns before the next step is
/// taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The overlay is mounted.
    Mounted {
        /// The container's name.
        id: String,
    },
    /// The runtime has created the container. Its first process waits for the start and has read nothing yet.
    Created {
        /// Process id of the container's first process, on the host.
        pid: i32,
        /// The user that it runs as, if that is the image's own user.
        user: Option<Identity>,
    },
    /// The container's command was told to run.
    Started,
    /// It is kept that it runs: other commands find it so.
    Kept,
    /// Every probe has succeeded.
    Ready {
        /// Time since [`Prepared::run`](crate::Prepared::run) was called.
        after: Duration,
    },
    /// The container's first process has ended.
    Exited {
        /// Its exit code.
        code: ExitCode,
    },
}
