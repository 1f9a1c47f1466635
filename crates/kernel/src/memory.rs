//! Staying in memory when memory is short: a daemon that answers page faults must not wait for one itself.

use std::io;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

use crate::process::has_capability;

/// Locks the pages that the process has, and each further page from its first touch on.
///
/// `MCL_ONFAULT` keeps the lock to the pages that are used; without it every thread's whole stack would be brought in.
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

/// Freed memory is kept for the next allocation, up to this much, in bytes.
const KEPT: libc::c_int = 16 << 20;
/// The allocator gets an allocation that is larger than this, in bytes, from the kernel by itself, and gives it back by itself.
const LARGE: libc::c_int = 4 << 20;
/// How much it gets from the kernel at a time otherwise, and keeps when there is too much, in MiB: a start with some thousand files and
/// pages takes up to that.
const ROOM: libc::c_int = 10;

/// Keeps freed memory for whichever thread is next. A thread that decodes pages frees a quarter of a MiB and takes it again for
/// each segment; without this, the kernel would clear it anew each time.
///
/// By default glibc maps allocations of that size by themselves, and each thread has free memory of its own, in up to eight arenas
/// for each processor (`mallopt(3)`). Here there is one; of small pieces each thread keeps some to itself all the same.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TOP_PAD, ROOM << 20),
        (libc::M_TRIM_THRESHOLD, KEPT),
        (libc::M_ARENA_MAX, 1),
    ] {
        // SAFETY: it takes numbers, and changes nothing of what is allocated.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// Has memory ready, where [`keep_freed`] keeps it, before somebody waits for the work that takes it. Else a start would wait until
/// the kernel has cleared each page.
pub fn take_room() {
    #[cfg(target_env = "gnu")]
    {
        // Written, so that it is there.
        let room: Vec<Vec<u8>> = (0..ROOM).map(|_| vec![1; 1 << 20]).collect();
        drop(std::hint::black_box(room));
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
