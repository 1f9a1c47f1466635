//! A runtime that is started before there is a configuration, and waits for it in a pipe.

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
use crate::bundle::CONFIG;
use crate::runtime::Runtime;

/// How long a runtime may take that has all that it needs, when nobody needs its container any more.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is asked whether it has.
const INTERVAL: Duration = Duration::from_millis(1);

/// A runtime that waits for a configuration. Dropped, it is ended.
pub(super) struct PipedRuntime {
    child: Child,
    /// What the link leads to. Kept as long as the runtime may be about to follow it.
    reader: PipeReader,
    writer: Option<PipeWriter>,
    was_told: bool,
    /// Whether its container's root is there.
    has_root: bool,
    /// The control groups of its container.
    group: String,
}

impl PipedRuntime {
    pub(super) fn begin(
        bundle: &Path,
        group: String,
        runtime: &Runtime,
        mut creation: Command,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // As the mounted /proc numbers this process, which may be another number than its own.
        let process = fs::read_link("/proc/self")?;
        let end = Path::new("/proc")
            .join(process)
            .join("fd")
            .join(reader.as_raw_fd().to_string());
        symlink(end, bundle.join(CONFIG))?;
        Ok(PipedRuntime {
            child: runtime.begin(|| creation.spawn())?,
            reader,
            writer: Some(writer),
            was_told: false,
            has_root: false,
            group,
        })
    }

    /// Tells it the configuration, which stands in the bundle by now. False if nobody waits for it any more.
    pub(super) fn tell(&mut self, config: &str) -> bool {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return false;
        }
        let Some(mut writer) = self.writer.take() else {
            return false;
        };
        let written = make_room(&writer, config.len()).and_then(|()| writer.write_all(config.as_bytes()));
        self.was_told = written.is_ok();
        self.was_told
    }

    pub(super) fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// It has all that it needs.
    pub(super) fn has_root(&mut self) {
        self.has_root = true;
    }

    /// Waits for its end. `None` if it has not taken the configuration from here and did not succeed: then nothing was made.
    pub(super) fn end(mut self) -> Option<ExitStatus> {
        self.writer = None;
        let ended = self.child.wait().ok()?;
        let is_unread = ioctl_fionread(&self.reader).is_ok_and(|bytes| bytes > 0);
        (ended.success() || (self.was_told && !is_unread)).then_some(ended)
    }
}

impl Drop for PipedRuntime {
    fn drop(&mut self) {
        self.writer = None;
        if self.was_told && !self.has_root && matches!(self.child.try_wait(), Ok(None)) {
            return process_tree::kill(&mut self.child, &self.group);
        }
        // One that is making its container ends soon; who made it removes it.
        let deadline = Instant::now() + PATIENCE;
        while self.has_root && matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(INTERVAL);
        }
        // Both do nothing to one that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets a pipe take so many bytes at once: nobody may be there to read them.
fn make_room(pipe: &PipeWriter, bytes: usize) -> io::Result<()> {
    if fcntl_getpipe_size(pipe)? < bytes {
        fcntl_setpipe_size(pipe, bytes)?;
    }
    Ok(())
}
