//! The container's first process: this process's child, though the runtime made it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitid,
};

use super::bundle::Bundle;
use super::signal::exit_code_of;
use super::supervisor::SupervisorEvent;
use super::{ExitCode, RunError};

/// Makes this process the parent of every process below it whose own parent ends. The runtime ends after
/// `create`; its child, the container, is then a child of this process.
pub(super) fn adopt() -> Result<(), RunError> {
    set_child_subreaper(Some(getpid())).map_err(|error| RunError::System {
        doing: "become the parent of the container",
        source: error.into(),
    })
}

/// The number of the container's first process, as the runtime left it.
pub(super) fn pid(bundle: &Bundle) -> Result<Pid, RunError> {
    let path = bundle.pid_file();
    let text = std::fs::read_to_string(&path).map_err(|source| RunError::File {
        doing: "read the container's process id from",
        path: path.clone(),
        source,
    })?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| RunError::File {
        doing: "read the container's process id from",
        path,
        source: io::ErrorKind::InvalidData.into(),
    })
}

/// The container's first process. Dropped, it is killed if it still runs, and reaped.
pub(super) struct Init {
    pub pid: i32,
    pidfd: OwnedFd,
}

impl Init {
    pub(super) fn open(bundle: &Bundle) -> Result<Self, RunError> {
        let pid = pid(bundle)?;
        let pidfd = hold_child(pid).map_err(|source| RunError::System {
            doing: "find the container's first process",
            source,
        })?;
        Ok(Init {
            pid: pid.as_raw_pid(),
            pidfd,
        })
    }

    /// Tells of its end, without reaping it: its number must stay its own while others look at it.
    pub(super) fn watch(&self, sender: &Sender<SupervisorEvent>) -> Result<(), RunError> {
        let failed = |source| RunError::System {
            doing: "watch the container's first process",
            source,
        };
        let (pidfd, sender) = (self.pidfd.try_clone().map_err(failed)?, sender.clone());
        let watch = move || {
            let code = loop {
                match waitid(
                    WaitId::PidFd(pidfd.as_fd()),
                    WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
                ) {
                    Err(rustix::io::Errno::INTR) => {}
                    Ok(Some(status)) => break exit_code(&status),
                    Ok(None) | Err(_) => break ExitCode(u8::MAX),
                }
            };
            let _ = sender.send(SupervisorEvent::Exited(code));
        };
        thread::Builder::new()
            .name("container-exit".into())
            .spawn(watch)
            .map_err(failed)?;
        Ok(())
    }

    /// Can be waited for, and is ready when the process has ended.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(super) fn send(&self, signal: Signal) {
        // It may have ended a moment ago.
        if let Err(error) = pidfd_send_signal(&self.pidfd, signal) {
            tracing::debug!(%error, "the container's first process took no signal");
        }
    }
}

/// A child of this process. Any other is an error: the number in a file may be somebody else's by now, and whoever is held here is
/// killed in the end.
fn hold_child(pid: Pid) -> io::Result<OwnedFd> {
    let held = pidfd_open(pid, PidfdFlags::empty())?;
    // The kernel lets nobody wait but the parent, and says `ECHILD` to others.
    let is_child = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(held.as_fd()), is_child)?;
    Ok(held)
}

impl Drop for Init {
    fn drop(&mut self) {
        self.send(Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

fn exit_code(status: &WaitIdStatus) -> ExitCode {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitCode(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => exit_code_of(signal),
        (None, None) => ExitCode(u8::MAX),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_children_are_held() {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let held = hold_child(Pid::from_child(&shell)).unwrap();
        let mut number = String::new();
        let output = io::BufReader::new(shell.stdout.take().unwrap());
        io::BufRead::read_line(&mut { output }, &mut number).unwrap();
        let grandchild = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
        let refused = hold_child(grandchild).map(drop);
        let other = pidfd_open(grandchild, PidfdFlags::empty()).unwrap();
        pidfd_send_signal(&other, Signal::KILL).unwrap();
        pidfd_send_signal(&held, Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::CHILD.raw_os_error())
        );
        assert!(hold_child(Pid::from_child(&shell)).is_err(), "it was waited for");
    }
}
