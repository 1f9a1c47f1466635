//! Staying in memory when memory is short: a daemon that answers page faults must not wait for one itself.

use std::io;

use rustix::mm::MlockAllFlags;

/// Locks the pages that the process has, and each further page from its first touch on.
///
/// `MCL_ONFAULT` keeps the lock to what is used; without it every thread's whole stack would be brought in.
///
/// # Errors
/// `ENOMEM` or `EPERM` when locked memory is limited (`ulimit -l`) and `CAP_IPC_LOCK` is missing.
pub fn lock_all() -> io::Result<()> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(rustix::mm::mlockall(flags)?)
}

/// Sets how readily the kernel kills this process when memory runs out: -1000 (never) to 1000 (first).
/// Children inherit it.
///
/// # Errors
/// `EACCES` when lowering it without `CAP_SYS_RESOURCE`.
pub fn set_oom_score_adj(score: i32) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}
