//! The worker's watch over its keeper. If the keeper dies, only this worker and its holdings keep readers from zeros: it starts
//! another keeper at once, which takes the holdings over.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use tracing::{error, info};
use xebec_kernel::journal::{Custody, Journal};
use xebec_kernel::process::Child;

/// How long a service manager may take to start a keeper again before the worker does.
const MANAGER: Duration = Duration::from_secs(5);
/// How long a keeper that was started may take to take over.
const TAKE_OVER: Duration = Duration::from_secs(10);
/// How often the journal is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// How often when nothing is expected, because the service was stopped.
const IDLE_LOOK: Duration = Duration::from_millis(200);
/// Pause after an attempt that came to nothing.
const RETRY: Duration = Duration::from_millis(500);

/// Watches until the process ends. `start` starts a keeper with the directories and options of this daemon.
pub fn watch(journal: Arc<Journal>, start: impl Fn() -> Result<Child, String> + Send + 'static) {
    let watch = move || {
        loop {
            let keeper = journal.counters().keeper_pid;
            wait_for_end(keeper);
            // The program of a keeper may have changed, not its process; or it has a successor already.
            if journal.counters().keeper_pid == keeper {
                replace(&journal, keeper, &start);
            }
        }
    };
    // Without it the daemon works, and only a keeper's death would be the end.
    if let Err(error) = std::thread::Builder::new()
        .name("keeper-watch".to_owned())
        .spawn(watch)
    {
        error!("cannot watch the keeper: {error}");
    }
}

fn wait_for_end(pid: i32) {
    let Ok(keeper) = Child::open(pid) else { return };
    let descriptor = keeper.as_fd();
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    // Which also reaps one that this worker started.
    while matches!(keeper.try_wait(), Ok(None)) {
        let _ = rustix::event::poll(&mut polled, None);
    }
}

fn replace(journal: &Journal, dead: i32, start: &impl Fn() -> Result<Child, String>) {
    let came = |patience: Duration, keeper: Option<&Child>| {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if journal.counters().keeper_pid != dead {
                return true;
            }
            if keeper.is_some_and(|keeper| !matches!(keeper.try_wait(), Ok(None))) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        false
    };
    match journal.custody() {
        Custody::Left => {
            info!("the service was stopped: going on without a keeper until it is started again");
            while journal.counters().keeper_pid == dead && journal.custody() == Custody::Left {
                std::thread::sleep(IDLE_LOOK);
            }
            return;
        }
        Custody::Managed => {
            error!("the keeper died (process {dead}); the service manager starts another");
            if came(MANAGER, None) {
                return;
            }
            error!("the service manager started no keeper; this worker does");
        }
        Custody::Own => {
            error!("the keeper died (process {dead}); this worker starts another, which takes over")
        }
    }
    match start() {
        Err(problem) => {
            error!("cannot start a keeper: {problem}; this worker goes on alone and tries again");
            std::thread::sleep(RETRY);
        }
        Ok(keeper) => {
            if !came(TAKE_OVER, Some(&keeper)) {
                error!("the new keeper did not take over; this worker tries again");
                std::thread::sleep(RETRY);
            }
        }
    }
}
