//! A lease on a file: proof that nobody else has it open, for as long as it is held.
//!
//! `F_SETLEASE` with `F_WRLCK` succeeds only if no other open file description of the inode exists: not another
//! process's, not one of this process, not one that a memory map or an EROFS mount keeps (settled by experiment, see
//! `tests/lease.rs`). While it is held, a process that opens the file waits (up to `/proc/sys/fs/lease-break-time`, 45 s by
//! default). Kernel source: `fs/locks.c`, `check_conflicting_open` and `__break_lease`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `F_SETSIG` of `include/uapi/asm-generic/fcntl.h`; the libc crate does not have it.
const F_SETSIG: libc::c_int = 10;

/// A lease that is held; dropping it lets those who wait open the file.
#[derive(Debug)]
pub struct Lease<'a> {
    file: BorrowedFd<'a>,
}

impl<'a> Lease<'a> {
    /// Takes a lease on a file that is open for writing. `None` when somebody else has it open.
    ///
    /// # Errors
    /// `EINVAL` where the file system has no leases; `EACCES` for another user's file.
    pub fn take(file: BorrowedFd<'a>) -> io::Result<Option<Self>> {
        // A process that opens the file raises a signal here. SIGURG is ignored unless a program asks for it, and SIGIO, which
        // it would be otherwise, ends the process.
        control(file, F_SETSIG, libc::SIGURG)?;
        match control(file, libc::F_SETLEASE, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Self { file })),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // It would end with the descriptor in any case.
        let _ = control(self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(file: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both commands take an integer, and the descriptor is open for the duration of the borrow.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
