//! A child process, known by a pidfd: a number that is reused can never be mistaken for it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Killed(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(status) => write!(f, "exit status {status}"),
            Ending::Killed(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A child that has not been reaped. Its descriptor is readable once it has ended.
///
/// Dropping it neither ends nor reaps the process.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Child {
    /// `pid` must be a child of this process that nobody has waited for.
    pub(super) fn new(pid: Pid) -> io::Result<Child> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child { pid, pidfd })
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
        let signal =
            Signal::from_named_raw(number).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
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

    /// Reaps it if it has ended.
    ///
    /// # Errors
    /// `ECHILD` when it was reaped already.
    pub fn try_wait(&self) -> io::Result<Option<Ending>> {
        self.wait_with(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
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
