//! Staying in memory when memory is short: a daemon that answers page faults must not wait for one itself.

use std::io;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

use crate::process::has_capability;

/// Locks the pages that the process has, and each further page from its first touch on.
///
/// `MCL_ONFAULT` keeps the lock to what is used; without it every thread's whole stack would be brought in.
///
/// # Errors
/// `EPERM` when locked memory stays limited (`ulimit -l`): allocations would fail once the limit is reached.
pub fn lock_all() -> io::Result<()> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let lifted = rustix::process::setrlimit(Resource::Memlock, unlimited).is_ok();
    if !lifted && !has_capability(CapabilitySet::IPC_LOCK) {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(rustix::mm::mlockall(flags)?)
}

/// What is free is kept for the next allocation up to this much, in bytes, in each of the allocator's arenas.
const KEPT: libc::c_int = 4 << 20;

/// Keeps memory that was freed, as far as a start needs it again at once: what decodes pages frees a quarter of a MiB and takes it
/// again, and would have it cleared anew by the kernel each time.
///
/// By default glibc maps what is that large by itself, and gives each piece back (`mallopt(3)`, `M_MMAP_THRESHOLD`).
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TOP_PAD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: it takes numbers, and changes nothing of what is allocated.
        unsafe { libc::mallopt(parameter, KEPT) };
    }
}

/// Sets how readily the kernel kills this process when memory runs out: -1000 (never) to 1000 (first).
/// Children inherit it.
///
/// # Errors
/// `EACCES` when lowering it without `CAP_SYS_RESOURCE`.
pub fn set_oom_score_adj(score: i32) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}
