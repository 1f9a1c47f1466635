//! A keeper, and how it comes to be: locks first, then its holdings.

use std::fs;
use std::path::{Path, PathBuf};

use tracing::{info, warn};
use xebec_kernel::journal::Custody;
use xebec_kernel::memory;
use xebec_kernel::process::{self, Child, HandedDown, Signals};

use crate::config::KeeperConfig;
use crate::containerd::Care;
use crate::crash_attribution::CrashAttribution;
use crate::error::{KeeperError, LockError};
use crate::files::{make_directory, write_pid};
use crate::holdings::Holdings;
use crate::locks::KeeperLock;
use crate::manager::Manager;
use crate::process_file::read_process;
use crate::signals::{LEAVE, REPLACE, SIGHUP, SIGINT, SIGTERM};

/// A keeper and its holdings.
pub(crate) struct Keeper<'a> {
    pub(crate) config: &'a KeeperConfig,
    pub(crate) manager: Manager,
    pub(crate) signals: Signals,
    pub(crate) holdings: Holdings,
    pub(crate) stopping: bool,
    pub(crate) leaving: bool,
    /// Another program is to go on, as soon as a worker serves.
    pub(crate) upgrading: bool,
    /// The worker is of another program than this one, or was asked to be replaced anyway.
    pub(crate) is_upgrade: bool,
    pub(crate) crash_attribution: CrashAttribution,
    /// When containerd's socket is looked after again.
    pub(crate) care: Care,
    _lock: KeeperLock,
}

impl<'a> Keeper<'a> {
    pub(crate) fn set_up(config: &'a KeeperConfig) -> Result<(Keeper<'a>, Option<Child>), KeeperError> {
        process::set_name(NAME);
        if let Err(error) = process::keep_memory_to_itself() {
            warn!("cannot rule out a dump of the keeper's memory: {error}");
        }
        let mut handed = HandedDown::receive();
        for (name, problem) in &handed.missing {
            warn!("the keeper before this one did not hand down {name}: {problem}");
        }
        if let Err(error) = process::close_strays() {
            warn!("cannot close inherited descriptors: {error}");
        }
        make_directory(&config.run)?;
        make_directory(&config.root.join("layers"))?;
        let manager = Manager::find();
        let lock = match KeeperLock::take(&config.run, &config.socket()) {
            // Some command started it, before the service was.
            Err(LockError::Held { .. }) if manager.is_there() => {
                ask_to_leave(&config.pid_file());
                KeeperLock::take(&config.run, &config.socket())
            }
            other => other,
        }?;
        let (holdings, worker) = Holdings::come_by(config, &mut handed)?;
        protect_memory();
        // The numbers of events that are owed at the end are occupied in this process; see `take_down`.
        if let Err(error) = process::raise_open_file_limit() {
            warn!("cannot raise the limit of open files: {error}");
        }
        let signals = Signals::block(&[SIGTERM, SIGINT, SIGHUP, REPLACE, LEAVE])
            .map_err(|source| KeeperError::Wait { source })?;
        let custody = match manager.is_there() {
            true => Custody::Managed,
            false => Custody::Own,
        };
        let pid = std::process::id().cast_signed();
        // The file first: a process that learns the id from the journal compares it with the file.
        write_pid(&config.pid_file(), pid)?;
        holdings.journal.record_keeper(pid, custody);
        for (name, descriptor) in holdings.for_successor() {
            manager.keep(name, descriptor);
        }
        let keeper = Keeper {
            config,
            manager,
            signals,
            stopping: holdings.journal.stop_requested(),
            leaving: false,
            upgrading: false,
            is_upgrade: handed.by_predecessor || holdings.is_moved,
            crash_attribution: CrashAttribution::begin(),
            care: Care::begin(config.snapshots.as_deref()),
            holdings,
            _lock: lock,
        };
        Ok((keeper, worker))
    }
}

/// Makes room for the service manager's keeper. Only the holder of the lock writes that file.
fn ask_to_leave(pid_file: &Path) {
    if let Some(keeper) = read_process(pid_file).filter(is_keeper) {
        info!(
            "asks keeper {} to leave, so that the service can start",
            keeper.pid()
        );
        let _ = keeper.signal(LEAVE);
    }
}

/// The keeper with a process id, if the file names it and it lives. The id alone may be that of another daemon's keeper by now.
pub(crate) fn find(pid_file: &Path, pid: i32) -> Option<Child> {
    read_process(pid_file).filter(|process| process.pid() == pid && is_keeper(process))
}

/// Whether a process is a keeper, and lives.
fn is_keeper(process: &Child) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", process.pid()));
    // In this order: the process that has the name now is the one that the descriptor is of, unless that has ended.
    name.is_ok_and(|name| name.trim_end() == NAME) && !process.has_ended().unwrap_or(true)
}

/// A keeper's name among processes.
const NAME: &str = "xebec-keeper";

fn protect_memory() {
    if let Err(error) = memory::lock_all() {
        warn!("cannot lock the keeper's memory: {error}");
    }
    if let Err(error) = memory::set_oom_score_adj(-1000) {
        warn!("cannot keep the keeper from being killed when memory runs out: {error}");
    }
}

/// The file of a run directory that names the program which a keeper is to be replaced by.
pub fn upgrade_file(run: &Path) -> PathBuf {
    run.join("upgrade")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use xebec_kernel::process::start_time;

    use super::*;

    /// A daemon's keeper was killed, and the keeper of another run directory got its id.
    #[test]
    fn a_keeper_of_another_daemon_is_not_found_by_the_id_of_an_ended_one() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(NAME);
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let mut other = Command::new(&program)
            .arg0("sh")
            .args(["-c", "read line"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = other.id().cast_signed();
        let file = directory.path().join("keeper.pid");
        let name = |text: String| fs::write(&file, text).unwrap();
        let started = start_time(pid).unwrap();
        name(format!("{pid}\nstarted={started}\n"));
        assert_eq!(find(&file, pid).unwrap().pid(), pid);
        assert!(find(&file, pid + 1).is_none());
        name(format!("{pid}\nstarted={}\n", started - 1));
        assert!(find(&file, pid).is_none());
        name(format!("{pid}\n"));
        assert!(find(&file, pid).is_some(), "of an earlier version");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(find(&file, pid).is_none());
    }
}
