//! The container's first process (`init`): a child of this process, though the runtime created it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, pidfd_open, set_child_subreaper,
    waitid,
};

use xebec_kernel::process::send_signal;

use crate::supervisor_event::SupervisorEvent;
use crate::{ExitCode, RunError};

/// Makes this process the parent of every descendant whose own parent ends. The runtime ends after `create`,
/// and its child, the container, becomes a child of this process.
pub(crate) fn become_subreaper() -> Result<(), RunError> {
    let outcome = set_child_subreaper(Some(getpid()));
    outcome.map_err(|error| RunError::system("become the parent of the container")(error.into()))
}

/// The process id that the runtime wrote into its pid file.
pub(crate) fn read_pid(pid_file: &Path) -> Result<Pid, RunError> {
    let failed = || RunError::file("read the container's process id from", pid_file);
    let text = std::fs::read_to_string(pid_file).map_err(failed())?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| failed()(io::ErrorKind::InvalidData.into()))
}

/// The container's first process. Dropped, it is killed if it still runs, and reaped.
pub(crate) struct Init {
    pub(crate) pid: i32,
    pidfd: OwnedFd,
}

impl Init {
    /// Opens the process that the runtime wrote into its pid file.
    pub(crate) fn open(pid_file: &Path) -> Result<Self, RunError> {
        let pid = read_pid(pid_file)?;
        let pidfd = open_child(pid).map_err(RunError::system("find the container's first process"))?;
        Ok(Init {
            pid: pid.as_raw_pid(),
            pidfd,
        })
    }

    /// Sends an event when the process has ended, and does not reap it: its process id must not be reused
    /// while others look at it.
    pub(crate) fn watch(&self, sender: &Sender<SupervisorEvent>) -> Result<(), RunError> {
        let failed = RunError::system("watch the container's first process");
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

    /// A descriptor that is readable when the process has ended.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether the process still is runc's own program, which becomes the container's command. It stays so while the kernel
    /// waits for the first page of the command's file.
    pub(crate) fn is_runtimes(&self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/comm", self.pid))
            .is_ok_and(|name| name.starts_with("runc:["))
    }

    /// Sends a signal to the process, unless it has ended.
    pub(crate) fn send(&self, signal: i32) {
        if let Err(error) = send_signal(self.pidfd.as_fd(), signal) {
            tracing::debug!(%error, "the container's first process took no signal");
        }
    }
}

/// Opens a child of this process. Any other process is an error: the process id in a file may have been
/// reused, and the process that is opened here is killed in the end.
fn open_child(pid: Pid) -> io::Result<OwnedFd> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    // The kernel lets only the parent wait, and answers others with `ECHILD`.
    let is_child = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(pidfd.as_fd()), is_child)?;
    Ok(pidfd)
}

impl Drop for Init {
    fn drop(&mut self) {
        self.send(Signal::KILL.as_raw());
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

fn exit_code(status: &WaitIdStatus) -> ExitCode {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitCode(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => ExitCode::of_signal(signal),
        (None, None) => ExitCode(u8::MAX),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_runtimes_program_is_known_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        // The kernel names a process by the path that was executed.
        let link = directory.path().join("runc:[2:INIT]");
        std::os::unix::fs::symlink("/bin/sleep", &link).unwrap();
        for (program, is_runtimes) in [(link.as_path(), true), (Path::new("/bin/sleep"), false)] {
            let mut sleep = Command::new(program);
            sleep.arg("60");
            std::os::unix::process::CommandExt::arg0(&mut sleep, "sleep");
            let mut sleep = sleep.spawn().unwrap();
            let pid = Pid::from_child(&sleep);
            // The kernel lets this process go on before it has named the other one.
            let name = program.file_name().unwrap().to_str().unwrap();
            let comm = format!("/proc/{}/comm", pid.as_raw_pid());
            for _ in 0..1000 {
                if std::fs::read_to_string(&comm).unwrap().trim_end() == name {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let init = Init {
                pid: pid.as_raw_pid(),
                pidfd: open_child(pid).unwrap(),
            };
            assert_eq!(init.is_runtimes(), is_runtimes, "{}", program.display());
            // That ends and reaps the process.
            drop(init);
            let _ = sleep.wait();
        }
    }

    #[test]
    fn only_children_are_opened() {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let opened = open_child(Pid::from_child(&shell)).unwrap();
        let mut number = String::new();
        let output = io::BufReader::new(shell.stdout.take().unwrap());
        io::BufRead::read_line(&mut { output }, &mut number).unwrap();
        let grandchild = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
        let refused = open_child(grandchild).map(drop);
        let other = pidfd_open(grandchild, PidfdFlags::empty()).unwrap();
        send_signal(other.as_fd(), Signal::KILL.as_raw()).unwrap();
        send_signal(opened.as_fd(), Signal::KILL.as_raw()).unwrap();
        shell.wait().unwrap();
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(rustix::io::Errno::CHILD.raw_os_error())
        );
        assert!(open_child(Pid::from_child(&shell)).is_err(), "it was reaped");
    }
}
