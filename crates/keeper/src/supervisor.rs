//! The keeper's life: it starts a worker, waits for its end, records it, and starts the next.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use tracing::{error, info, warn};
use xebec_kernel::file::is_same;
use xebec_kernel::journal::LastWord;
use xebec_kernel::process::{Child, Ending, Spawn, SpawnError};

use crate::backoff::Backoff;
use crate::config::KeeperConfig;
use crate::crash_attribution::CrashAttribution;
use crate::error::KeeperError;
use crate::files::write_pid;
use crate::holdings::names;
use crate::manager::Manager;
use crate::poll::poll;
use crate::signals::{REPLACE, WORKER_SIGNALS};
use crate::state::Keeper;

/// A stop that kills so many workers in a row is not waited for any longer.
const DEATHS_WHILE_STOPPING: u32 = 10;
/// How long a worker that is to be replaced may take to finish its work.
const HANDOVER: Duration = Duration::from_secs(10);

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

/// Whether a process runs the same file as this one.
fn is_own_program(pid: i32) -> bool {
    is_same(
        Path::new("/proc/self/exe"),
        Path::new(&format!("/proc/{pid}/exe")),
    )
}

impl Keeper<'_> {
    /// Keeps a worker running until one says that nothing needs events any more, or the service is stopped.
    fn supervise(&mut self, worker: Option<Child>) -> Result<End, KeeperError> {
        let mut backoff = Backoff::new(self.config.longest_delay);
        let mut deaths_while_stopping = 0;
        let Some(mut child) = self.first_worker(worker, &mut backoff)? else {
            return Ok(End::Finished);
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
                LastWord::Finished => {
                    info!("the worker had ended, but a client connected: starts another worker")
                }
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

    /// The worker that serves already, if it is of this program, or a new one; `None` when nothing needs events any more.
    fn first_worker(
        &mut self,
        worker: Option<Child>,
        backoff: &mut Backoff,
    ) -> Result<Option<Child>, KeeperError> {
        match worker {
            Some(worker) if !self.is_upgrade && is_own_program(worker.pid()) => {
                info!("worker {} serves already", worker.pid());
                self.tell_of_worker(&worker);
                return Ok(Some(worker));
            }
            Some(worker) => {
                self.replace(&worker)?;
                // Somebody told it to stop just then.
                if self.is_finished() {
                    return Ok(None);
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
            Err(problem) if self.holdings.is_new => Err(problem.into()),
            Err(problem) => {
                error!("{problem}; trying again");
                self.start_worker_at_last(backoff)
            }
            Ok(worker) => Ok(Some(worker)),
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
                warn!(
                    "worker {} does not end for the next worker; the keeper kills it",
                    worker.pid()
                );
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
        let filling = journal.record_end(worker, self.crash_attribution.falls_on_events(ending));
        let owed = journal.counters().owed;
        if last_word == LastWord::None {
            error!(
                "worker {worker} died ({ending}); {owed} readers wait, {filling} of them for spans in flight"
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
        self.crash_attribution = CrashAttribution::begin();
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
