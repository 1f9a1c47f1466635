//! Whether anything is left of a container that was started in another namespace of process ids.
//!
//! Process ids of that namespace mean nothing here. So this module looks at things that mean the same in every
//! namespace. They are the processes that the host sees, the lock that a supervisor has on its container's directory, the
//! container's control groups, and whether the kernel has an overlay on its layer. A thing that cannot be
//! shown to be gone counts as there.

use std::fs;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::stat;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use xebec_kernel::lock::try_lock_directory;
use xebec_kernel::mount::Overlay;

use crate::control_groups;
use crate::layout::UPPER;

/// The inode of the host's own namespace of process ids (`include/uapi/linux/nsfs.h`, `PID_NS_INIT_INO`). Its
/// `/proc` lists the processes of all namespaces.
const OF_HOST: u64 = 0xefff_fffc;

/// The inode of this process's namespace of process ids.
pub(crate) fn own_namespace() -> Option<u64> {
    namespace_of(Path::new("/proc/self")).ok()
}

/// Whether it is certain that nothing is left of a container: neither its supervisor nor a process of it.
/// `namespace` is the supervisor's, by its inode; `directory` is the container's, and `group` the path of its
/// control groups.
pub(crate) fn is_gone(namespace: u64, directory: &Path, group: &str) -> bool {
    is_empty(namespace)
        || (has_no_supervisor(directory) && (control_groups::are_empty(group) || is_unused(directory)))
}

/// Whether no process is in a namespace. All processes below it end with it (`pid_namespaces(7)`).
fn is_empty(namespace: u64) -> bool {
    // `/proc` may hide the processes of others, and the first is one of those.
    if own_namespace() != Some(OF_HOST) || !is_of_host(Path::new("/proc/1")) {
        return false;
    }
    let Ok(entries) = fs::read_dir("/proc") else {
        return false;
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut processes = numbers.filter_map(Pid::from_raw);
    processes.all(|process| {
        let path = Path::new("/proc").join(process.to_string());
        let is_another = match namespace_of(&path) {
            Ok(other) => other != namespace,
            // It has ended meanwhile.
            Err(error) => matches!(error, Errno::NOENT | Errno::SRCH),
        };
        is_another || is_of_host(&path) || has_ended(process)
    })
}

/// Whether a process is in the host's own namespace alone: then it has one number (`proc_pid_status(5)`, `NSpid`).
/// Everybody may know that of a process, though not its namespace.
fn is_of_host(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// Whether all threads of a process have ended: nobody may have waited for it yet.
fn has_ended(process: Pid) -> bool {
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(opened) => {
            let at_once = Timespec::default();
            poll(&mut [PollFd::new(&opened, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
        }
        Err(error) => error == Errno::SRCH,
    }
}

/// Whether no supervisor has the lock of a container's directory, which each has for as long as it runs.
fn has_no_supervisor(directory: &Path) -> bool {
    try_lock_directory(directory).is_ok()
}

/// Whether no overlay has the container's layer. A process of the container has it for its root, in whatever
/// namespaces it is.
fn is_unused(directory: &Path) -> bool {
    matches!(Overlay::is_upper_in_use(&directory.join(UPPER)), Ok(false))
}

fn namespace_of(process: &Path) -> Result<u64, Errno> {
    Ok(stat(process.join("ns/pid"))?.st_ino)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use xebec_kernel::lock::lock_directory;
    use xebec_kernel::mount::Attributes;

    use super::*;

    /// A namespace of process ids with a process in it. Dropped, it goes.
    pub(crate) struct OtherNamespace {
        unshare: Child,
        inode: u64,
    }

    impl OtherNamespace {
        /// `None`, and a line that says why, if it cannot be made here.
        pub(crate) fn new() -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                println!("SKIPPED: a namespace of processes needs root");
                return None;
            }
            let mut unshare = Command::new("unshare");
            unshare.args(["--pid", "--fork", "--kill-child", "sleep", "60"]);
            let unshare = unshare.spawn().unwrap();
            let file = format!("/proc/{}/ns/pid_for_children", unshare.id());
            let began = Instant::now();
            let inode = loop {
                match stat(&file) {
                    Ok(found) if Some(found.st_ino) != own_namespace() => break found.st_ino,
                    _ => assert!(began.elapsed() < Duration::from_secs(10), "no other namespace"),
                }
                std::thread::sleep(Duration::from_millis(2));
            };
            Some(Self { unshare, inode })
        }

        pub(crate) fn inode(&self) -> u64 {
            self.inode
        }
    }

    impl Drop for OtherNamespace {
        fn drop(&mut self) {
            let _ = self.unshare.kill();
            let _ = self.unshare.wait();
        }
    }

    #[test]
    fn a_namespace_is_empty_when_its_processes_have_ended() {
        if own_namespace() != Some(OF_HOST) {
            println!("SKIPPED: only the host's own namespace shows the processes of others");
            return;
        }
        let Some(other) = OtherNamespace::new() else {
            return;
        };
        let (inode, nowhere) = (other.inode(), Path::new("/nowhere"));
        assert!(!is_empty(inode) && !is_gone(inode, nowhere, "/xebec/no-such-group"));
        drop(other);
        let began = Instant::now();
        while !is_gone(inode, nowhere, "/xebec/no-such-group") {
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "its processes are gone"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_container_is_gone_when_it_has_neither_a_supervisor_nor_a_process() {
        let Some(other) = OtherNamespace::new() else {
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let (path, none) = (directory.path(), "/xebec/no-such-group");
        for name in ["lower", UPPER, "work"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        let is_gone = || is_gone(other.inode(), path, none);
        assert!(is_gone());
        let lock = lock_directory(path).unwrap();
        assert!(!is_gone(), "a supervisor has the lock");
        drop(lock);
        let overlay = Overlay::new().lower(path.join("lower"));
        let overlay = overlay.upper(path.join(UPPER), path.join("work"));
        // Mounted nowhere, as one of which only processes are left.
        let mounted = overlay.mount(Attributes::empty()).unwrap();
        assert!(!is_gone(), "a process has the layer");
        drop(mounted);
        assert!(is_gone());
        fs::remove_dir(path.join(UPPER)).unwrap();
        assert!(!is_gone(), "nothing shows it");
    }
}
