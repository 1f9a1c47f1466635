//! The keeper: the process that outlives every worker, so that no reader ever sees zeros.
//!
//! It holds the fanotify group, the journal and the listening socket, and does nothing else: it knows no image,
//! opens no network connection, and never reads from the cache. A worker that dies is reaped, its death is
//! recorded, and a successor is started, which takes over what was owed (`crate::events`). Readers wait
//! meanwhile. The order in which things come into being matters:
//!
//! 1. the locks: one keeper per run directory, one daemon per run directory and per root directory;
//! 2. what is held (`holdings`): made anew, or handed down by the service manager or by the program that this
//!    one replaces, or copied from a worker that lost its keeper;
//! 3. the socket, last: whoever can connect may count on the rest.
//!
//! It ends in one of three ways:
//! * a worker's last word was that nothing needs events any more: all is taken down, and what is owed in spite of
//!   that is denied, never released;
//! * the service manager stops the service: the keeper leaves, and the worker goes on alone with the same holdings;
//! * `xebec daemon upgrade`: the keeper executes the new program, which keeps process id and holdings, lets the
//!   worker end, and starts one of its own.
//!
//! It is one thread without a runtime, short enough to be read in one sitting: what it waits for is in `waiting`, how it ends
//! in `ending`.

mod backoff;
mod blame;
mod config;
pub(crate) mod containerd;
mod ending;
mod files;
mod guard;
mod holdings;
mod locks;
mod manager;
mod waiting;

pub use config::{KeeperConfig, KeeperError};
pub use locks::{LockError, is_running};
/// Version of the journal that keepers and workers of this program share; one of another version cannot take it over.
pub use xebec_kernel::journal::VERSION as JOURNAL_VERSION;

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use tracing::{error, info, warn};
use xebec_kernel::journal::{Custody, LastWord};
use xebec_kernel::memory;
use xebec_kernel::process::{self, Child, Ending, HandedDown, Signals, Spawn, SpawnError};

use backoff::Backoff;
use blame::Blame;
use containerd::Care;
use files::{make_directory, write_pid};
use holdings::{Holdings, names};
use locks::KeeperLock;
use manager::Manager;
use waiting::poll;
use xebec_kernel::file::is_same;

/// A stop that kills so many workers in a row is not waited for any longer.
const DEATHS_WHILE_STOPPING: u32 = 10;
/// How long a worker that is to be replaced may take to finish what it is doing.
const HANDOVER: Duration = Duration::from_secs(10);

const SIGHUP: i32 = rustix::process::Signal::HUP.as_raw();
const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
const SIGINT: i32 = rustix::process::Signal::INT.as_raw();
/// Asks a keeper to execute the program that [`upgrade_file`] names, and a worker to make room for another.
pub const REPLACE: i32 = rustix::process::Signal::USR2.as_raw();

/// What a worker is told by signals. They are blocked when it starts: it unblocks them when it listens.
pub(crate) const WORKER_SIGNALS: [i32; 2] = [SIGTERM, REPLACE];

/// A keeper's name among processes.
const NAME: &str = "xebec-keeper";
/// Asks a keeper to leave its worker to another keeper, which takes over.
const LEAVE: i32 = rustix::process::Signal::USR1.as_raw();

/// The file of a run directory that names the program which a keeper is to be replaced by.
pub fn upgrade_file(run: &Path) -> PathBuf {
    run.join("upgrade")
}

/// Tells the service manager that started this process, if one did, that it serves.
pub fn say_ready() {
    Manager::find().ready();
}

/// Keeps until a worker says that nothing needs events any more, or a service manager stops the service.
///
/// # Errors
/// [`KeeperError`]. If nobody else holds it, everything that was set up is taken down again.
pub fn run(config: &KeeperConfig) -> Result<(), KeeperError> {
    let (mut keeper, worker) = Keeper::set_up(config)?;
    match keeper.supervise(worker) {
        Ok(End::Left) => {
            info!("left; the worker goes on alone until the service is started again");
            keeper.manager.stopping();
            Ok(())
        }
        Ok(End::Finished) => {
            keeper.take_down();
            Ok(())
        }
        Err(problem) => {
            keeper.take_down();
            Err(problem)
        }
    }
}

/// How a keeper ended.
enum End {
    /// Nothing needs events any more.
    Finished,
    /// The service was stopped, and the worker goes on.
    Left,
}

struct Keeper<'a> {
    config: &'a KeeperConfig,
    manager: Manager,
    signals: Signals,
    holdings: Holdings,
    stopping: bool,
    leaving: bool,
    /// Another program is to go on, as soon as a worker serves.
    upgrading: bool,
    /// The worker is of another program than this one, or was asked to be replaced anyway.
    is_upgrade: bool,
    blame: Blame,
    /// When containerd's socket is looked after again.
    care: Care,
    _lock: KeeperLock,
}

impl<'a> Keeper<'a> {
    fn set_up(config: &'a KeeperConfig) -> Result<(Keeper<'a>, Option<Child>), KeeperError> {
        process::set_name(NAME);
        if let Err(error) = process::keep_memory_to_itself() {
            warn!("a dump of the keeper's memory cannot be ruled out: {error}");
        }
        let mut handed = HandedDown::receive();
        for (name, problem) in &handed.missing {
            warn!("{name} was to be handed down, but is not there: {problem}");
        }
        if let Err(error) = process::close_strays() {
            warn!("cannot close what was inherited: {error}");
        }
        make_directory(&config.run)?;
        make_directory(&config.root.join("layers"))?;
        let manager = Manager::find();
        let lock = match KeeperLock::take(&config.run, &config.socket()) {
            // Some command started it, before the service was.
            Err(LockError::Held { .. }) if manager.is_there() => {
                ask_to_leave(&config.pid_file());
                KeeperLock::take(&config.run, &config.socket())
            }
            other => other,
        }?;
        let (holdings, worker) = Holdings::come_by(config, &mut handed)?;
        protect_memory();
        // The numbers of events that are owed at the end are occupied in this process; see `take_down`.
        if let Err(error) = process::raise_open_file_limit() {
            warn!("cannot raise the limit of open files: {error}");
        }
        let signals = Signals::block(&[SIGTERM, SIGINT, SIGHUP, REPLACE, LEAVE])
            .map_err(|source| KeeperError::Wait { source })?;
        let custody = match manager.is_there() {
            true => Custody::Managed,
            false => Custody::Own,
        };
        let pid = std::process::id().cast_signed();
        holdings.journal.record_keeper(pid, custody);
        write_pid(&config.pid_file(), pid)?;
        for (name, descriptor) in holdings.for_successor() {
            manager.keep(name, descriptor);
        }
        let keeper = Keeper {
            config,
            manager,
            signals,
            stopping: holdings.journal.stop_requested(),
            leaving: false,
            upgrading: false,
            is_upgrade: handed.by_predecessor || holdings.is_moved,
            blame: Blame::begin(),
            care: Care::begin(config.snapshots.as_deref()),
            holdings,
            _lock: lock,
        };
        Ok((keeper, worker))
    }

    fn supervise(&mut self, worker: Option<Child>) -> Result<End, KeeperError> {
        let mut backoff = Backoff::new(self.config.longest_delay);
        let mut deaths_while_stopping = 0;
        let mut child = match worker {
            Some(worker) if !self.is_upgrade && is_own_program(worker.pid()) => {
                info!("worker {} serves already", worker.pid());
                self.tell_of_worker(&worker);
                worker
            }
            other => {
                match other {
                    Some(worker) => {
                        self.replace(&worker)?;
                        // Somebody told it to stop just then.
                        if self.is_finished() {
                            return Ok(End::Finished);
                        }
                    }
                    // It died while there was no keeper.
                    None => match self.holdings.journal.counters().worker_pid {
                        0 => {}
                        worker => self.record_end(worker, Ending::Unknown),
                    },
                }
                match self.start_worker() {
                    // A program that cannot even be started the first time is the user's to correct.
                    Err(problem) if self.holdings.is_new => return Err(problem.into()),
                    Err(problem) => {
                        error!("{problem}; trying again");
                        match self.start_worker_at_last(&mut backoff)? {
                            Some(worker) => worker,
                            None => return Ok(End::Finished),
                        }
                    }
                    Ok(worker) => worker,
                }
            }
        };
        self.manager.ready();
        loop {
            let started = Instant::now();
            let answered = self.answered();
            match self.wait_for(&child)? {
                Some(ending) => self.record_end(child.pid(), ending),
                None => return Ok(End::Left),
            }
            let last_word = self.holdings.journal.last_word();
            match last_word {
                _ if self.is_finished() => return Ok(End::Finished),
                LastWord::Finished => info!("the worker was done, but a client came"),
                LastWord::HandedOver => {}
                LastWord::None => {
                    deaths_while_stopping += u32::from(self.stopping);
                    if deaths_while_stopping >= DEATHS_WHILE_STOPPING {
                        return Err(KeeperError::NoStop {
                            deaths: deaths_while_stopping,
                        });
                    }
                    // One that answered a reader was healthy, however short it lived.
                    let lifetime = match self.answered() > answered {
                        true => Duration::MAX,
                        false => started.elapsed(),
                    };
                    self.pause(backoff.after(lifetime))?;
                }
            }
            // It has been reaped: two descriptor tables never owe answers at a time.
            child = match self.start_worker_at_last(&mut backoff)? {
                Some(worker) => worker,
                None => return Ok(End::Finished),
            };
        }
    }

    /// Starts a worker, however long that takes; `None` when the daemon is told to stop meanwhile.
    fn start_worker_at_last(&mut self, backoff: &mut Backoff) -> Result<Option<Child>, KeeperError> {
        loop {
            // One may serve that a dead keeper had just started.
            if let Some(worker) = self.holdings.worker() {
                return Ok(Some(worker));
            }
            match self.start_worker() {
                Ok(worker) => return Ok(Some(worker)),
                Err(problem) => error!("{problem}; trying again"),
            }
            self.pause(backoff.after(Duration::ZERO))?;
            if self.stopping {
                return Ok(None);
            }
        }
    }

    /// Whether the last worker said that nothing needs events any more, and nobody has come since.
    fn is_finished(&self) -> bool {
        self.holdings.journal.last_word() == LastWord::Finished && (self.stopping || !self.has_new_clients())
    }

    /// Lets a worker that another keeper started end, by force if need be.
    fn replace(&mut self, worker: &Child) -> Result<(), KeeperError> {
        let error = |source| KeeperError::Wait { source };
        // One that has just ended is found by the wait.
        let _ = worker.signal(REPLACE);
        let deadline = Instant::now() + HANDOVER;
        let mut killed = false;
        let ending = loop {
            if let Some(ending) = worker.try_wait().map_err(error)? {
                break ending;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && !killed {
                warn!("worker {} does not make room; killing it", worker.pid());
                let _ = worker.kill();
                killed = true;
            }
            let timeout = (!killed).then_some(left);
            poll(&mut [PollFd::new(worker, PollFlags::IN)], timeout).map_err(error)?;
        };
        self.record_end(worker.pid(), ending);
        Ok(())
    }

    fn record_end(&self, worker: i32, ending: Ending) {
        let journal = &self.holdings.journal;
        let last_word = journal.last_word();
        let filling = journal.record_end(worker, self.blame.falls_on_events(ending));
        let owed = journal.counters().owed;
        if last_word == LastWord::None {
            error!(
                "worker {worker} died ({ending}); {owed} readers wait, {filling} of them for bytes on their way"
            );
        } else {
            info!("worker {worker} ended ({last_word:?}); {owed} readers wait");
        }
    }

    /// Events answered so far.
    fn answered(&self) -> u64 {
        let counters = self.holdings.journal.counters();
        counters.allowed + counters.denied
    }

    fn start_worker(&mut self) -> Result<Child, SpawnError> {
        let mut spawn = match &self.config.worker {
            Some(program) => Spawn::new(program),
            None => Spawn::own_executable(),
        };
        spawn = spawn
            .arguments(&self.config.worker_arguments)
            .blocked(&WORKER_SIGNALS);
        for (descriptor, number) in self.holdings.for_worker() {
            spawn = spawn.descriptor(descriptor, number);
        }
        self.blame = Blame::begin();
        self.holdings.journal.prepare_start();
        let worker = spawn.start()?;
        self.holdings.journal.record_start(worker.pid());
        if let Err(problem) = write_pid(&self.config.worker_pid_file(), worker.pid()) {
            warn!("{problem}; if this keeper dies, the worker cannot be found");
        }
        self.tell_of_worker(&worker);
        info!("worker {} started", worker.pid());
        Ok(worker)
    }

    /// Gives the service manager this worker to keep in place of all earlier ones. A keeper that is killed in between
    /// is no loss: the journal names the worker, too.
    fn tell_of_worker(&self, worker: &Child) {
        self.manager.forget(names::WORKER);
        self.manager.keep(names::WORKER, worker.as_fd());
    }
}

/// Makes room for the service manager's keeper. Only the holder of the lock writes that file.
fn ask_to_leave(pid_file: &Path) {
    let pid = fs::read_to_string(pid_file).ok();
    if let Some(keeper) = pid.and_then(|pid| find(pid.trim().parse().ok()?)) {
        info!(
            "asking keeper {} to leave, so that the service can begin",
            keeper.pid()
        );
        let _ = keeper.signal(LEAVE);
    }
}

/// The keeper with a process id, if there is one that lives.
pub fn find(pid: i32) -> Option<Child> {
    let keeper = Child::open(pid).ok()?;
    // In this order: what is named so now is what the descriptor is of, unless it has ended.
    let is_one = has_name(pid, NAME) && !keeper.has_ended().unwrap_or(true);
    is_one.then_some(keeper)
}

/// Whether a process has this name: a process id in a file may be somebody else's by now.
fn has_name(pid: i32, name: &str) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/comm"));
    text.is_ok_and(|text| text.trim_end() == name)
}

/// Whether a process runs the same file as this one.
fn is_own_program(pid: i32) -> bool {
    is_same(
        Path::new("/proc/self/exe"),
        Path::new(&format!("/proc/{pid}/exe")),
    )
}

fn protect_memory() {
    if let Err(error) = memory::lock_all() {
        warn!("cannot lock the keeper's memory: {error}");
    }
    if let Err(error) = memory::set_oom_score_adj(-1000) {
        warn!("cannot keep the keeper from being killed when memory runs out: {error}");
    }
}
