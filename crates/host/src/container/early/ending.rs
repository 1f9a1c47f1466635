//! Ends a runtime whose container will have no root, with what it has begun.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use xebec_kernel::process::children;

/// Where control groups are mounted, by convention.
const CGROUPS: &str = "/sys/fs/cgroup";

/// How often it is looked for processes that are left, and how long it is waited in between: what is killed ends at once, as a rule.
const ROUNDS: usize = 500;
const INTERVAL: Duration = Duration::from_millis(1);

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
        let is_over = new.is_empty() && processes(group).is_empty();
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
    for group in groups(group) {
        let _ = fs::remove_dir(group);
    }
}

/// Kills all that is in the control groups at `group`, whosever children they are, and waits until it has ended.
pub(in crate::container) fn kill_group(group: &str) {
    for _ in 0..ROUNDS {
        let left = processes(group);
        if left.is_empty() {
            return;
        }
        for process in left {
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(INTERVAL);
    }
}

/// In each hierarchy of the first version, and in that of the second.
fn groups(group: &str) -> impl Iterator<Item = PathBuf> {
    let top = Path::new(CGROUPS);
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|entry| entry.path()).chain([top.to_owned()]);
    hierarchies.map(move |hierarchy| hierarchy.join(group.trim_start_matches('/')))
}

fn processes(group: &str) -> Vec<Pid> {
    let lists = groups(group).filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
    let numbers = lists.flat_map(|list| {
        list.lines()
            .filter_map(|line| line.parse().ok())
            .collect::<Vec<i32>>()
    });
    numbers.filter_map(Pid::from_raw).collect()
}
