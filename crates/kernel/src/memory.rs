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

/// Lets threads share the allocator's arenas, of which there is one for each processor from then on. By default glibc has up to eight for each (`mallopt(3)`), and
/// memory that was freed in one is of no use to threads with another. A process whose threads come and go, and take large pieces, grows to several times what it
/// uses. Called before the first thread starts.
pub fn share_arenas() {
    #[cfg(target_env = "gnu")]
    {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let arenas = libc::c_int::try_from(processors).unwrap_or(libc::c_int::MAX);
        // SAFETY: it takes numbers, and changes nothing of what is allocated.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
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

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::process::Command;
    use std::sync::Barrier;

    use super::*;

    const CHILD: &str = "XEBEC_KERNEL_TEST_ARENAS";
    const THREADS: usize = 32;

    /// The arenas that the process has, as glibc counts them.
    fn arenas() -> usize {
        let (mut text, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: the stream and its text are closed and freed once, after their last use.
        let told = unsafe {
            let stream = libc::open_memstream(&raw mut text, &raw mut length);
            assert!(!stream.is_null());
            assert_eq!(libc::malloc_info(0, stream), 0);
            libc::fclose(stream);
            let told = std::slice::from_raw_parts(text.cast::<u8>(), length).to_vec();
            libc::free(text.cast());
            told
        };
        String::from_utf8(told).unwrap().matches("<heap nr=").count()
    }

    /// Has many threads hold memory at the same time, and says how many arenas there are then.
    fn crowd() -> usize {
        let barrier = Barrier::new(THREADS + 1);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let held = vec![1_u8; 4096];
                    barrier.wait();
                    barrier.wait();
                    drop(held);
                });
            }
            barrier.wait();
            let arenas = arenas();
            barrier.wait();
            arenas
        })
    }

    /// The arenas are those of a process of its own: other tests have threads, too.
    fn crowd_in_a_child(mode: &str) -> usize {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "memory::tests::child", "--nocapture"]);
        let told = child
            .env(CHILD, mode)
            .env_remove("MALLOC_ARENA_MAX")
            .output()
            .unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let count = told.lines().find_map(|line| line.strip_prefix("arenas: "));
        count.unwrap_or_else(|| panic!("{told}")).parse().unwrap()
    }

    #[test]
    fn child() {
        let Some(mode) = std::env::var_os(CHILD) else {
            return;
        };
        if mode == "shared" {
            share_arenas();
        }
        println!("\narenas: {}", crowd());
    }

    #[test]
    fn threads_share_arenas() {
        let processors = std::thread::available_parallelism().unwrap().get();
        let alone = crowd_in_a_child("usual");
        assert!(alone > processors + 1, "{alone} arenas: nothing is to be shared");
        // The runner of the tests may have had one more before.
        let shared = crowd_in_a_child("shared");
        assert!(
            shared <= processors + 1,
            "{shared} arenas for {processors} processors"
        );
    }
}
