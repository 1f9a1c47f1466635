//! When the daemon may end, and how it ends all the same: whoever still reads gets the bytes or an error, never zeros.
//!
//! The group must not close while anybody can read a hole. A stop by force unmounts every view, and from then on pages
//! that are missing are refused with `EIO`; the daemon ends when nobody has a file of an incomplete layer open any more.
//! If it is asked for an image before that, it goes on as if nothing had been.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::failure::{Failure, FailureKind};
use crate::file::is_same;
use crate::protocol::Reply;
use crate::worker::requests::Requests;
use crate::worker::upkeep;

/// How long readers that are refused may take to be gone, before whoever stops the daemon is told that it stays.
const REFUSED: Duration = Duration::from_secs(1);
/// How often it is looked meanwhile.
const LOOK: Duration = Duration::from_millis(10);

impl Requests {
    /// `xebec daemon stop`. Blocks.
    pub(super) fn stop(&self, force: bool) -> Result<Reply, Failure> {
        self.views.sweep();
        let views = self.views.list();
        if !views.is_empty() && !force {
            let names: Vec<_> = views.iter().map(|view| view.path.display().to_string()).collect();
            let message = format!(
                "views are mounted: {}. Unmount them first, or use --force",
                names.join(", ")
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        if !force && let Some(reason) = self.reason_to_stay() {
            let message = format!("{reason}. End those processes first, or use --force");
            return Err(Failure::new(FailureKind::Usage, message));
        }
        match self.begin_to_end() {
            None => {
                self.stop.notify_one();
                Ok(Reply::Done)
            }
            Some(reason) => Ok(Reply::Stays { reason }),
        }
    }

    /// Unmounts every view, used or not, and refuses what is read all the same. Gives the reason why the daemon stays.
    /// Blocks.
    pub(super) fn begin_to_end(&self) -> Option<String> {
        for view in self.views.list() {
            warn!(
                "told to stop: view {} of {} is unmounted under its users",
                view.path.display(),
                view.reference
            );
        }
        self.views.clear();
        self.fills.refuse(true);
        let deadline = Instant::now() + REFUSED;
        loop {
            let reason = self.reason_to_stay();
            if reason.is_none() || Instant::now() > deadline {
                if let Some(reason) = &reason {
                    warn!(
                        "told to stop, but {reason}: it gets EIO where pages are missing, and the daemon ends after it"
                    );
                }
                return reason;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Goes on after a stop by force that was not finished yet, because somebody wants an image.
    ///
    /// # Errors
    /// When the whole daemon was told to end.
    pub(super) fn go_on(&self) -> Result<(), Failure> {
        if self.journal.stop_requested() {
            let message =
                "the daemon is ending; try again when it has (`xebec daemon status` shows it until then)";
            return Err(Failure::new(FailureKind::Host, message));
        }
        if self.fills.is_refusing() {
            info!("asked for an image: going on");
            self.fills.refuse(false);
        }
        Ok(())
    }

    /// Why the daemon must not end although no view is mounted. Blocks.
    pub(super) fn reason_to_stay(&self) -> Option<String> {
        let suspects = self.suspects.status();
        if let Some(suspect) = suspects.first() {
            return Some(format!(
                "processes are still on an old view of {}",
                suspect.reference
            ));
        }
        let owed = self.journal.counters().owed;
        if owed > 0 {
            return Some(format!("{owed} readers wait for bytes"));
        }
        // Whoever reads a layer that is served for no view any more is found once this process has it open no more.
        upkeep::sync_served(&self.fills);
        self.forget_unused();
        match self.fills.read_unserved() {
            Ok(keys) => keys.first().map(|key| {
                format!(
                    "{key} is still read by a view that was unmounted under its users, perhaps in a container"
                )
            }),
            Err(failure) => Some(failure.to_string()),
        }
    }

    /// Whether the guarded mount shows another directory than the one that is now at its path: somebody removed the
    /// root directory under this daemon, and nothing that is written there could be read through the mount.
    pub(super) fn root_was_replaced(&self) -> bool {
        let paths = &self.images.paths;
        !is_same(&paths.guarded(), &paths.layers())
    }
}
