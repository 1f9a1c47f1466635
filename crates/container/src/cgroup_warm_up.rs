//! Lets a container join its control groups without waiting.
//!
//! A process that moves another one into a control group takes a lock of the kernel for writing
//! (`cgroup_threadgroup_rwsem`, `kernel/cgroup/cgroup.c`). The first one after a pause waits for a grace
//! period of RCU (`rcu_sync_enter`, `kernel/rcu/sync.c`): 8 to 16 ms were measured, a third of a warm start.
//! Until another grace period has passed, the next ones do not wait (0.1 ms, up to 10 ms later).
//!
//! The runtime moves the container's process some time after it received its configuration. So from then
//! until the container is created, this process moves itself to the group that it is in already, again and
//! again. The wait is over, or has begun, before the runtime comes to it, and nothing has changed afterwards.
//!
//! Nothing depends on it: where it is not possible, the runtime waits.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::control_groups::CGROUPS;

/// How often this process moves itself. Twice as often as was measured to suffice.
const INTERVAL: Duration = Duration::from_millis(5);

/// How long it does so at most. A runtime that takes longer is delayed by something else.
const LIMIT: Duration = Duration::from_millis(250);

/// While this lives, joining a control group is fast.
pub(crate) struct CgroupWarmUp {
    _end: Option<Sender<()>>,
}

impl CgroupWarmUp {
    /// Starts a thread, which ends soon after this is dropped.
    pub(crate) fn start() -> Self {
        let (end, ended) = mpsc::channel::<()>();
        let work = move || {
            let Some(mut own) = open_own_group() else { return };
            let began = Instant::now();
            // "0" is the process that writes.
            while own.write_all(b"0").is_ok() && began.elapsed() < LIMIT {
                if ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("cgroup-warm-up".to_owned());
        CgroupWarmUp {
            _end: thread.spawn(work).is_ok().then_some(end),
        }
    }
}

/// The process list of this process's control group, in the first hierarchy in which it is writable.
fn open_own_group() -> Option<File> {
    let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
    process_lists(&memberships, Path::new(CGROUPS)).find_map(|path| open_if_in(&path, std::process::id()))
}

/// Opens a process list if it has the process. The list at that path may be another group's: in a cgroup
/// namespace the kernel shows paths from the namespace's root, and the mounts may be the host's.
fn open_if_in(list: &Path, process: u32) -> Option<File> {
    let processes = fs::read_to_string(list).ok()?;
    let is_in = processes.lines().any(|line| line.parse() == Ok(process));
    is_in
        .then(|| File::options().write(true).open(list).ok())
        .flatten()
}

/// The paths of a process's lists, by its `/proc/PID/cgroup`, which has `NUMBER:CONTROLLERS:PATH` in each
/// line (cgroups(7)).
fn process_lists(memberships: &str, top: &Path) -> impl Iterator<Item = PathBuf> {
    memberships.lines().flat_map(move |line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (
            fields.next().unwrap_or_default(),
            fields.next().unwrap_or_default(),
        );
        let names: &[&str] = match names {
            // Version 2, alone or beside version 1.
            "" => &["", "unified"],
            names => &[names.strip_prefix("name=").unwrap_or(names)],
        };
        let list = |name: &&str| {
            top.join(name)
                .join(path.trim_start_matches('/'))
                .join("cgroup.procs")
        };
        names.iter().map(list).collect::<Vec<_>>()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_in_either_version() {
        let found = |memberships| -> Vec<String> {
            let lists = process_lists(memberships, Path::new("/c"));
            lists.map(|path| path.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            found("0::/a b/c:d\n"),
            ["/c/a b/c:d/cgroup.procs", "/c/unified/a b/c:d/cgroup.procs"]
        );
        assert_eq!(
            found("9:name=systemd:/\n2:cpu,cpuacct:/x\n"),
            ["/c/systemd/cgroup.procs", "/c/cpu,cpuacct/x/cgroup.procs"]
        );
        assert!(found("").is_empty());
    }

    #[test]
    fn a_list_of_another_group_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("cgroup.procs");
        assert!(open_if_in(&list, 17).is_none());
        fs::write(&list, "1\n170\n").unwrap();
        assert!(open_if_in(&list, 17).is_none());
        fs::write(&list, "1\n17\n").unwrap();
        assert!(open_if_in(&list, 17).is_some());
    }

    #[test]
    fn this_process_stays_where_it_is() {
        let before = fs::read_to_string("/proc/self/cgroup").unwrap();
        match open_own_group() {
            Some(mut own) => own.write_all(b"0").unwrap(),
            None => eprintln!("SKIPPED: this process may not write to its control groups"),
        }
        assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
    }
}
