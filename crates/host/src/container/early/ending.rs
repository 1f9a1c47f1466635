//! Ends a runtime whose container will have no root. It would say that it failed, where its container's errors go, so it is
//! killed; what it has made by then is removed here.

use std::fs;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Where control groups are mounted, by convention.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Kills it with the processes that it has begun, which are this one's children from then on ([`super::init::adopt`]), and removes
/// the control groups at `group` (as in a bundle's `cgroupsPath`), which are empty then.
pub(super) fn end(runtime: &mut Child, group: &str) {
    // Nothing new comes while these are looked for.
    let _ = kill_process(Pid::from_child(runtime), Signal::STOP);
    let begun = children(Pid::from_child(runtime));
    let _ = runtime.kill();
    let _ = runtime.wait();
    let own = rustix::process::getpid();
    for process in begun {
        // Its number is its own until it is waited for here.
        if parent(process) == Some(own) {
            let _ = kill_process(process, Signal::KILL);
            let _ = waitpid(Some(process), WaitOptions::empty());
        }
    }
    remove_groups(Path::new(CGROUPS), group.trim_start_matches('/'));
}

/// What a process has for children, by the table of all.
fn children(process: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all = numbers.filter_map(Pid::from_raw);
    all.filter(|other| parent(*other) == Some(process)).collect()
}

/// The fourth field of `proc_pid_stat(5)`; the second, in parentheses, may itself hold anything.
fn parent(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_whitespace().nth(1)?.parse().ok()?)
}

/// In each hierarchy of the first version, or in that of the second. What is in use stays.
fn remove_groups(top: &Path, group: &str) {
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    for hierarchy in hierarchies.map(|entry| entry.path()).chain([top.to_owned()]) {
        let _ = fs::remove_dir(hierarchy.join(group));
    }
}
