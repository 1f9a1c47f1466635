//! Ends a runtime whose container will have no root, with what it has begun.

use std::process::Child;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use xebec_kernel::process::children;

use crate::container::control_groups::{self, INTERVAL, ROUNDS};

/// Kills a runtime, and the processes that it has begun, which are this one's children from then on ([`super::init::adopt`]); neither
/// gets to say where its container's errors go that the other one is gone. Removes the control groups at `group` (as in a bundle's
/// `cgroupsPath`), which are empty then.
pub(super) fn end(runtime: &mut Child, group: &str) {
    let process = Pid::from_child(runtime);
    let _ = kill_process(process, Signal::STOP);
    let mut killed: Vec<i32> = Vec::new();
    // One that it has begun may begin another.
    for _ in 0..ROUNDS {
        let mut new = children(process);
        new.retain(|process| !killed.contains(process));
        for process in new.iter().copied().filter_map(Pid::from_raw) {
            let _ = kill_process(process, Signal::KILL);
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
    for process in killed.into_iter().filter_map(Pid::from_raw) {
        let _ = waitpid(Some(process), WaitOptions::empty());
    }
    control_groups::remove(group);
}
