//! The socket at which containerd connects.
//!
//! It has a number in every worker, so there is always one: where containerd is not served, it does not listen. Readers need
//! a keeper whether containerd is served or not, so a socket that cannot be made is reported, and nothing else comes of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tracing::{error, warn};
use xebec_kernel::file::FileIdentity;

use crate::files::{hidden, listen_at};

/// A descriptor that was handed down or copied, if it can be this socket: workers of earlier versions may have anything by its number.
pub(crate) fn recognized(found: OwnedFd) -> Option<OwnedFd> {
    let is_unix = socket_domain(&found) == Ok(AddressFamily::UNIX);
    (is_unix && socket_type(&found) == Ok(SocketType::STREAM)).then_some(found)
}

/// Whether containerd is served at it.
pub fn listens(socket: impl AsFd) -> bool {
    socket_acceptconn(socket).unwrap_or(false)
}

/// The socket that was handed down, if it is the wanted one, or one that is made now. If none is wanted, or it cannot be made, one
/// that does not listen.
///
/// # Errors
/// When no socket at all can be made, as without free descriptors.
pub(crate) fn socket(path: Option<&Path>, handed: Option<OwnedFd>) -> io::Result<OwnedFd> {
    let handed = handed.and_then(recognized);
    let Some(path) = path else {
        return placeholder(handed);
    };
    match handed {
        Some(handed) if is_at(&handed, path) => Ok(handed),
        handed => made(path).map_or_else(|| placeholder(handed), Ok),
    }
}

/// How long it is until a socket is tried again that could not be made, or looked for that was, the first time; then twice
/// as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When the socket is looked after again: somebody may have made its directory by then, or emptied it, or put something
/// else in its place.
#[derive(Debug)]
pub(crate) struct Care {
    next: Instant,
    pause: Duration,
    /// Device and inode of the name that it got; if it was handed down, of the file that had the name when this began.
    own: Option<FileIdentity>,
}

impl Care {
    /// Of the file at the path now.
    pub(crate) fn begin(path: Option<&Path>) -> Care {
        Care {
            next: Instant::now() + FIRST_PAUSE,
            pause: FIRST_PAUSE,
            own: path.and_then(identity),
        }
    }

    /// Whether the file at the path is the one that was there when this began, or was made since.
    pub(crate) fn is_own(&self, path: &Path) -> bool {
        self.own.is_some() && self.own == identity(path)
    }

    /// How long it is until then.
    pub(crate) fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// A socket in place of `held`, if containerd cannot connect to that one, it is time to try, and it can be made.
    pub(crate) fn renewed(&mut self, path: &Path, held: &OwnedFd) -> Option<OwnedFd> {
        if !self.left().is_zero() {
            return None;
        }
        let made = match is_at(held, path) && self.is_own(path) {
            true => {
                self.pause = LONGEST_PAUSE;
                None
            }
            false => {
                if listens(held) && path.exists() {
                    warn!(
                        "{} is not this daemon's socket any more, and the keeper replaces it; if another daemon should listen \
                         there, give it a `socket` of its own in [snapshotter] of daemon.toml",
                        path.display()
                    );
                }
                self.pause = LONGEST_PAUSE.min(self.pause * 2);
                let made = made(path);
                self.own = made.as_ref().and_then(|_| identity(path));
                made
            }
        };
        self.next = Instant::now() + self.pause;
        made
    }
}

fn made(path: &Path) -> Option<OwnedFd> {
    match listen_at(path) {
        Ok(listener) => Some(listener.into()),
        Err(problem) => {
            error!(
                "containerd is not served: {problem}. Fix this, and the keeper tries again by itself; or give another \
                 `socket` in [snapshotter] of daemon.toml, and reload the service"
            );
            None
        }
    }
}

fn placeholder(handed: Option<OwnedFd>) -> io::Result<OwnedFd> {
    match handed.filter(|handed| !listens(handed)) {
        Some(handed) => Ok(handed),
        None => Ok(rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?),
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    FileIdentity::at(path).ok()
}

fn is_at(socket: &OwnedFd, path: &Path) -> bool {
    let address = rustix::net::getsockname(socket).ok();
    let bound = address.and_then(|address| SocketAddrUnix::try_from(address).ok());
    let bound =
        bound.and_then(|bound| Some(Path::new(OsStr::from_bytes(bound.path_bytes()?)) == hidden(path)));
    listens(socket) && bound == Some(true) && path.exists()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::fs::File;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn one_that_cannot_be_made_does_not_listen() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(120));
        for path in [dir.path().join("missing/snapshots.sock"), long] {
            assert!(!listens(socket(Some(&path), None).unwrap()));
            // Nor does one that listened elsewhere go on.
            let elsewhere = UnixListener::bind(dir.path().join("elsewhere")).unwrap();
            assert!(!listens(socket(Some(&path), Some(elsewhere.into())).unwrap()));
            std::fs::remove_file(dir.path().join("elsewhere")).unwrap();
        }
    }

    #[test]
    fn one_that_was_made_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshots.sock");
        let made = socket(Some(&path), None).unwrap();
        let inode = |socket: &OwnedFd| rustix::fs::fstat(socket).unwrap().st_ino;
        let first = inode(&made);
        let kept = socket(Some(&path), Some(made)).unwrap();
        assert_eq!(inode(&kept), first);
        UnixStream::connect(&path).unwrap();
        let other = dir.path().join("other.sock");
        let moved = socket(Some(&other), Some(kept)).unwrap();
        assert_ne!(inode(&moved), first);
        UnixStream::connect(&other).unwrap();
        assert!(!listens(socket(None, Some(moved)).unwrap()));
    }

    #[test]
    fn one_that_is_gone_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/snapshots.sock");
        let mut held = socket(Some(&path), None).unwrap();
        let mut care = Care::begin(Some(&path));
        assert!(care.renewed(&path, &held).is_none(), "not yet");
        for _ in 0..2 {
            care.next = Instant::now();
            assert!(care.renewed(&path, &held).is_none(), "it cannot be made");
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            care.next = Instant::now();
            held = care.renewed(&path, &held).unwrap();
            UnixStream::connect(&path).unwrap();
            care.next = Instant::now();
            assert!(care.renewed(&path, &held).is_none(), "it is there");
            assert!(!care.left().is_zero());
            std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn another_one_in_its_place_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshots.sock");
        let mut held = socket(Some(&path), None).unwrap();
        let mut care = Care::begin(Some(&path));
        assert!(care.is_own(&path));
        let other = dir.path().join("other");
        let file = || drop(File::create(&other).unwrap());
        let socket = || drop(UnixListener::bind(&other).unwrap());
        for make in [&file as &dyn Fn(), &socket] {
            make();
            std::fs::rename(&other, &path).unwrap();
            assert!(!care.is_own(&path), "it is not to be removed");
            care.next = Instant::now();
            held = care.renewed(&path, &held).unwrap();
            UnixStream::connect(&path).unwrap();
            assert!(care.is_own(&path));
            care.next = Instant::now();
            assert!(care.renewed(&path, &held).is_none(), "it is there");
        }
    }

    #[test]
    fn what_is_no_such_socket_is_not_kept() {
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        let udp = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        for other in [file, udp] {
            let inode = rustix::fs::fstat(other()).unwrap().st_ino;
            let had = socket(None, Some(other())).unwrap();
            assert_eq!(socket_domain(&had), Ok(AddressFamily::UNIX));
            assert_ne!(rustix::fs::fstat(&had).unwrap().st_ino, inode);
        }
    }
}
