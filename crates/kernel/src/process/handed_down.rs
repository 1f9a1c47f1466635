//! Descriptors that a predecessor or a service manager keeps for this process.
//!
//! A service manager hands them down as sd_listen_fds(3) has it: numbers from 3 on, names in `LISTEN_FDNAMES`. A
//! process that executes its own successor keeps its numbers and says them in a variable of its own
//! ([`hand_down`]). Both name the process that they are meant for, so that they mean nothing to children.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::FdFlags;

use super::take_inherited;

/// Variable of a process that executes its successor: `PID NAME=NUMBER NAME=NUMBER …`.
const OWN: &str = "XEBEC_HANDED_DOWN";
/// The first number that a service manager uses.
const FIRST: RawFd = 3;
/// More descriptors than this are never kept.
const MOST: RawFd = 64;

/// The descriptors that were handed down to this process.
#[derive(Debug, Default)]
pub struct HandedDown {
    descriptors: Vec<(String, OwnedFd)>,
    /// The names without a descriptor, and why each is missing.
    pub missing: Vec<(String, io::Error)>,
    /// Whether this process is the same as its predecessor, which executed it.
    pub by_predecessor: bool,
}

impl HandedDown {
    /// Takes it, by name. Each descriptor can be taken once.
    pub fn receive() -> HandedDown {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let mut named = own(&variable(OWN));
        let mut handed = HandedDown {
            by_predecessor: !named.is_empty(),
            ..HandedDown::default()
        };
        named.extend(of_manager(
            &variable("LISTEN_PID"),
            &variable("LISTEN_FDS"),
            &variable("LISTEN_FDNAMES"),
        ));
        for (name, number) in named {
            match take_inherited(number) {
                Ok(descriptor) => handed.descriptors.push((name, descriptor)),
                Err(error) => handed.missing.push((name, error)),
            }
        }
        handed
    }

    /// The descriptor of that name.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.descriptors.iter().position(|(other, _)| other == name)?;
        Some(self.descriptors.swap_remove(at).1)
    }
}

/// Executes `program` in place of this process, which keeps its process id and these descriptors.
///
/// Returns only if that fails; everything is then as it was.
pub fn hand_down(
    program: &Path,
    arguments: &[OsString],
    descriptors: &[(&str, BorrowedFd<'_>)],
) -> io::Error {
    let set = |flags| {
        descriptors
            .iter()
            .try_for_each(|(_, descriptor)| rustix::io::fcntl_setfd(descriptor, flags))
    };
    let mut text = std::process::id().to_string();
    for (name, descriptor) in descriptors {
        text.push_str(&format!(" {name}={}", descriptor.as_raw_fd()));
    }
    if let Err(errno) = set(FdFlags::empty()) {
        let _ = set(FdFlags::CLOEXEC);
        return errno.into();
    }
    let error = Command::new(program)
        .args(arguments.iter().map(OsString::as_os_str))
        .env(OWN, text)
        .env_remove("LISTEN_FDS")
        .exec();
    // The standard library has set it back to ending the process, for the program that was to come.
    // SAFETY: SIG_IGN is a valid disposition for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let _ = set(FdFlags::CLOEXEC);
    error
}

/// Variables that mean nothing to children of a process that was handed descriptors.
pub fn is_for_this_process_only(name: &OsStr) -> bool {
    [OWN, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"]
        .iter()
        .any(|own| name == *own)
}

fn own(text: &str) -> Vec<(String, RawFd)> {
    let mut words = text.split(' ');
    if words.next().and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Vec::new();
    }
    words
        .filter_map(|word| {
            let (name, number) = word.split_once('=')?;
            Some((name.to_owned(), number.parse().ok()?))
        })
        .collect()
}

fn of_manager(pid: &str, count: &str, names: &str) -> Vec<(String, RawFd)> {
    if pid.parse() != Ok(std::process::id()) {
        return Vec::new();
    }
    let count: RawFd = count.parse().unwrap_or(0).clamp(0, MOST);
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .map(|number| (names.next().unwrap_or_default().to_owned(), number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_for_this_process_alone() {
        let pid = std::process::id().to_string();
        let name = |name: &str, number| (name.to_owned(), number);
        assert_eq!(
            of_manager(&pid, "2", "group:journal"),
            [name("group", 3), name("journal", 4)]
        );
        assert_eq!(of_manager(&pid, "2", "group"), [name("group", 3), name("", 4)]);
        assert_eq!(of_manager("1", "2", "group:journal"), []);
        for count in ["", "-5", "x"] {
            assert_eq!(of_manager(&pid, count, "group"), []);
        }
        assert_eq!(of_manager(&pid, "2000000000", "").len(), 64);
        assert_eq!(
            own(&format!("{pid} group=17 junk journal=x socket=9")),
            [name("group", 17), name("socket", 9)]
        );
        assert_eq!(own("1 group=17"), []);
    }
}
