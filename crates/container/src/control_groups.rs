//! The control groups of a container, by their path (`cgroupsPath` of the runtime's configuration).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::name::{RANDOM_DIGITS, random_name};

/// Where control groups are mounted, by convention (systemd, `docs/FILE-HIERARCHY`). Every OCI runtime relies
/// on it.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";

/// How often a caller looks whether killed processes have ended, and the pause in between. As a rule they end
/// at once.
pub(crate) const ROUNDS: usize = 500;
pub(crate) const INTERVAL: Duration = Duration::from_millis(1);

/// How often a caller looks whether a group is frozen. It is not while one of its processes waits in the
/// kernel.
const FREEZING_ROUNDS: usize = 20;

/// `f_type` of control groups of version 2 (`linux/magic.h`, `CGROUP2_SUPER_MAGIC`).
const CGROUP2: rustix::fs::FsWord = 0x6367_7270;

/// The parent of all containers' control groups.
const PARENT: &str = "/xebec/";

/// Separates the name of a container from the random suffix. No name holds it
/// ([`crate::name::is_container_name`]).
const MARK: char = '@';

/// The path for a new container. Its suffix is random, since containers of two run directories may have one
/// name.
pub(crate) fn new_path(id: &str) -> std::io::Result<String> {
    Ok(format!("{PARENT}{id}{MARK}{}", random_name()?))
}

/// The path that versions used which named the control groups by the container alone.
pub(crate) fn path_of_earlier_versions(id: &str) -> String {
    format!("{PARENT}{id}")
}

/// Whether this can be the path of the container `id`. Every process in control groups at that path is killed
/// with it.
pub(crate) fn is_path_of(id: &str, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(PARENT).and_then(|name| name.strip_prefix(id)) else {
        return false;
    };
    let is_random =
        |rest: &str| rest.len() == RANDOM_DIGITS && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.is_empty() || rest.strip_prefix(MARK).is_some_and(is_random)
}

/// The name of the container that a process is in, by the path of its control group (`/proc/PID/cgroup`).
///
/// The path may begin above the parent of all containers' control groups, as in a cgroup namespace.
pub fn container_of_cgroup(path: &str) -> Option<&str> {
    let name = path.split_once(PARENT)?.1.split(['/', MARK]).next();
    name.filter(|name| !name.is_empty())
}

/// The random part of the control group's name, by which the container of [`container_of_cgroup`] differs from others of its name.
/// Versions that named control groups by the container alone have none.
pub fn run_of_cgroup(path: &str) -> Option<&str> {
    let group = path.split_once(PARENT)?.1.split('/').next()?;
    let run = group.split_once(MARK)?.1;
    (!run.is_empty()).then_some(run)
}

/// Whether this host's control groups are version 2 alone.
pub(crate) fn are_unified() -> bool {
    rustix::fs::statfs(CGROUPS).is_ok_and(|stat| stat.f_type == CGROUP2)
}

/// Whether swap can be limited. Hosts with version 1 may not account for it.
pub(crate) fn can_limit_swap() -> bool {
    are_unified()
        || Path::new(CGROUPS)
            .join("memory/memory.memsw.limit_in_bytes")
            .exists()
}

/// Whether the kernel has killed a process in the control groups at `group` because their limit of memory was reached.
pub(crate) fn has_killed_for_memory(group: &str) -> bool {
    // Of version 2 and of version 1.
    let files = ["memory.events", "memory.oom_control"];
    let is_killed = |line: &str| {
        let count = line
            .strip_prefix("oom_kill ")
            .and_then(|count| count.trim().parse::<u64>().ok());
        count.is_some_and(|count| count > 0)
    };
    directories(group)
        .flat_map(|group| files.map(|file| group.join(file)))
        .filter_map(|file| fs::read_to_string(file).ok())
        .any(|text| text.lines().any(is_killed))
}

/// Freezes or thaws the processes in the control groups at `group`. Returns whether there is a group that can be frozen.
pub(crate) fn set_frozen(group: &str, is_frozen: bool) -> bool {
    let (unified, freezer) = match is_frozen {
        true => ("1", "FROZEN"),
        false => ("0", "THAWED"),
    };
    let set = |group: PathBuf| {
        write(&group, "cgroup.freeze", unified).is_ok() || write(&group, "freezer.state", freezer).is_ok()
    };
    // All of them.
    directories(group).map(set).fold(false, |any, one| any | one)
}

/// Whether the processes in the control groups at `group` are frozen, or about to be.
pub(crate) fn is_frozen(group: &str) -> bool {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    directories(group).any(|group| {
        read(group.join("cgroup.freeze")).trim() == "1"
            || matches!(read(group.join("freezer.state")).trim(), "FROZEN" | "FREEZING")
    })
}

/// Whether all processes in the control groups at `group` are frozen, and none is only about to be.
pub(crate) fn has_frozen(group: &str) -> bool {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    directories(group).any(|group| {
        let events = read(group.join("cgroup.events"));
        events.lines().any(|line| line == "frozen 1") || read(group.join("freezer.state")).trim() == "FROZEN"
    })
}

/// Kills every process in the control groups at `group`, whatever its parent is, and waits until all have
/// ended.
///
/// With version 2 the kernel does it (`cgroup.kill`), and kills what they start meanwhile, too. With version
/// 1 the group is frozen, so that they start nothing, and they are killed one by one ([`kill_member`]).
pub(crate) fn kill(group: &str) {
    for _ in 0..ROUNDS {
        let groups: Vec<PathBuf> = directories(group).filter(|group| group.is_dir()).collect();
        if groups.iter().all(|group| members(group).is_empty()) {
            return;
        }
        // A kernel without `cgroup.kill` fails here, and the file is not created.
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
    // A frozen process ends when it is thawed.
    for group in frozen {
        let _ = write(group, "freezer.state", "THAWED");
    }
}

/// Freezes a group. Returns whether it has to be thawed.
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

/// Kills a process if it is in a group. The kernel may have given its id to another process since the id was
/// read. So the process is opened first, and its id is then looked for in the group again: if it is there, it
/// was its own all the time.
fn kill_member(group: &Path, process: Pid) {
    let Ok(opened) = pidfd_open(process, PidfdFlags::empty()) else {
        return;
    };
    if members(group).contains(&process) {
        let _ = pidfd_send_signal(&opened, Signal::KILL);
    }
}

/// Writes to a file that exists.
fn write(group: &Path, file: &str, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    fs::File::options()
        .write(true)
        .open(group.join(file))?
        .write_all(text.as_bytes())
}

/// Removes the control groups at `group` that are empty.
pub(crate) fn remove(group: &str) {
    for group in directories(group) {
        let _ = fs::remove_dir(group);
    }
}

/// The directories of `group` in each hierarchy of version 1, and in that of version 2.
fn directories(group: &str) -> impl Iterator<Item = PathBuf> {
    let top = Path::new(CGROUPS);
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    let hierarchies = hierarchies.map(|entry| entry.path()).chain([top.to_owned()]);
    hierarchies.map(move |hierarchy| hierarchy.join(group.trim_start_matches('/')))
}

/// Whether the control groups at `group` are there, and no process is in them, of whatever namespace. Only groups of
/// version 2 say so; those of version 1 do not list processes of other namespaces.
pub(crate) fn are_empty(group: &str) -> bool {
    let texts = directories(group).filter_map(|group| fs::read_to_string(group.join("cgroup.events")).ok());
    let mut is_empty = texts.map(|text| text.lines().any(|line| line == "populated 0"));
    is_empty.next() == Some(true) && is_empty.all(|is_empty| is_empty)
}

/// The processes in the control groups at `group`.
pub(crate) fn processes(group: &str) -> Vec<Pid> {
    directories(group).flat_map(|group| members(&group)).collect()
}

/// The contents of a file of the control groups at `group`, in the first hierarchy that has it.
pub(crate) fn read(group: &str, file: &str) -> Option<String> {
    directories(group).find_map(|group| fs::read_to_string(group.join(file)).ok())
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

    /// A group in one hierarchy. Dropped, it is removed, after its processes are killed, which a failed test
    /// has not done.
    struct Group(PathBuf);

    impl Group {
        /// `None` if there is no such hierarchy here, or it is read-only.
        fn new(hierarchy: &str, name: &str) -> Option<Self> {
            let path = Path::new(CGROUPS).join(hierarchy).join(name);
            let is_there = Path::new(CGROUPS).join(hierarchy).join("cgroup.procs").exists();
            (is_there && fs::create_dir(&path).is_ok()).then_some(Self(path))
        }

        /// A shell that starts others as quickly as it can, in this group.
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
            panic!("no process is in {}", self.0.display());
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
    fn paths_name_their_container() {
        let (one, two) = (new_path("a-1").unwrap(), new_path("a-1").unwrap());
        assert_ne!(one, two);
        for good in [&one, &two, &path_of_earlier_versions("a-1")] {
            assert!(is_path_of("a-1", good), "{good}");
            assert!(!is_path_of("a", good) && !is_path_of("a-", good), "{good}");
            for path in [
                format!("/user{good}"),
                format!("/../..{good}/below"),
                good.clone(),
            ] {
                assert_eq!(container_of_cgroup(&path), Some("a-1"), "{path}");
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
            assert_eq!(container_of_cgroup(path), None, "{path}");
        }
    }

    #[test]
    fn processes_that_start_others_are_killed_with_them() {
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
    fn processes_outside_of_a_group_are_left_alone() {
        let name = format!("xebec-test-other-{}", std::process::id());
        let hierarchies = ["unified", "freezer", ""];
        let Some(group) = hierarchies.iter().find_map(|one| Group::new(one, &name)) else {
            println!("SKIPPED: control groups cannot be made here");
            return;
        };
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        // As if its id had been read from the list.
        kill_member(&group.0, Pid::from_child(&other));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
