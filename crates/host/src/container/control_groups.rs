//! The control groups of a container, by their path as its `cgroupsPath` has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Where control groups are mounted, by convention (systemd, `docs/FILE-HIERARCHY`; every OCI runtime relies on it).
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";

/// How often it is looked for processes that are left, and how long it is waited in between: what is killed ends at once, as a rule.
pub(super) const ROUNDS: usize = 500;
pub(super) const INTERVAL: Duration = Duration::from_millis(1);

/// Where a container's are.
pub(super) fn path(id: &str) -> String {
    format!("/xebec/{id}")
}

/// Kills all that is in the control groups at `group`, whosever children they are, and waits until it has ended.
pub(super) fn kill(group: &str) {
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

/// Removes those that are empty.
pub(super) fn remove(group: &str) {
    for group in directories(group) {
        let _ = fs::remove_dir(group);
    }
}

/// In each hierarchy of the first version, and in that of the second.
fn directories(group: &str) -> impl Iterator<Item = PathBuf> {
    let top = Path::new(CGROUPS);
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|entry| entry.path()).chain([top.to_owned()]);
    hierarchies.map(move |hierarchy| hierarchy.join(group.trim_start_matches('/')))
}

/// What is in any of them.
pub(super) fn processes(group: &str) -> Vec<Pid> {
    let lists = directories(group).filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
    let numbers = lists.flat_map(|list| {
        list.lines()
            .filter_map(|line| line.parse().ok())
            .collect::<Vec<i32>>()
    });
    numbers.filter_map(Pid::from_raw).collect()
}
