//! Orders that a keeper and its worker get by signals.

pub(crate) const SIGHUP: i32 = rustix::process::Signal::HUP.as_raw();

pub(crate) const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();

pub(crate) const SIGINT: i32 = rustix::process::Signal::INT.as_raw();

/// Asks a keeper to execute the program that [`crate::upgrade_file`] names, and a worker to make room for another.
pub const REPLACE: i32 = rustix::process::Signal::USR2.as_raw();

/// The signals to a worker. They are blocked when it starts: it unblocks them when it listens.
pub const WORKER_SIGNALS: [i32; 2] = [SIGTERM, REPLACE];

/// Asks a keeper to leave its worker to another keeper, which takes over.
pub(crate) const LEAVE: i32 = rustix::process::Signal::USR1.as_raw();
