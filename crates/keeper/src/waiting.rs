//! The events that a keeper waits for: those of its worker, its orders, and containerd's socket.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tracing::{error, info};
use xebec_kernel::journal::Custody;
use xebec_kernel::process::{self, Child, Ending};

use crate::error::KeeperError;
use crate::holdings::names;
use crate::poll::poll;
use crate::signals::{LEAVE, REPLACE, SIGHUP, SIGTERM};
use crate::state::{Keeper, upgrade_file};

impl Keeper<'_> {
    /// Passes signals on until the worker has ended; `None` when this keeper is to leave it.
    pub(crate) fn wait_for(&mut self, worker: &Child) -> Result<Option<Ending>, KeeperError> {
        let error = |source| KeeperError::Wait { source };
        loop {
            if let Some(ending) = worker.try_wait().map_err(error)? {
                return Ok(Some(ending));
            }
            if self.leaving {
                self.holdings.journal.set_custody(Custody::Left);
                return Ok(None);
            }
            if std::mem::take(&mut self.upgrading) {
                self.upgrade(worker);
            }
            let mut polled = [
                PollFd::new(worker, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            // Not while it stops: nobody makes one then, so it would be time for that again and again.
            let wants_socket = self.config.snapshots.is_some() && !self.stopping;
            let timeout = wants_socket.then(|| self.care.left());
            poll(&mut polled, timeout).map_err(error)?;
            self.take_signals(Some(worker))?;
            self.renew_socket(worker);
        }
    }

    /// Makes containerd's socket again if it is not there. A worker has it from its start, so the next one serves it.
    fn renew_socket(&mut self, worker: &Child) {
        let Some(path) = &self.config.snapshots else {
            return;
        };
        if self.stopping {
            return;
        }
        let Some(renewed) = self.care.renewed(path, &self.holdings.snapshots) else {
            return;
        };
        info!(
            "containerd can connect at {}: the next worker serves it",
            path.display()
        );
        self.holdings.snapshots = renewed;
        self.manager.forget(names::SNAPSHOTS);
        self.manager
            .keep(names::SNAPSHOTS, self.holdings.snapshots.as_fd());
        // One that has just ended is found by the next wait.
        let _ = worker.signal(REPLACE);
    }

    /// Waits, but not for longer than until a signal comes.
    pub(crate) fn pause(&mut self, delay: Duration) -> Result<(), KeeperError> {
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
            match signal {
                SIGHUP => {} // The terminal that the daemon was started from is gone; that is not its concern.
                // Not without a worker: if the new program cannot keep, nobody else would hold the group.
                REPLACE => self.upgrading = true,
                LEAVE => self.leaving = true,
                // A stopped service leaves its containers running, and they need their worker.
                SIGTERM if self.manager.is_there() => self.leaving = true,
                _ => {
                    info!("signal {signal}: stopping");
                    self.stopping = true;
                    self.holdings.journal.request_stop();
                    // A worker that has just ended is found by the next wait.
                    let _ = worker.map(|worker| worker.signal(SIGTERM));
                }
            }
        }
        Ok(())
    }

    /// Executes the program that the upgrade file names. Returns only if that fails, with nothing changed.
    fn upgrade(&self, worker: &Child) {
        let file = upgrade_file(&self.config.run);
        let program = fs::read_to_string(&file).map(|text| PathBuf::from(text.trim_end()));
        let _ = fs::remove_file(&file);
        let program = match program {
            Ok(program) => program,
            Err(problem) => return error!("no upgrade: {}: {problem}", file.display()),
        };
        info!("going on as {}", program.display());
        self.manager.reloading();
        let mut descriptors = self.holdings.for_successor().to_vec();
        descriptors.push((names::WORKER, worker.as_fd()));
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let problem = process::hand_down(&program, &arguments, &descriptors);
        error!("no upgrade: cannot execute {}: {problem}", program.display());
        self.manager.ready();
    }
}
