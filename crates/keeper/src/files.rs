//! The keeper's files and directories, which root alone may use.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use xebec_kernel::journal::Journal;

use crate::error::KeeperError;
use crate::process_file::write_process;

/// Makes it for root alone. A directory that exists keeps its mode: it may serve others too.
pub(crate) fn make_directory(path: &Path) -> Result<(), KeeperError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| KeeperError::File {
            action: "make the directory",
            path: path.to_owned(),
            source,
        })
}

pub(crate) fn write_pid(path: &Path, pid: i32) -> Result<(), KeeperError> {
    write_process(path, pid).map_err(|source| KeeperError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Makes the socket, and notes in the journal that it did.
pub(crate) fn listen(path: &Path, journal: &Journal) -> Result<UnixListener, KeeperError> {
    let listener = listen_at(path)?;
    let made = fs::metadata(path).map_err(|source| KeeperError::File {
        action: "listen on",
        path: path.to_owned(),
        source,
    })?;
    journal.set_own_socket(made.ino());
    Ok(listener)
}

/// The name by which a socket is made, before it gets its own.
pub(crate) fn hidden(path: &Path) -> PathBuf {
    path.with_extension("sock.starting")
}

/// Makes a socket in place of any file that is there.
pub(crate) fn listen_at(path: &Path) -> Result<UnixListener, KeeperError> {
    let error = |source| KeeperError::File {
        action: "listen on",
        path: path.to_owned(),
        source,
    };
    // By its usual path the socket appears only when nobody but root may connect.
    let hidden = hidden(path);
    let _ = fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden).map_err(error)?;
    fs::set_permissions(&hidden, PermissionsExt::from_mode(0o600)).map_err(error)?;
    fs::rename(&hidden, path).map_err(error)?;
    Ok(listener)
}

/// Whether a process listens on the socket. Does not wait in a queue that is full.
pub(crate) fn answers(socket: &Path) -> bool {
    let connect = || {
        let address = SocketAddrUnix::new(socket)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let own = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&own, &address)
    };
    matches!(connect(), Ok(()) | Err(rustix::io::Errno::AGAIN))
}
