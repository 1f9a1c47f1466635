//! The start of a container that runc created, without `runc start`.
//!
//! A container that runc has created waits at the FIFO `exec.fifo` in its state directory: its first process
//! opens the FIFO for writing, writes one byte, and executes the command. `runc start` reads the byte and
//! removes the FIFO; without the FIFO runc takes the container for a started one. Every release since 1.0
//! does so (runc, `libcontainer`: `execFifoFilename`, `readFromExecFifo`, `handleFifoResult`), but it is no
//! interface. So if anything differs, `runc start` is left to do it, and to report the error.

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

/// How long the container's process may take from the end of `runc create` until it writes: it only has to
/// open the FIFO.
const PATIENCE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// Reads the byte from the FIFO in `state`, runc's state directory of the container, and removes the FIFO.
/// `init` is the container's first process. Returns false if the command was not started. Then nothing has
/// changed.
pub(crate) fn open(state: &Path, init: BorrowedFd<'_>) -> bool {
    let path = state.join(FIFO);
    // Non-blocking: if the container's process was killed, no process will ever open the other end.
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
    let mut byte = [0];
    let has_begun = fifo.read(&mut byte).is_ok_and(|length| length > 0);
    if has_begun && let Err(error) = fs::remove_file(&path) {
        // runc then reports the container as created, and still ends and removes it.
        tracing::debug!(%error, path = %path.display(), "cannot remove the FIFO of a started container");
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

    /// A process in the place of the container's.
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
    fn a_process_that_waits_or_comes_later_is_started() {
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            let state = tempfile::tempdir().unwrap();
            let (path, mut process) = (make(state.path()), Process::new());
            let waiting = std::thread::spawn({
                let path = path.clone();
                move || {
                    std::thread::sleep(wait);
                    let mut fifo = fs::File::options().write(true).open(path).unwrap();
                    fifo.write_all(b"0").unwrap();
                }
            });
            assert!(open(state.path(), process.pidfd().as_fd()));
            waiting.join().unwrap();
            assert!(
                !path.exists(),
                "runc would take the container for one that was not started"
            );
            process.end();
        }
    }

    #[test]
    fn anything_else_is_left_to_the_runtime() {
        let state = tempfile::tempdir().unwrap();
        let mut process = Process::new();
        let pidfd = process.pidfd();
        assert!(!open(state.path(), pidfd.as_fd()), "there is no FIFO");
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
