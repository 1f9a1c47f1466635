//! The control groups of a container, by their path as its `cgroupsPath` has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::bundle::{RANDOM_DIGITS, random};

/// Where control groups are mounted, by convention (systemd, `docs/FILE-HIERARCHY`; every OCI runtime relies on it).
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";

/// How often it is looked for processes that are left, and how long it is waited in between: what is killed ends at once, as a rule.
pub(super) const ROUNDS: usize = 500;
pub(super) const INTERVAL: Duration = Duration::from_millis(1);

/// How often it is looked whether a group is frozen. One that waits in the kernel for something is not before it has got that.
const FREEZING_ROUNDS: usize = 20;

/// `f_type` of the second version of control groups (`linux/magic.h`, `CGROUP2_SUPER_MAGIC`).
const CGROUP2: rustix::fs::FsWord = 0x6367_7270;

/// Where those of containers are.
const PLACE: &str = "/xebec/";

/// Between the name of a container and what tells its groups from those of another of that name. It is in no name
/// ([`super::bundle::is_name`]).
const MARK: char = '@';

/// Where a new container's are. Containers of one name, in two run directories, have nothing in common.
pub(super) fn new_path(id: &str) -> std::io::Result<String> {
    Ok(format!("{PLACE}{id}{MARK}{}", random()?))
}

/// Where those were of a container of a version that named them by the container alone.
pub(super) fn early_path(id: &str) -> String {
    format!("{PLACE}{id}")
}

/// Whether a container's may be there: everything in them is killed with it.
pub(super) fn is_path_of(id: &str, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(PLACE).and_then(|name| name.strip_prefix(id)) else {
        return false;
    };
    let is_random =
        |rest: &str| rest.len() == RANDOM_DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.is_empty() || rest.strip_prefix(MARK).is_some_and(is_random)
}

/// The name of the container whose control group a path leads into, wherever the namespace of who tells it begins.
pub fn container_at(path: &str) -> Option<&str> {
    let name = path.split_once(PLACE)?.1.split(['/', MARK]).next();
    name.filter(|name| !name.is_empty())
}

/// Whether this host's control groups are version 2 alone.
pub(super) fn are_unified() -> bool {
    rustix::fs::statfs(CGROUPS).is_ok_and(|stat| stat.f_type == CGROUP2)
}

/// Whether swap can be limited: version 1 does not account for it on every host.
pub(super) fn can_limit_swap() -> bool {
    are_unified()
        || Path::new(CGROUPS)
            .join("memory/memory.memsw.limit_in_bytes")
            .exists()
}

/// Kills all that is in the control groups at `group`, whosever children they are, and waits until it has ended.
///
/// With version 2 the kernel does it (`cgroup.kill`), with whatever is begun meanwhile. With version 1 what is there is frozen, so
/// that it begins nothing, and killed one by one; nobody else is hit who has got a number that was read ([`kill_member`]).
pub(super) fn kill(group: &str) {
    for _ in 0..ROUNDS {
        let groups: Vec<PathBuf> = directories(group).filter(|group| group.is_dir()).collect();
        if groups.iter().all(|group| members(group).is_empty()) {
            return;
        }
        // Not made anew, if it is not there.
        let one_by_one = groups
            .iter()
            .filter(|group| write(group, "cgroup.kill", "1").is_err());
        kill_one_by_one(&one_by_one.collect::<Vec<_>>());
        std::thread::sleep(INTERVAL);
    }
}

fn kill_one_by_one(groups: &[&PathBuf]) {
    let frozen: Vec<_> = groups.iter().filter(|group| freeze(group)).collect();
    for group in groups {
        for process in members(group) {
            kill_member(group, process);
        }
    }
    // What is frozen ends when it is not any more.
    for group in frozen {
        let _ = write(group, "freezer.state", "THAWED");
    }
}

/// Whether there is something to thaw.
fn freeze(group: &Path) -> bool {
    if write(group, "freezer.state", "FROZEN").is_err() {
        return false;
    }
    for _ in 0..FREEZING_ROUNDS {
        let state = fs::read_to_string(group.join("freezer.state"));
        if state.is_ok_and(|state| state.trim() == "FROZEN") {
            break;
        }
        std::thread::sleep(INTERVAL);
    }
    true
}

/// Kills a process if it is one of a group. A number may have become somebody else's since it was read, so the process is held first,
/// and then looked for in the group again: whoever is held and still there had that number all the time.
fn kill_member(group: &Path, process: Pid) {
    let Ok(held) = pidfd_open(process, PidfdFlags::empty()) else {
        return;
    };
    if members(group).contains(&process) {
        let _ = pidfd_send_signal(&held, Signal::KILL);
    }
}

/// To a file that is there.
fn write(group: &Path, file: &str, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    fs::File::options()
        .write(true)
        .open(group.join(file))?
        .write_all(text.as_bytes())
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
    directories(group).flat_map(|group| members(&group)).collect()
}

fn members(group: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let numbers = list.lines().filter_map(|line| line.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A group in one hierarchy. Dropped, it is removed, and who is in it is killed, which a test that fails has not done.
    struct Group(PathBuf);

    impl Group {
        /// `None` if there is no such hierarchy here, or it may not be changed.
        fn new(hierarchy: &str, name: &str) -> Option<Self> {
            let path = Path::new(CGROUPS).join(hierarchy).join(name);
            let is_there = Path::new(CGROUPS).join(hierarchy).join("cgroup.procs").exists();
            (is_there && fs::create_dir(&path).is_ok()).then_some(Self(path))
        }

        /// A shell that begins others as quickly as it can, in this group.
        fn breed(&self) -> Child {
            let script = format!(
                "echo $$ > {}/cgroup.procs && while :; do (sleep 0.05) & done",
                self.0.display()
            );
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap()
        }

        fn wait_for_members(&self) {
            for _ in 0..2000 {
                if members(&self.0).len() > 3 {
                    return;
                }
                std::thread::sleep(INTERVAL);
            }
            panic!("nobody is in {}", self.0.display());
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            kill(&self.0.file_name().unwrap_or_default().to_string_lossy());
            for _ in 0..ROUNDS {
                if fs::remove_dir(&self.0).is_ok() {
                    return;
                }
                std::thread::sleep(INTERVAL);
            }
        }
    }

    #[test]
    fn paths_are_told_apart_by_container() {
        let (one, two) = (new_path("a-1").unwrap(), new_path("a-1").unwrap());
        assert_ne!(one, two);
        for good in [&one, &two, &early_path("a-1")] {
            assert!(is_path_of("a-1", good), "{good}");
            assert!(!is_path_of("a", good) && !is_path_of("a-", good), "{good}");
            for path in [
                format!("/user{good}"),
                format!("/../..{good}/below"),
                good.clone(),
            ] {
                assert_eq!(container_at(&path), Some("a-1"), "{path}");
            }
        }
        for bad in [
            "",
            "/",
            "/xebec",
            "/xebec/",
            "/xebec/a/..",
            "/xebec/a@",
            "/xebec/a@..",
            "/xebec/a@0123456789ab/..",
            "/xebec/a@0123456789a/",
            "/system.slice/a",
            "xebec/a",
        ] {
            assert!(!is_path_of("a", bad), "{bad}");
        }
        for path in [
            "/",
            "/xebec/",
            "/xebec//",
            "/xebec/@0123456789ab",
            "/system.slice/xebec.service",
        ] {
            assert_eq!(container_at(path), None, "{path}");
        }
    }

    #[test]
    fn what_begins_others_is_killed_with_all_of_them() {
        let name = format!("xebec-test-{}", std::process::id());
        let mut tried = 0;
        for hierarchy in ["", "unified", "freezer", "pids"] {
            let Some(group) = Group::new(hierarchy, &name) else {
                continue;
            };
            let mut shell = group.breed();
            group.wait_for_members();
            kill(&name);
            assert!(members(&group.0).is_empty(), "{hierarchy}");
            assert!(!shell.wait().unwrap().success());
            tried += 1;
        }
        if tried == 0 {
            println!("SKIPPED: control groups cannot be made here");
        }
    }

    #[test]
    fn who_is_in_no_group_is_left_alone() {
        let name = format!("xebec-test-other-{}", std::process::id());
        let hierarchies = ["unified", "freezer", ""];
        let Some(group) = hierarchies.iter().find_map(|one| Group::new(one, &name)) else {
            println!("SKIPPED: control groups cannot be made here");
            return;
        };
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        // As if its number had been read from the list.
        kill_member(&group.0, Pid::from_child(&other));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
