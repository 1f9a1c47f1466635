//! The keeper: the process that outlives every worker, so that no reader ever sees zeros.
//!
//! It holds the fanotify group, the journal and the listening socket, and does nothing else: it knows no image,
//! opens no network connection, and never reads from the cache. A worker that dies is reaped, its death is
//! recorded, and a successor is started, which takes over what was owed (`crate::events`). Readers wait
//! meanwhile. The order in which things come into being matters:
//!
//! 1. both locks: one keeper per run directory and per root directory;
//! 2. the cache directory bound privately to `<run>/guarded`, and the mark on that mount, before any EROFS
//!    mount can open a file through it;
//! 3. the socket, last: whoever can connect may count on the rest.
//!
//! The keeper ends when a worker exits with status 0, which is the worker's word that nothing needs events any
//! more. What is owed in spite of that is denied, never released.
//!
//! It is one thread without a runtime, short enough to be read in one sitting.

mod backoff;
mod guard;
mod locks;

pub use locks::LockError;

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::{error, info, warn};
use xebec_kernel::fanotify::{Denial, FanotifyError};
use xebec_kernel::journal::{DEFAULT_DEATHS_ALLOWED, Journal, JournalError};
use xebec_kernel::memory;
use xebec_kernel::mount::MountError;
use xebec_kernel::process::{self, Child, Ending, Signals, Spawn, SpawnError};

use crate::events::descriptors;
use backoff::Backoff;
use guard::Guard;
use locks::Locks;

/// A stop that kills so many workers in a row is not waited for any longer.
const DEATHS_WHILE_STOPPING: u32 = 10;

const SIGHUP: i32 = rustix::process::Signal::HUP.as_raw();
const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
const SIGINT: i32 = rustix::process::Signal::INT.as_raw();

/// What a keeper keeps.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// The root directory; `layers` below it is what is guarded.
    pub root: PathBuf,
    /// The run directory: `guarded`, `xebec.sock`, `keeper.pid` and `daemon.lock` are below it.
    pub run: PathBuf,
    /// The program of the worker; this executable when absent.
    pub worker: Option<PathBuf>,
    /// Arguments of the worker.
    pub worker_arguments: Vec<OsString>,
    /// How many workers an event may kill before it is denied.
    pub deaths_allowed: u32,
    /// Longest wait before a worker is started again; the first restart does not wait at all.
    pub longest_delay: Duration,
}

impl KeeperConfig {
    /// A keeper of these directories, whose worker is this executable with `arguments`.
    pub fn new(root: impl Into<PathBuf>, run: impl Into<PathBuf>, arguments: Vec<OsString>) -> KeeperConfig {
        KeeperConfig {
            root: root.into(),
            run: run.into(),
            worker: None,
            worker_arguments: arguments,
            deaths_allowed: DEFAULT_DEATHS_ALLOWED,
            longest_delay: Duration::from_secs(1),
        }
    }
}

/// What ends a keeper before its time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// Another keeper (or a worker whose keeper died) has one of the directories.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file or directory of the keeper could not be made.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was being done, as a verb.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cache directory could not be guarded.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The group could not be made, or the mark could not be set.
    #[error(transparent)]
    Fanotify(#[from] FanotifyError),
    /// The journal could not be made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The first worker could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Waiting for the worker failed.
    #[error("cannot wait for the worker: {source}")]
    Wait {
        /// What the system said.
        source: io::Error,
    },
    /// Worker after worker died instead of stopping.
    #[error("{deaths} workers in a row died instead of stopping; readers that waited were denied with EIO")]
    NoStop {
        /// How many.
        deaths: u32,
    },
}

/// Keeps until a worker exits with status 0.
///
/// # Errors
/// [`KeeperError`]. Everything that was set up is taken down again.
pub fn run(config: &KeeperConfig) -> Result<(), KeeperError> {
    let mut keeper = Keeper::set_up(config)?;
    let outcome = keeper.supervise();
    keeper.take_down();
    outcome
}

struct Keeper<'a> {
    config: &'a KeeperConfig,
    locks: Locks,
    signals: Signals,
    guard: Guard,
    journal: Arc<Journal>,
    journal_fd: std::os::fd::OwnedFd,
    listener: UnixListener,
    stopping: bool,
}

impl<'a> Keeper<'a> {
    fn set_up(config: &'a KeeperConfig) -> Result<Keeper<'a>, KeeperError> {
        make_directory(&config.run)?;
        let layers = config.root.join("layers");
        make_directory(&layers)?;
        let locks = Locks::take(&config.run, &config.root, &config.run.join("xebec.sock"))?;
        protect_memory();
        // The numbers of events that are owed at the end are occupied in this process; see `take_down`.
        if let Err(error) = process::raise_open_file_limit() {
            warn!("cannot raise the limit of open files: {error}");
        }
        let signals =
            Signals::block(&[SIGTERM, SIGINT, SIGHUP]).map_err(|source| KeeperError::Wait { source })?;
        let pid_file = config.run.join("keeper.pid");
        if pid_file.exists() {
            // Its owner did not end in order, and the locks are ours: nobody answers for those mounts.
            guard::clear_stale_mounts(&config.run, &config.root)?;
        }
        let guard = Guard::set_up(&layers, &config.run.join("guarded"))?;
        let (journal, journal_fd) = Journal::create()?;
        journal.set_deaths_allowed(config.deaths_allowed);
        journal.set_keeper_pid(std::process::id().cast_signed());
        write_pid(&pid_file)?;
        let listener = listen(&config.run.join("xebec.sock"))?;
        let journal = Arc::new(journal);
        Ok(Keeper {
            config,
            locks,
            signals,
            guard,
            journal,
            journal_fd,
            listener,
            stopping: false,
        })
    }

    fn supervise(&mut self) -> Result<(), KeeperError> {
        let mut backoff = Backoff::new(self.config.longest_delay);
        let mut deaths_while_stopping = 0;
        // A program that cannot even be started the first time is the user's to correct.
        let mut child = Some(self.start_worker()?);
        loop {
            let started = Instant::now();
            let ending = child.as_ref().map(|worker| self.wait_for(worker)).transpose()?;
            match ending {
                Some(Ending::Exited(0)) if self.stopping || !self.has_new_clients() => return Ok(()),
                Some(Ending::Exited(0)) => info!("the worker was done, but a client came"),
                ending => {
                    if let Some(ending) = ending {
                        self.record_death(ending);
                    }
                    deaths_while_stopping += u32::from(self.stopping);
                    if deaths_while_stopping >= DEATHS_WHILE_STOPPING {
                        return Err(KeeperError::NoStop {
                            deaths: deaths_while_stopping,
                        });
                    }
                    self.pause(backoff.after(started.elapsed()))?;
                }
            }
            // It has been reaped: two descriptor tables never owe answers at a time.
            child = self
                .start_worker()
                .inspect_err(|problem| error!("{problem}; trying again"))
                .ok();
        }
    }

    fn record_death(&self, ending: Ending) {
        let worker = self.journal.counters().worker_pid;
        let filling = self.journal.record_death();
        let owed = self.journal.counters().owed;
        error!(
            "worker {worker} died ({ending}); {owed} readers wait, {filling} of them for bytes on their way"
        );
    }

    fn start_worker(&self) -> Result<Child, SpawnError> {
        let (run_lock, root_lock) = self.locks.descriptors();
        let spawn = match &self.config.worker {
            Some(program) => Spawn::new(program),
            None => Spawn::own_executable(),
        };
        let worker = spawn
            .arguments(&self.config.worker_arguments)
            .descriptor(self.guard.group().as_fd(), descriptors::GROUP)
            .descriptor(self.journal_fd.as_fd(), descriptors::JOURNAL)
            .descriptor(self.listener.as_fd(), descriptors::SOCKET)
            .descriptor(run_lock, descriptors::RUN_LOCK)
            .descriptor(root_lock, descriptors::ROOT_LOCK)
            .start()?;
        self.journal.record_start(worker.pid());
        info!("worker {} started", worker.pid());
        Ok(worker)
    }

    /// Passes signals on until the worker has ended.
    fn wait_for(&mut self, worker: &Child) -> Result<Ending, KeeperError> {
        let error = |source| KeeperError::Wait { source };
        loop {
            if let Some(ending) = worker.try_wait().map_err(error)? {
                return Ok(ending);
            }
            let mut polled = [
                PollFd::new(worker, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            poll(&mut polled, None).map_err(error)?;
            self.take_signals(Some(worker))?;
        }
    }

    /// Waits, but not for longer than until a signal comes.
    fn pause(&mut self, delay: Duration) -> Result<(), KeeperError> {
        if !delay.is_zero() {
            let mut polled = [PollFd::new(&self.signals, PollFlags::IN)];
            poll(&mut polled, Some(delay)).map_err(|source| KeeperError::Wait { source })?;
        }
        self.take_signals(None)
    }

    fn take_signals(&mut self, worker: Option<&Child>) -> Result<(), KeeperError> {
        while let Some(signal) = self
            .signals
            .next()
            .map_err(|source| KeeperError::Wait { source })?
        {
            if signal == SIGHUP {
                continue; // The terminal that the daemon was started from is gone; that is not its concern.
            }
            info!("signal {signal}: stopping");
            self.stopping = true;
            self.journal.request_stop();
            // A worker that has just ended is found by the next wait.
            let _ = worker.map(|worker| worker.signal(SIGTERM));
        }
        Ok(())
    }

    /// True when a client waits in the queue of the socket. Otherwise the socket is out of reach afterwards, so
    /// that no client can come to a keeper that has decided to end.
    fn has_new_clients(&self) -> bool {
        let socket = self.config.run.join("xebec.sock");
        let hidden = self.config.run.join("xebec.sock.ending");
        let _ = std::fs::rename(&socket, &hidden);
        let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
        let waiting = matches!(poll(&mut polled, Some(Duration::ZERO)), Ok(ready) if ready > 0);
        if waiting {
            let _ = std::fs::rename(&hidden, &socket);
        } else {
            let _ = std::fs::remove_file(&hidden);
        }
        waiting
    }

    fn take_down(self) {
        let _ = std::fs::remove_file(self.config.run.join("xebec.sock"));
        // Closing the group would release these readers with zeros.
        match self.journal.deny_everything(self.guard.group(), Denial::Io) {
            Ok(0) => {}
            Ok(denied) => error!("{denied} readers still waited when the daemon ended; they got EIO"),
            Err(problem) => error!("readers still wait, and will see zeros: {problem}"),
        }
        drop(self.guard);
        let _ = std::fs::remove_file(self.config.run.join("keeper.pid"));
        info!("ended");
    }
}

fn protect_memory() {
    if let Err(error) = memory::lock_all() {
        warn!("cannot lock the keeper's memory: {error}");
    }
    if let Err(error) = memory::set_oom_score_adj(-1000) {
        warn!("cannot keep the keeper from being killed when memory runs out: {error}");
    }
}

/// Makes it for root alone. A directory that exists keeps its mode: it may serve others too.
fn make_directory(path: &Path) -> Result<(), KeeperError> {
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

fn write_pid(path: &Path) -> Result<(), KeeperError> {
    std::fs::write(path, format!("{}\n", std::process::id())).map_err(|source| KeeperError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

fn listen(path: &Path) -> Result<UnixListener, KeeperError> {
    let error = |source| KeeperError::File {
        action: "listen on",
        path: path.to_owned(),
        source,
    };
    // By its usual path the socket appears only when nobody but root may connect.
    let hidden = path.with_extension("sock.starting");
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden).map_err(error)?;
    std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o600)).map_err(error)?;
    std::fs::rename(&hidden, path).map_err(error)?;
    Ok(listener)
}

fn poll(polled: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    Ok(rustix::io::retry_on_intr(|| {
        rustix::event::poll(polled, timeout.as_ref())
    })?)
}
