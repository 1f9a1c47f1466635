//! A runtime that is started before it has a configuration, and waits for it at a pipe.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::Pid;

use super::process_tree;
use crate::layout::CONFIG;
use crate::runtime::Runtime;

/// How long a runtime that has all that it needs may take to end, when its container is discarded.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two looks whether it has ended.
const INTERVAL: Duration = Duration::from_millis(1);

/// A runtime that waits for its configuration. Dropped, it is ended.
pub(super) struct PipedRuntime {
    child: Child,
    /// The end of the pipe to which the link leads. It is kept while the runtime may still open it.
    reader: PipeReader,
    writer: Option<PipeWriter>,
    /// Whether the configuration was sent.
    has_config: bool,
    /// Whether the container can enter its root.
    has_root: bool,
    /// The path of the container's control groups.
    group: String,
}

impl PipedRuntime {
    /// Starts the runtime by its `create` command, with a link to the pipe in the place of the bundle's
    /// configuration.
    pub(super) fn start(
        bundle: &Path,
        group: String,
        runtime: &Runtime,
        mut create: Command,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // The mounted /proc may be of another namespace, where this process has another id.
        let process = fs::read_link("/proc/self")?;
        let end = Path::new("/proc")
            .join(process)
            .join("fd")
            .join(reader.as_raw_fd().to_string());
        symlink(end, bundle.join(CONFIG))?;
        Ok(PipedRuntime {
            child: runtime.spawn(|| create.spawn())?,
            reader,
            writer: Some(writer),
            has_config: false,
            has_root: false,
            group,
        })
    }

    /// Sends the configuration, which is in the bundle by now. Returns false if the runtime no longer waits
    /// for it.
    pub(super) fn send_config(&mut self, config: &str) -> bool {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return false;
        }
        let Some(mut writer) = self.writer.take() else {
            return false;
        };
        let sent = make_room(&writer, config.len()).and_then(|()| writer.write_all(config.as_bytes()));
        self.has_config = sent.is_ok();
        self.has_config
    }

    /// The runtime's process id.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Notes that the container can enter its root: the runtime has all that it needs.
    pub(super) fn root_is_open(&mut self) {
        self.has_root = true;
    }

    /// Waits for the runtime's end. `None` if it failed without having taken the configuration from the pipe.
    /// Then it created nothing.
    pub(super) fn wait(mut self) -> Option<ExitStatus> {
        self.writer = None;
        let ended = self.child.wait().ok()?;
        let is_unread = ioctl_fionread(&self.reader).is_ok_and(|bytes| bytes > 0);
        (ended.success() || (self.has_config && !is_unread)).then_some(ended)
    }
}

impl Drop for PipedRuntime {
    fn drop(&mut self) {
        if !self.has_config {
            // Before it finds the end of its configuration, and complains of that to the container's output.
            let _ = self.child.kill();
        }
        self.writer = None;
        if self.has_config && !self.has_root && matches!(self.child.try_wait(), Ok(None)) {
            return process_tree::kill(&mut self.child, &self.group);
        }
        // A runtime that is creating its container ends soon. The caller then removes the container.
        let deadline = Instant::now() + PATIENCE;
        while self.has_root && matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(INTERVAL);
        }
        // Neither does anything to a child that was reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a pipe hold so many bytes, so that a write does not wait for a reader: there may be none.
fn make_room(pipe: &PipeWriter, bytes: usize) -> io::Result<()> {
    if fcntl_getpipe_size(pipe)? < bytes {
        fcntl_setpipe_size(pipe, bytes)?;
    }
    Ok(())
}
