//! The processes of a container.
//!
//! Command lines and names are the container's own words. A caller that prints them to a terminal removes the
//! control characters.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::Serialize;

use crate::{Record, RunningError, control_groups, user};

/// How much of a command line is read.
const COMMAND_LIMIT: u64 = 16 << 10;

/// A process of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessInfo {
    /// Its id on the host.
    pub pid: i32,
    /// Its id in the container.
    pub pid_inside: Option<i32>,
    /// Its user, by number.
    pub uid: u32,
    /// The user's name in the container, if it is listed there.
    pub user: Option<String>,
    /// The processor time that it has used, in milliseconds.
    pub cpu_ms: u64,
    /// Its command line, or its name in brackets if it has none.
    pub command: String,
}

/// The processes of a container, in the order of their ids.
///
/// # Errors
/// If the container is not running.
pub fn processes(record: &Record) -> Result<Vec<ProcessInfo>, RunningError> {
    let root = record.open_root()?;
    let group = record.control_group();
    let pids: BTreeSet<i32> = control_groups::processes(&group)
        .iter()
        .map(|pid| pid.as_raw_pid())
        .collect();
    let mut found: Vec<ProcessInfo> = pids.into_iter().filter_map(of).collect();
    // A process that has ended meanwhile may have left its id to a process elsewhere.
    let still: BTreeSet<i32> = control_groups::processes(&group)
        .iter()
        .map(|pid| pid.as_raw_pid())
        .collect();
    found.retain(|process| still.contains(&process.pid));
    name_users(&root, &mut found);
    Ok(found)
}

fn name_users(root: &OwnedFd, processes: &mut [ProcessInfo]) {
    let names = user::names_at(root);
    for process in processes {
        process.user = names
            .iter()
            .find(|(uid, _)| *uid == process.uid)
            .map(|(_, name)| name.clone());
    }
}

fn of(pid: i32) -> Option<ProcessInfo> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
    let stat = String::from_utf8_lossy(&read("stat")?).into_owned();
    let status = String::from_utf8_lossy(&read("status")?).into_owned();
    let (name, ticks) = name_and_ticks(&stat)?;
    let mut line = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_LIMIT).read_to_end(&mut line).ok()?;
    Some(ProcessInfo {
        pid,
        pid_inside: status_field(&status, "NSpid:")
            .and_then(|ids| ids.split_whitespace().last()?.parse().ok()),
        uid: status_field(&status, "Uid:").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok())?,
        user: None,
        cpu_ms: duration_of(ticks),
        command: command(&line).unwrap_or_else(|| format!("[{name}]")),
    })
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The name of a process, which may hold anything but ends at the last parenthesis, and the clock ticks that it
/// has used (`proc_pid_stat(5)`, fields 14 and 15).
fn name_and_ticks(stat: &str) -> Option<(&str, u64)> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let mut fields = after.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((name, user.saturating_add(system)))
}

fn duration_of(ticks: u64) -> u64 {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let time = Duration::from_secs(ticks) / u32::try_from(per_second).unwrap_or(100);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The arguments with a space between them. `None` if there are none, as of a process that has ended.
fn command(line: &[u8]) -> Option<String> {
    let line = line.strip_suffix(&[0]).unwrap_or(line);
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let text = words.collect::<Vec<_>>().join(" ");
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) S (b) S 1 2 3 0 -1 4 0 0 0 0 12 30 0 0 20 0 1 0 987 0";
        assert_eq!(name_and_ticks(stat), Some(("a) S (b", 42)));
        assert_eq!(name_and_ticks("7 (a"), None);
        assert_eq!(name_and_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn arguments_are_joined() {
        assert_eq!(command(b"sh\0-c\0a b\0").unwrap(), "sh -c a b");
        assert_eq!(command(b"nginx: master").unwrap(), "nginx: master");
        assert_eq!(command(b""), None);
        assert_eq!(command(b"\0"), None);
    }

    #[test]
    fn this_process_is_described() {
        let own = of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        let program = std::env::args().next().unwrap();
        assert!(own.command.starts_with(&program), "{own:?}");
    }
}
