//! The processes of a daemon, found without asking it, and their violent ends.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::lab::Lab;

/// Now, in nanoseconds of `CLOCK_MONOTONIC`, which all processes of the machine share.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The keeper of a root's daemon.
pub(super) fn keeper(lab: &Lab<'_>, root: &str) -> Result<Pid> {
    let path = lab.path(&format!("{root}-run")).join("keeper.pid");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    named_process(&text).with_context(|| format!("{} has no process id", path.display()))
}

/// The worker of a root's daemon, also one that is only starting; `None` between two. It may be the child of any keeper
/// so far.
pub(super) fn worker(lab: &Lab<'_>, root: &str) -> Result<Option<Pid>> {
    let path = lab.path(&format!("{root}-run")).join("worker.pid");
    // It is being written, perhaps.
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(named_process(&text).filter(|pid| lives(*pid)))
}

/// The process that such a file begins with; what follows says when it was started.
fn named_process(text: &str) -> Option<Pid> {
    text.lines().next()?.parse().ok().and_then(Pid::from_raw)
}

/// Whether a process lives and is no zombie.
pub(super) fn lives(pid: Pid) -> bool {
    let path = Path::new("/proc")
        .join(pid.as_raw_nonzero().to_string())
        .join("stat");
    let Ok(stat) = fs::read_to_string(path) else {
        return false;
    };
    // The second field is the program's name in parentheses, which may contain anything.
    stat.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().next())
        .is_some_and(|state| state != "Z")
}

/// Kills a process that may have ended by itself; false if it had.
pub(super) fn kill(pid: Pid) -> Result<bool> {
    match kill_process(pid, Signal::KILL) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("kill {}", pid.as_raw_nonzero())),
    }
}
