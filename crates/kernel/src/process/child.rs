//! A process, known by a pidfd: a number that is reused can never be mistaken for it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
    /// It ended; how is told to its parent alone, which this process is not.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(status) => write!(f, "exit status {status}"),
            Ending::Killed(signal) => write!(f, "signal {signal}"),
            Ending::Unknown => f.write_str("it is gone"),
        }
    }
}

/// A process that has not been reaped, mostly a child. Its descriptor is readable once it has ended.
///
/// Dropping it neither ends nor reaps the process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Child {
    /// `pid` must be of a process that nobody can have waited for.
    pub(super) fn new(pid: Pid) -> io::Result<Child> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child { pid, pidfd })
    }

    /// Any process, by its id.
    ///
    /// # Errors
    /// `ESRCH` when there is none.
    pub fn open(pid: i32) -> io::Result<Child> {
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Child::new(pid)
    }

    /// A process of which another one kept the descriptor.
    ///
    /// # Errors
    /// `InvalidData` when the descriptor is no pidfd, `ESRCH` when the process was reaped already.
    pub fn from_descriptor(pidfd: OwnedFd) -> io::Result<Child> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        let pid: i32 = pid
            .and_then(|pid| pid.trim().parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a descriptor of a process"))?;
        // -1 when it has been reaped.
        let pid = Pid::from_raw(pid.max(0)).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Ok(Child { pid, pidfd })
    }

    /// A copy of one of its descriptors (`pidfd_getfd(2)`): both then refer to one open file.
    ///
    /// # Errors
    /// `EBADF` when it has none of that number, `EPERM` without the right to trace it, `ESRCH` when it has ended.
    pub fn copy_descriptor(&self, number: RawFd) -> io::Result<OwnedFd> {
        let flags = rustix::process::PidfdGetfdFlags::empty();
        Ok(rustix::process::pidfd_getfd(&self.pidfd, number, flags)?)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal, by number.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EINVAL` for a number that is no signal.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        send_signal(self.pidfd.as_fd(), number)
    }

    /// Ends it at once (SIGKILL).
    ///
    /// # Errors
    /// `ESRCH` when it has ended.
    pub fn kill(&self) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL)?)
    }

    /// Waits until it has ended, and reaps it.
    ///
    /// # Errors
    /// `ECHILD` when it was reaped already.
    pub fn wait(&self) -> io::Result<Ending> {
        loop {
            if let Some(ending) = self.wait_with(WaitIdOptions::EXITED)? {
                return Ok(ending);
            }
        }
    }

    /// Reaps it if it has ended. If it is no child it can only be told that it has: its descriptors are closed by then
    /// (`do_exit` in `kernel/exit.c` closes them before it notifies).
    ///
    /// # Errors
    /// The error of the system.
    pub fn try_wait(&self) -> io::Result<Option<Ending>> {
        match self.wait_with(WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                Ok(self.has_ended()?.then_some(Ending::Unknown))
            }
            other => other,
        }
    }

    /// Whether it has ended; it is not reaped.
    ///
    /// # Errors
    /// The error of the system.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&none)))?;
        Ok(ready > 0)
    }

    fn wait_with(&self, options: WaitIdOptions) -> io::Result<Option<Ending>> {
        let status = rustix::io::retry_on_intr(|| {
            rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options)
        })?;
        Ok(status.and_then(|status| {
            let exited = status.exit_status().map(Ending::Exited);
            exited.or_else(|| status.terminating_signal().map(Ending::Killed))
        }))
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
/// Sends a signal to a process by its descriptor; a real-time signal, too, which rustix has no name for.
///
/// # Errors
/// `ESRCH` when it has ended, `EINVAL` for a number that is no signal.
pub fn send_signal(process: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    let (information, flags) = (std::ptr::null::<libc::siginfo_t>(), 0_u32);
    // SAFETY: it takes numbers, and a pointer that may be null (`pidfd_send_signal(2)`).
    let code = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            number,
            information,
            flags,
        )
    };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
