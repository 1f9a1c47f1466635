//! Kills a runtime whose container will have no root, and the processes that it started.
//!
//! A process id alone kills nothing here, since the kernel may have given it to another process. The runtime
//! is a child of this process that was not reaped, so its id is its own. A process that it started is opened
//! first (a pidfd), and then looked at. If it still has that id, the id was its own all the time. If the
//! kernel names the runtime as its parent, the runtime started it.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use xebec_kernel::process::{Stat, children};

use crate::control_groups::{self, INTERVAL, ROUNDS};

/// Kills a runtime and the processes that it started, which become children of this process
/// ([`crate::init::become_subreaper`]). The runtime is stopped first, so that neither reports the death of
/// the other in the container's error output. Removes the control groups at `group` (a `cgroupsPath`), which
/// are empty then.
pub(super) fn kill(runtime: &mut Child, group: &str) {
    let process = Pid::from_child(runtime);
    if let Ok(opened) = pidfd_open(process, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&opened, Signal::STOP);
    }
    let mut killed: Vec<RuntimeChild> = Vec::new();
    // A process that the runtime started may start another one.
    for _ in 0..ROUNDS {
        let found = children(process).into_iter();
        let found = found.filter_map(|number| RuntimeChild::open(process, number));
        let mut new: Vec<RuntimeChild> = found.collect();
        new.retain(|child| !killed.iter().any(|killed| killed.is(child)));
        for child in &new {
            let _ = pidfd_send_signal(&child.pidfd, Signal::KILL);
        }
        let is_over = new.is_empty() && control_groups::processes(group).is_empty();
        killed.extend(new);
        if is_over {
            break;
        }
        std::thread::sleep(INTERVAL);
    }
    let _ = runtime.kill();
    let _ = runtime.wait();
    for child in killed {
        // The kernel refuses to wait for a process that is not this process's child.
        let _ = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
    control_groups::remove(group);
}

/// A process that the runtime started.
struct RuntimeChild {
    number: i32,
    started: u64,
    pidfd: OwnedFd,
}

impl RuntimeChild {
    /// `None` if the process with that id is no child of the runtime.
    fn open(runtime: Pid, number: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        let stat = Stat::of(number).filter(|stat| stat.parent == runtime.as_raw_pid())?;
        Some(Self {
            number,
            started: stat.started,
            pidfd,
        })
    }

    fn is(&self, other: &Self) -> bool {
        (self.number, self.started) == (other.number, other.started)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::init;

    #[test]
    fn only_children_of_the_runtime_are_opened() {
        let (mut runtime, mut other) = (sleeping(), sleeping());
        let number = |child: &Child| Pid::from_child(child).as_raw_pid();
        let this = rustix::process::getpid();
        // As if their ids had been read from the process table.
        assert!(RuntimeChild::open(Pid::from_child(&runtime), number(&other)).is_none());
        assert!(RuntimeChild::open(Pid::from_child(&runtime), this.as_raw_pid()).is_none());
        assert!(RuntimeChild::open(this, number(&other)).is_some());
        kill(&mut runtime, "/xebec/none");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(
            RuntimeChild::open(this, number(&other)).is_none(),
            "it was reaped"
        );
    }

    #[test]
    fn processes_that_the_runtime_started_are_killed_and_reaped() {
        init::become_subreaper().unwrap();
        let script = "sleep 60 & echo $!; sleep 60 & echo $!; (exit 0) & echo $!; echo; wait";
        let mut runtime = Command::new("sh");
        runtime.args(["-c", script]).stdout(Stdio::piped());
        let mut runtime = runtime.spawn().unwrap();
        let lines = BufReader::new(runtime.stdout.take().unwrap()).lines();
        let numbers = lines.map(Result::unwrap).take_while(|line| !line.is_empty());
        let numbers: Vec<i32> = numbers.map(|number| number.parse().unwrap()).collect();
        kill(&mut runtime, "/xebec/none");
        for number in &numbers {
            assert_eq!(Stat::of(*number), None, "{number} runs, or was not reaped");
        }
        assert_eq!(numbers.len(), 3);
    }

    fn sleeping() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }
}
