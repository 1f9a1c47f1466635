//! The files of a run directory that name a process of the daemon: `keeper.pid` and `worker.pid`.
//!
//! The kernel gives the id of an ended process to another one, so the file names the start time beside the id:
//!
//! ```text
//! 4711
//! started=128034
//! ```
//!
//! The second line is no plain number: a user who passes the whole file to `kill` must not hit a process of that number.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::file::write_atomically;
use xebec_kernel::process::{Child, start_time};

const STARTED: &str = "started=";

/// Names a process that lives.
///
/// # Errors
/// When the file cannot be written, or there is no such process.
pub fn write_process(path: &Path, pid: i32) -> io::Result<()> {
    let has_ended = || io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended"));
    let started = start_time(pid).ok_or_else(has_ended)?;
    write_atomically(path, format!("{pid}\n{STARTED}{started}\n").as_bytes())
}

/// The process that a file names, if it lives.
pub(crate) fn read_process(path: &Path) -> Option<Child> {
    let text = fs::read_to_string(path).ok()?;
    let (pid, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let process = Child::open(pid.trim().parse().ok()?).ok()?;
    // In this order: the process that has that start time now is the one that the descriptor is of.
    let started = start_time(process.pid())?;
    match rest.trim().strip_prefix(STARTED) {
        Some(named) => (named.parse() == Ok(started)).then_some(process),
        // An earlier version wrote the id alone.
        None => Some(process),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_id_and_start_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("worker.pid");
        assert!(read_process(&path).is_none());
        let own = std::process::id().cast_signed();
        write_process(&path, own).unwrap();
        assert_eq!(read_process(&path).unwrap().pid(), own);
        let started = start_time(own).unwrap();
        for (text, is_found) in [
            (format!("{own}\nstarted={started}\n"), true),
            (format!("{own}\n"), true),
            (format!("{own}"), true),
            (format!("{own}\nstarted={}\n", started - 1), false),
            (format!("{own}\nstarted=\n"), false),
            ("0\n".to_owned(), false),
            ("keeper\n".to_owned(), false),
            (String::new(), false),
        ] {
            fs::write(&path, &text).unwrap();
            assert_eq!(read_process(&path).is_some(), is_found, "{text:?}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_not_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("worker.pid");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        write_process(&path, pid).unwrap();
        assert_eq!(read_process(&path).unwrap().pid(), pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(read_process(&path).is_none());
        assert!(write_process(&path, pid).is_err());
    }
}
