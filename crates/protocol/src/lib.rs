//! The parts that the daemon and its clients have in common: messages, failures, paths, settings.
//!
//! * [`wire`]: requests and replies, one JSON value a line, over the socket in the run directory.
//! * [`failure`]: the failure of a command; its kind is the exit code.
//! * [`explain`], [`start_report`]: parts of replies that are shown as they are: why readers waited, which pages a start read.
//! * [`paths`]: where everything lies below the root directory and the run directory; [`closed`]: both are closed to other users.
//! * [`settings`]: `daemon.toml`, and the options of the command line that win over it.
//!
//! Promises: fields of messages are only added, with a default, so that a command line and a daemon of neighbouring versions
//! understand each other. Nothing here opens a connection or starts a process.
//!
//! May use: `container` for the user that a container runs as, `cache` and `oci` for their errors and texts of durations,
//! `trust`, `kernel`, `format`. Everything of the daemon may use this crate.

pub mod closed;
pub mod explain;
pub mod failure;
pub mod history;
pub mod paths;
pub mod settings;
pub mod start_report;
pub mod wire;
