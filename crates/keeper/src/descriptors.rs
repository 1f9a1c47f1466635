//! The numbers at which a worker finds the descriptors that its keeper hands down.

use std::os::fd::RawFd;

/// The fanotify group.
pub const GROUP: RawFd = 3;
/// The journal.
pub const JOURNAL: RawFd = 4;
/// The listening socket. It stays open across workers, so that clients wait instead of being refused.
pub const SOCKET: RawFd = 5;
/// The lock on the run directory, so that it is held as long as either process lives.
pub const RUN_LOCK: RawFd = 6;
/// The lock on the root directory.
pub const ROOT_LOCK: RawFd = 7;
/// The socket at which containerd connects; one that does not listen if it is not served. It has a number in any case,
/// so that an event never gets it.
pub const SNAPSHOTS: RawFd = 8;
