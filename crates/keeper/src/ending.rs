//! How a keeper ends when nothing needs events any more: no client is left in a queue, no reader gets zeros.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use tracing::{error, info};
use xebec_kernel::fanotify::Denial;
use xebec_kernel::journal::LastWord;

use crate::guard;
use crate::holdings::names;
use crate::poll::poll;
use crate::state::Keeper;

impl Keeper<'_> {
    /// True when a client waits in the queue of the socket. Otherwise the socket is out of reach afterwards, so
    /// that no client can come to a keeper that has decided to end.
    ///
    /// A service manager's socket stays where it is: it starts the service for the next client.
    pub(crate) fn has_new_clients(&self) -> bool {
        let mut polled = [PollFd::new(&self.holdings.listener, PollFlags::IN)];
        let mut is_waiting = || matches!(poll(&mut polled, Some(Duration::ZERO)), Ok(ready) if ready > 0);
        if !self.owns_socket() {
            return is_waiting();
        }
        let socket = self.config.socket();
        let hidden = self.config.run.join("xebec.sock.ending");
        let _ = fs::rename(&socket, &hidden);
        let waiting = is_waiting();
        if waiting {
            let _ = fs::rename(&hidden, &socket);
        } else {
            let _ = fs::remove_file(&hidden);
        }
        waiting
    }

    /// Whether the socket at the usual path is one that a keeper made; a service manager's stays where it is.
    fn owns_socket(&self) -> bool {
        let at_path = fs::metadata(self.config.socket()).map(|metadata| metadata.ino());
        at_path.is_ok_and(|inode| inode == self.holdings.journal.own_socket())
    }

    pub(crate) fn take_down(self) {
        self.manager.stopping();
        if self.owns_socket() {
            let _ = fs::remove_file(self.config.socket());
        }
        // Closing the group would release these readers with zeros.
        match self
            .holdings
            .journal
            .deny_everything(&self.holdings.group, Denial::Io)
        {
            Ok(0) => {}
            Ok(denied) => error!("{denied} readers still waited when the daemon ended; they got EIO"),
            Err(problem) => error!("readers still wait, and will see zeros: {problem}"),
        }
        let counters = self.holdings.journal.counters();
        let nobody_read = self.holdings.is_new && counters.starts == 0;
        if nobody_read || self.holdings.journal.last_word() == LastWord::Finished {
            guard::take_down(&self.config.root.join("layers"), &self.config.guarded());
        } else {
            // Views may still be mounted: the next start finds the mount, guards it again, and reports its readers.
            error!("ends although no worker said that all readers are gone");
        }
        if let Some(snapshots) = &self.config.snapshots
            && self.care.is_own(snapshots)
        {
            let _ = fs::remove_file(snapshots);
        }
        for name in names::ALL {
            self.manager.forget(name);
        }
        let _ = fs::remove_file(self.config.worker_pid_file());
        let _ = fs::remove_file(self.config.pid_file());
        info!("ended");
    }
}
