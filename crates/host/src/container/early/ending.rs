//! Ends a runtime whose container will have no root, with what it has begun.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use xebec_kernel::process::children;

/// Where control groups are mounted, by convention.
const CGROUPS: &str = "/sys/fs/cgroup";

/// How often it is looked for processes that are left, and how long it is waited in between: what is killed ends at once, as a rule.
const ROUNDS: usize = 100;
const INTERVAL: Duration = Duration::from_millis(5);

/// Kills a runtime, since it would say that it failed, where its container's errors go, and the processes that it has begun, which
/// are this one's children from then on ([`super::init::adopt`]). Removes the control groups at `group` (as in a bundle's
/// `cgroupsPath`), which are empty then.
pub(super) fn end(runtime: &mut Child, group: &str) {
    let begun = children(Pid::from_child(runtime));
    let _ = runtime.kill();
    let _ = runtime.wait();
    // One that it has begun may begin another.
    for _ in 0..ROUNDS {
        let own = children(getpid()).into_iter();
        let its: Vec<Pid> = own
            .filter(|process| begun.contains(process) || is_in(*process, group))
            .filter_map(Pid::from_raw)
            .collect();
        for process in &its {
            let _ = kill_process(*process, Signal::KILL);
            let _ = waitpid(Some(*process), WaitOptions::empty());
        }
        if its.is_empty() && processes(group).is_empty() {
            break;
        }
        std::thread::sleep(INTERVAL);
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

fn is_in(process: i32, group: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| line.ends_with(group))
}
