//! The service manager, if one started this process: it is told how the service is doing, and it keeps the
//! descriptors that must outlive any one keeper (sd_notify(3), "FDSTORE=1").
//!
//! Twenty lines of our own rather than a crate, because those that there are block: a manager that does not read its
//! socket must not keep the keeper from replacing a worker.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use tracing::warn;

/// How long a manager whose queue is full is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is tried again meanwhile.
const RETRY: Duration = Duration::from_millis(2);

/// The manager's end of the conversation. Without a manager everything here does nothing.
#[derive(Debug)]
pub(crate) struct Manager {
    address: Option<OsString>,
}

impl Manager {
    /// The service manager that started this process, if it wants to be notified.
    pub(crate) fn find() -> Manager {
        Manager {
            address: std::env::var_os("NOTIFY_SOCKET"),
        }
    }

    /// Whether there is one: it restarts the keeper, and a stop by it means that the keeper leaves.
    pub(crate) fn is_there(&self) -> bool {
        self.address.is_some()
    }

    /// Gives it a descriptor to keep. One that it has already is kept once, and is not taken away first: it must not be without it for a
    /// moment.
    pub(crate) fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        // Without FDPOLL=0 it would drop descriptors that report a hang-up, as that of a dead worker does.
        self.tell(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0\n"), &[descriptor]);
    }

    /// Makes it drop a descriptor.
    pub(crate) fn forget(&self, name: &str) {
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), &[]);
    }

    /// The service serves.
    pub(crate) fn ready(&self) {
        self.tell("READY=1\n", &[]);
    }

    /// The service is being replaced by a new program, in the same process.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let microseconds = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\n"), &[]);
    }

    /// The service ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\n", &[]);
    }

    fn tell(&self, text: &str, descriptors: &[BorrowedFd<'_>]) {
        if let Some(address) = &self.address
            && let Err(problem) = send(address, text, descriptors)
        {
            warn!(
                "the service manager was not told {:?}: {problem}",
                text.trim_end()
            );
        }
    }
}

fn send(address: &OsString, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(address.as_os_str())?,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let text = [IoSlice::new(text.as_bytes())];
        match rustix::net::sendmsg_addr(&socket, &address, &text, &mut control, flags) {
            Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}
