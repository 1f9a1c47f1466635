//! A stand-in for a service manager: starts a service as `Type=notify` has it, listens to what the service says, and
//! keeps the descriptors that it is given (sd_notify(3), sd_listen_fds(3)).
//!
//! It does as systemd: names of descriptors, `FDSTOREREMOVE`, `LISTEN_PID`, the order of a restart (the old main process is gone before
//! the new one starts), and leaving other processes alone (`KillMode=process`). It lacks limits, timeouts and watchdogs. It does not drop
//! descriptors that hang up either (Xebec asks systemd not to, `FDPOLL=0`).

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::{Mutex, MutexGuard};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use xebec_kernel::file::FileIdentity;
use xebec_kernel::process::{Child, Spawn};

/// Sets `LISTEN_PID` to the process that the service will be, as the manager does after its fork.
const SHELL: &str = "LISTEN_PID=$$; export LISTEN_PID; exec \"$@\"";
/// How often the service is listened to.
const LISTEN: Duration = Duration::from_millis(1);
/// Descriptors in one message at most.
const MOST: usize = 16;

/// A service and what is kept for it.
pub struct ServiceManager {
    ear: Arc<Ear>,
    address: PathBuf,
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(String, OsString)>,
}

/// The receiver of the service's messages; a thread reads them all the time, as a manager's main loop does.
struct Ear {
    socket: UnixDatagram,
    heard: Mutex<Heard>,
    ended: AtomicBool,
}

#[derive(Default)]
struct Heard {
    store: Vec<(String, OwnedFd)>,
    is_ready: bool,
    said: Vec<String>,
}

impl ServiceManager {
    /// A manager of the service `program arguments…`, which is not started yet. Its socket is made in `directory`.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn new(
        directory: &Path,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Self> {
        let address = directory.join("notify");
        let socket = UnixDatagram::bind(&address).context("bind the notification socket")?;
        socket.set_nonblocking(true)?;
        let ear = Arc::new(Ear {
            socket,
            heard: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let listener = ear.clone();
        std::thread::spawn(move || {
            while !listener.ended.load(Ordering::Relaxed) {
                let _ = listener.listen();
                std::thread::sleep(LISTEN);
            }
        });
        Ok(Self {
            ear,
            address,
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            variables: Vec::new(),
        })
    }

    /// Adds a descriptor to the store, as a socket unit does.
    pub fn keep(&self, name: &str, descriptor: OwnedFd) {
        self.ear.heard().store.push((name.to_owned(), descriptor));
    }

    /// Sets a variable of the service's environment, as `Environment=` does.
    pub fn set_variable(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    /// Another program from the next start on, as after an upgrade of a package.
    pub fn set_program(&mut self, program: impl Into<PathBuf>) {
        self.program = program.into();
    }

    /// Starts the service with everything that is kept, and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it cannot be started, ends, or is not ready within `patience`.
    pub fn start(&self, patience: Duration) -> Result<Child> {
        let mut spawn = Spawn::new("/bin/sh");
        let mut heard = self.ear.heard();
        heard.is_ready = false;
        let names: Vec<&str> = heard.store.iter().map(|(name, _)| name.as_str()).collect();
        spawn = spawn
            .arguments(["-c", SHELL, "sh"])
            .argument(&self.program)
            .arguments(&self.arguments)
            .variable("NOTIFY_SOCKET", &self.address)
            .variable("LISTEN_FDS", heard.store.len().to_string())
            .variable("LISTEN_FDNAMES", names.join(":"));
        for (name, value) in &self.variables {
            spawn = spawn.variable(name, value.clone());
        }
        for ((_, descriptor), number) in heard.store.iter().zip(3..) {
            spawn = spawn.descriptor(descriptor.as_fd(), number);
        }
        let service = spawn.start()?;
        drop(spawn);
        drop(heard);
        let deadline = Instant::now() + patience;
        while !self.ear.heard().is_ready {
            if let Some(ending) = service.try_wait()? {
                bail!("the service ended before it was ready: {ending}");
            }
            if Instant::now() > deadline {
                bail!(
                    "the service is not ready after {patience:?}; it said {:?}",
                    self.ear.heard().said
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(service)
    }

    /// Takes in whatever the service has said until now.
    ///
    /// # Errors
    /// When a message cannot be read.
    pub fn listen(&self) -> Result<()> {
        self.ear.listen()
    }

    /// Names of what is kept, in order.
    pub fn kept(&self) -> Vec<String> {
        self.ear
            .heard()
            .store
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        self.ear.ended.store(true, Ordering::Relaxed);
        // A manager that is gone keeps nothing.
        self.ear.heard().store.clear();
    }
}

impl Ear {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock()
    }

    fn listen(&self) -> Result<()> {
        let mut heard = self.heard();
        while let Some((text, descriptors)) = self.receive()? {
            let value = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            };
            let name = value("FDNAME").unwrap_or("stored").to_owned();
            if value("FDSTORE") == Some("1") {
                for descriptor in descriptors {
                    // As systemd does, by the open file; of those that Xebec gives, each is a file of its own.
                    let is_new = heard.store.iter().all(|(other, kept)| {
                        *other != name || file_of(kept.as_fd()) != file_of(descriptor.as_fd())
                    });
                    if is_new {
                        heard.store.push((name.clone(), descriptor));
                    }
                }
            }
            if value("FDSTOREREMOVE") == Some("1") {
                heard.store.retain(|(other, _)| *other != name);
            }
            heard.is_ready |= value("READY") == Some("1");
            heard.said.push(text);
        }
        Ok(())
    }

    fn receive(&self) -> Result<Option<(String, Vec<OwnedFd>)>> {
        let mut text = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut text)],
            &mut control,
            flags,
        );
        let length = match received {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno).context("read a notification"),
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let text = text.get(..length).unwrap_or_default();
        Ok(Some((String::from_utf8_lossy(text).into_owned(), descriptors)))
    }
}

/// Which file a descriptor is of.
fn file_of(descriptor: BorrowedFd<'_>) -> Option<FileIdentity> {
    FileIdentity::of(descriptor).ok()
}
