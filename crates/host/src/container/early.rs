//! Starting the runtime before it is known what it is to make.
//!
//! runc takes some 5 ms until it has begun (`runc --version`; more where others run), about as long as a warm start takes to find
//! and mount the image, and only then reads its bundle's `config.json`.
//! So both are done at once: at first `config.json` is a link to the end of a pipe, on which the runtime waits; once the
//! configuration is known, it takes the link's place as an ordinary file, for whoever reads it later, and goes through the
//! pipe to who has come already. The link leads through `/proc` to a descriptor of this process, so nothing needs to be
//! inherited, and a runtime that comes when this process has been killed finds nothing, or the end of the file, and ends.
//!
//! Nothing depends on it: whatever does not go this way is done as if it had not been tried.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::io::ioctl_fionread;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};

use super::bundle::{Bundle, CONFIG};
use super::connection::Connection;
use super::terminal::ConsoleSocket;
use super::{RunError, RunOptions};

/// The making of a container, if it could be begun. Dropped, it does not go on.
pub(super) struct Early(Option<(Connection, Waiting)>);

impl Early {
    /// Begins it. The bundle has no configuration yet.
    pub(super) fn begin(bundle: &Bundle, options: &RunOptions) -> Result<Self, RunError> {
        // What others take for a configuration was not tried.
        if !bundle.runtime().is_runc() {
            return Ok(Early(None));
        }
        let (connection, creation) = connect(bundle, options)?;
        match Waiting::begin(bundle.path(), creation) {
            Ok(waiting) => Ok(Early(Some((connection, waiting)))),
            Err(error) => {
                tracing::debug!(%error, "the runtime is not started early");
                Ok(Early(None))
            }
        }
    }

    /// Has the container made, now that the bundle has a configuration, which is this one.
    pub(super) fn finish(
        self,
        bundle: &Bundle,
        config: &str,
        options: &RunOptions,
    ) -> Result<Connection, RunError> {
        if let Some((connection, waiting)) = self.0
            && let Some(ended) = waiting.tell(config)
        {
            bundle.runtime().created(bundle, Ok(ended))?;
            return Ok(connection);
        }
        let (connection, creation) = connect(bundle, options)?;
        bundle.runtime().create(bundle, creation)?;
        Ok(connection)
    }
}

fn connect(bundle: &Bundle, options: &RunOptions) -> Result<(Connection, Command), RunError> {
    let mut connection = Connection::prepare(bundle, options)?;
    let streams = connection.streams(options)?;
    let console = connection.socket.as_ref().map(ConsoleSocket::path);
    let creation = bundle.runtime().creation(bundle, console, streams);
    Ok((connection, creation))
}

/// A runtime that waits for a configuration. Dropped, it is ended.
struct Waiting {
    child: Child,
    /// What the link leads to. Kept as long as the runtime may be about to follow it.
    reader: PipeReader,
    writer: Option<PipeWriter>,
}

impl Waiting {
    fn begin(bundle: &Path, mut creation: Command) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // As the mounted /proc numbers this process, which may be another number than its own.
        let process = fs::read_link("/proc/self")?;
        let end = Path::new("/proc")
            .join(process)
            .join("fd")
            .join(reader.as_raw_fd().to_string());
        symlink(end, bundle.join(CONFIG))?;
        Ok(Waiting {
            child: creation.spawn()?,
            reader,
            writer: Some(writer),
        })
    }

    /// Tells it the configuration, which stands in the bundle by now, and waits for its end. `None` if it has not taken it
    /// from here and did not succeed: then nothing was made.
    fn tell(mut self, config: &str) -> Option<ExitStatus> {
        match self.child.try_wait() {
            Ok(None) => {}
            // It came when the file was there.
            Ok(Some(ended)) if ended.success() => return Some(ended),
            _ => return None,
        }
        let mut writer = self.writer.take()?;
        make_room(&writer, config.len())
            .and_then(|()| writer.write_all(config.as_bytes()))
            .ok()?;
        drop(writer);
        let ended = self.child.wait().ok()?;
        let is_unread = ioctl_fionread(&self.reader).is_ok_and(|bytes| bytes > 0);
        (ended.success() || !is_unread).then_some(ended)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.writer = None;
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
