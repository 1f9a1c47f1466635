//! Signals as a descriptor: a single-threaded process polls them with everything else and needs no handler.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Size of `struct signalfd_siginfo`.
const SIGINFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// Blocked signals that are read from a descriptor, which is readable while one waits.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals for the calling thread (threads that it starts later inherit that) and collects them.
    ///
    /// # Errors
    /// The error of `signalfd`.
    pub fn block(numbers: &[i32]) -> io::Result<Signals> {
        let set = set_of(numbers)?;
        change_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: the set is initialised and only read.
        let raw = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this number to us.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Signals { fd })
    }

    /// The number of the next signal that waits, or `None`.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn next(&self) -> io::Result<Option<i32>> {
        let mut info = [0u8; SIGINFO_BYTES];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut info)) {
            // struct signalfd_siginfo starts with __u32 ssi_signo.
            Ok(bytes) if bytes >= 4 => Ok(info.first_chunk().map(|first| i32::from_ne_bytes(*first))),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Lets signals reach the calling thread that were blocked when it was started ([`Spawn::blocked`](super::Spawn::blocked));
/// one that came since comes now.
///
/// # Errors
/// `EINVAL` when there is no such signal.
pub fn unblock_signals(numbers: &[i32]) -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, &set_of(numbers)?)
}

pub(super) fn change_mask(how: i32, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised and only read; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

pub(super) fn set_of(numbers: &[i32]) -> io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set; sigaddset only changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            if libc::sigaddset(set.as_mut_ptr(), *number) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(set.assume_init())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
