//! Ends a runtime whose container will have no root, with what it has begun.
//!
//! Nobody is killed by a number alone, which may be somebody else's by then. The runtime is this process's child and has not been
//! waited for, so its number is its own. What it has begun is held by a descriptor first, and then looked at: whoever is held
//! and still has that number has had it all the time, and if the kernel says that the runtime is its parent, it is the runtime's.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use xebec_kernel::process::{Stat, children};

use crate::control_groups::{self, INTERVAL, ROUNDS};

/// Kills a runtime, and the processes that it has begun, which are this one's children from then on ([`super::init::adopt`]); neither
/// gets to say where its container's errors go that the other one is gone. Removes the control groups at `group` (as in a bundle's
/// `cgroupsPath`), which are empty then.
pub(super) fn kill(runtime: &mut Child, group: &str) {
    let process = Pid::from_child(runtime);
    if let Ok(held) = pidfd_open(process, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&held, Signal::STOP);
    }
    let mut killed: Vec<Begun> = Vec::new();
    // One that it has begun may begin another.
    for _ in 0..ROUNDS {
        let begun = children(process).into_iter();
        let mut new: Vec<Begun> = begun.filter_map(|number| Begun::hold(process, number)).collect();
        new.retain(|begun| !killed.iter().any(|killed| killed.is(begun)));
        for begun in &new {
            let _ = pidfd_send_signal(&begun.held, Signal::KILL);
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
    for begun in killed {
        // Nothing is waited for that is not this process's child.
        let _ = waitid(WaitId::PidFd(begun.held.as_fd()), WaitIdOptions::EXITED);
    }
    control_groups::remove(group);
}

/// A process that the runtime has begun.
struct Begun {
    number: i32,
    started: u64,
    held: OwnedFd,
}

impl Begun {
    /// `None` if that number is no child's of the runtime.
    fn hold(runtime: Pid, number: i32) -> Option<Self> {
        let held = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        let stat = Stat::of(number).filter(|stat| stat.parent == runtime.as_raw_pid())?;
        Some(Self {
            number,
            started: stat.started,
            held,
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
    fn who_is_no_child_of_the_runtime_is_not_held() {
        let (mut runtime, mut other) = (sleeping(), sleeping());
        let number = |child: &Child| Pid::from_child(child).as_raw_pid();
        let this = rustix::process::getpid();
        // As if its number had been read from the table of processes.
        assert!(Begun::hold(Pid::from_child(&runtime), number(&other)).is_none());
        assert!(Begun::hold(Pid::from_child(&runtime), this.as_raw_pid()).is_none());
        assert!(Begun::hold(this, number(&other)).is_some());
        kill(&mut runtime, "/xebec/none");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(Begun::hold(this, number(&other)).is_none(), "it is gone");
    }

    #[test]
    fn what_the_runtime_has_begun_ends_with_it() {
        init::adopt().unwrap();
        let script = "sleep 60 & echo $!; sleep 60 & echo $!; (exit 0) & echo $!; echo; wait";
        let mut runtime = Command::new("sh");
        runtime.args(["-c", script]).stdout(Stdio::piped());
        let mut runtime = runtime.spawn().unwrap();
        let lines = BufReader::new(runtime.stdout.take().unwrap()).lines();
        let numbers = lines.map(Result::unwrap).take_while(|line| !line.is_empty());
        let numbers: Vec<i32> = numbers.map(|number| number.parse().unwrap()).collect();
        kill(&mut runtime, "/xebec/none");
        for number in &numbers {
            assert_eq!(
                Stat::of(*number),
                None,
                "{number} is there, or nobody has waited for it"
            );
        }
        assert_eq!(numbers.len(), 3);
    }

    fn sleeping() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }
}
