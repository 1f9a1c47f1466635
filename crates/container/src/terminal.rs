//! A container's terminal.
//!
//! The runtime makes a pseudo terminal inside the container and sends its master side over a Unix socket
//! (`--console-socket`). This process then stands between that and its own terminal: what is typed goes in
//! unchanged, because its own terminal is put into raw mode; what the container writes comes out; and the
//! size follows.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::RunError;
use super::output::write_all;

/// How long the terminal may take to arrive once the runtime has made the container; it is already sent then.
const ARRIVAL_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Longest piece of input that is passed on at once: what a terminal's line buffer holds.
const INPUT_SIZE: usize = 4096;

/// Longest name that the runtime gives to the terminal, which comes with it as text.
const NAME_LIMIT: usize = 4096;

/// How long typed text that the container does not take may hold up the end.
pub(super) const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// The socket that a terminal will come through.
pub(super) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ConsoleSocket {
    pub(super) fn bind(path: PathBuf) -> Result<Self, RunError> {
        match UnixListener::bind(&path) {
            Ok(listener) => Ok(ConsoleSocket { listener, path }),
            Err(source) => Err(RunError::File {
                doing: "listen for the terminal at",
                path,
                source,
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the master side, which the runtime has sent before it ended.
    pub(super) fn receive(self) -> Result<OwnedFd, RunError> {
        receive(&self.listener).map_err(|source| RunError::System {
            doing: "receive the container's terminal from the runtime",
            source,
        })
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn receive(listener: &UnixListener) -> io::Result<OwnedFd> {
    wait_readable(listener.as_fd())?;
    let (stream, _) = listener.accept()?;
    wait_readable(stream.as_fd())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut name = [0_u8; NAME_LIMIT];
    let parts = &mut [io::IoSliceMut::new(&mut name)];
    recvmsg(&stream, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    fds.flatten()
        .next()
        .ok_or_else(|| io::Error::other("it came without a descriptor"))
}

fn wait_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    match poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&ARRIVAL_TIMEOUT),
    )? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// A container's terminal joined to this process's own. Dropped, it gives the latter back as it was.
pub(super) struct Terminal {
    master: OwnedFd,
    before: Option<Termios>,
    /// Closed to end the thread that reads what is typed.
    _typing: Option<UnixStream>,
}

impl Terminal {
    /// Joins the terminals. With `interactive`, what is typed goes to the container, the keys that raise
    /// signals included.
    pub(super) fn join(master: OwnedFd, interactive: bool) -> Result<Self, RunError> {
        let mut terminal = Terminal {
            master,
            before: None,
            _typing: None,
        };
        terminal.resize();
        if interactive {
            terminal.pass_input().map_err(|source| RunError::System {
                doing: "take over the terminal",
                source,
            })?;
        }
        Ok(terminal)
    }

    /// A second handle, to read what the container writes.
    pub(super) fn output(&self) -> Result<File, RunError> {
        self.master
            .try_clone()
            .map(File::from)
            .map_err(|source| RunError::System {
                doing: "read the container's terminal",
                source,
            })
    }

    /// Gives the container's terminal the size of this process's own, if that has one.
    pub(super) fn resize(&self) {
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout()];
        if let Some(size) = own.iter().find_map(|fd| tcgetwinsize(fd).ok()) {
            // A container that closed its terminal has no use for a size.
            let _ = tcsetwinsize(&self.master, size);
        }
    }

    fn pass_input(&mut self) -> io::Result<()> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
        self.before = Some(before);
        let (typing, end) = UnixStream::pair()?;
        let master = self.master.try_clone()?;
        thread::Builder::new()
            .name("container-input".into())
            .spawn(move || pass(&master, &end))?;
        self._typing = Some(typing);
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Passes on what is typed until either terminal or `end` is closed.
fn pass(master: &OwnedFd, end: &UnixStream) {
    let stdin = rustix::stdio::stdin();
    let mut buffer = [0_u8; INPUT_SIZE];
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(stdin, PollFlags::IN),
            PollFd::new(end, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        if fds.get(1).is_some_and(|end| !end.revents().is_empty()) {
            return;
        }
        match rustix::io::read(stdin, &mut buffer) {
            Ok(length @ 1..) if write_all(master.as_fd(), buffer.get(..length).unwrap_or_default()) => {}
            _ => return,
        }
    }
}

/// Whether this process's standard input is a terminal.
pub(super) fn is_there() -> bool {
    isatty(rustix::stdio::stdin())
}
