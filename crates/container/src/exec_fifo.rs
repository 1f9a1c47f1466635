//! The gate before a container's command, where runc keeps it.
//!
//! A container that runc has created waits until somebody reads from the FIFO `exec.fifo` in its state directory: its first
//! process opens that for writing, writes one byte, and executes the command. `runc start` reads the byte and removes the
//! FIFO, whose absence tells runc that the container was started. That is so in every release since 1.0 (runc,
//! `libcontainer`: `execFifoFilename`, `readFromExecFifo`, `handleFifoResult`), but it is no interface; so whatever is
//! different from that is left to `runc start`, which also has the words for what went wrong.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The FIFO's name.
const FIFO: &str = "exec.fifo";

/// How long the container's process may take from the end of `runc create` to the gate: it has nothing left to do but to
/// open it.
const PATIENCE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// Lets the command begin of the container whose state runc keeps in `state`, and whose first process is `init`. False if
/// it did not: then nothing was done.
pub(super) fn open(state: &Path, init: BorrowedFd<'_>) -> bool {
    let path = state.join(FIFO);
    // Not blocking: the container's process may have been killed, and nobody would ever come.
    let fifo = fs::File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed())
        .open(&path);
    let Ok(mut fifo) = fifo else { return false };
    if !fifo.metadata().is_ok_and(|meta| meta.file_type().is_fifo()) {
        return false;
    }
    let mut events = [
        PollFd::from_borrowed_fd(fifo.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(init, PollFlags::IN),
    ];
    while let Err(Errno::INTR) = poll(&mut events, Some(&PATIENCE)) {}
    let mut word = [0];
    let has_begun = fifo.read(&mut word).is_ok_and(|length| length > 0);
    if has_begun && let Err(error) = fs::remove_file(&path) {
        // runc takes it for one that waits, and ends and removes it all the same.
        tracing::debug!(%error, path = %path.display(), "the gate of a started container stays");
    }
    has_begun
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    /// What stands for the container's process, as long as it is wanted.
    struct Process(std::process::Child);

    impl Process {
        fn new() -> Self {
            Self(Command::new("sleep").arg("60").spawn().unwrap())
        }

        fn pidfd(&self) -> std::os::fd::OwnedFd {
            pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()).unwrap()
        }

        fn end(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn make(state: &Path) -> std::path::PathBuf {
        let path = state.join(FIFO);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        path
    }

    #[test]
    fn who_waits_before_it_or_comes_later_goes_on() {
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            let state = tempfile::tempdir().unwrap();
            let (path, mut process) = (make(state.path()), Process::new());
            let waiting = std::thread::spawn({
                let path = path.clone();
                move || {
                    std::thread::sleep(wait);
                    let mut gate = fs::File::options().write(true).open(path).unwrap();
                    gate.write_all(b"0").unwrap();
                }
            });
            assert!(open(state.path(), process.pidfd().as_fd()));
            waiting.join().unwrap();
            assert!(!path.exists(), "runc would take it for one that was not started");
            process.end();
        }
    }

    #[test]
    fn what_is_not_as_it_was_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let mut process = Process::new();
        let pidfd = process.pidfd();
        assert!(!open(state.path(), pidfd.as_fd()), "there is none");
        fs::write(state.path().join(FIFO), b"0").unwrap();
        assert!(!open(state.path(), pidfd.as_fd()), "it is a file");
        fs::remove_file(state.path().join(FIFO)).unwrap();
        // A process that has ended will never come.
        let path = make(state.path());
        process.end();
        let began = Instant::now();
        assert!(!open(state.path(), pidfd.as_fd()));
        assert!(path.exists() && began.elapsed() < Duration::from_secs(2));
    }
}
