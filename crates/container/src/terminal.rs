//! A container's terminal.
//!
//! The runtime makes a pseudo terminal inside the container and sends its master side over a Unix socket
//! (`--console-socket`). This process joins it to its own terminal: it puts that into raw mode, passes input
//! to the container unchanged, copies the container's output, and keeps both of one size.

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
use rustix::termios::{
    OptionalActions, Termios, Winsize, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

use crate::RunError;
use crate::output::write_all;

/// How long the terminal may take to arrive once the runtime has created the container. The runtime has sent
/// it then.
const ARRIVAL_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Longest piece of input that is passed at once: the size of a terminal's line buffer.
const INPUT_SIZE: usize = 4096;

/// Longest name of the terminal, which the runtime sends with it. A path is not longer.
const NAME_LIMIT: usize = 4096;

/// How long the end of a container waits for the rest of its output.
pub(crate) const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// The socket on which the runtime sends a container's terminal.
pub(crate) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ConsoleSocket {
    pub(crate) fn bind(path: PathBuf) -> Result<Self, RunError> {
        match UnixListener::bind(&path) {
            Ok(listener) => Ok(ConsoleSocket { listener, path }),
            Err(source) => Err(RunError::File {
                doing: "listen for the terminal at",
                path,
                source,
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Receives the master side, which the runtime sends before it ends.
    pub(crate) fn receive(self) -> Result<OwnedFd, RunError> {
        let failed = RunError::system("receive the container's terminal from the runtime");
        receive(&self.listener).map_err(failed)
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
        .ok_or_else(|| io::Error::other("its message has no descriptor"))
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

/// A container's terminal joined to this process's own. Dropped, it restores the settings of the latter.
pub(crate) struct Terminal {
    master: OwnedFd,
    before: Option<Termios>,
    /// Closed to end the thread that reads input.
    _typing: Option<UnixStream>,
}

impl Terminal {
    /// Joins the terminals. With `interactive`, input goes to the container, the keys that raise signals
    /// included.
    pub(crate) fn join(master: OwnedFd, interactive: bool) -> Result<Self, RunError> {
        let mut terminal = Terminal {
            master,
            before: None,
            _typing: None,
        };
        terminal.resize();
        if interactive {
            let joined = terminal.pass_input();
            joined.map_err(RunError::system("take over the terminal"))?;
        }
        Ok(terminal)
    }

    /// A second handle, to read what the container writes.
    pub(crate) fn output(&self) -> Result<File, RunError> {
        let copy = self.master.try_clone().map(File::from);
        copy.map_err(RunError::system("read the container's terminal"))
    }

    /// Gives the container's terminal the size of this process's own, if that is a terminal.
    pub(crate) fn resize(&self) {
        if let Some(size) = own_size() {
            // It fails if the container has closed its terminal.
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

/// Passes input to the container until either terminal or `end` is closed.
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

/// The size of this process's own terminal, if it has one.
pub(crate) fn own_size() -> Option<Winsize> {
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout()];
    own.iter().find_map(|fd| tcgetwinsize(fd).ok())
}

/// Whether this process's standard input is a terminal.
pub(crate) fn stdin_is_terminal() -> bool {
    isatty(rustix::stdio::stdin())
}
