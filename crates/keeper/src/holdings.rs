//! The holdings of a keeper, and the three ways to come by them: made anew, handed down (by the service manager, or by
//! the keeper whose program this one replaced), or copied from a worker that lost its keeper.
//!
//! All three end with the same group and journal in hand *before* any worker is started or ended, so the group
//! always has a holder and every owed event stays on record.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{info, warn};
use xebec_kernel::fanotify::Group;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::journal::Journal;
use xebec_kernel::process::{Child, HandedDown};

use crate::config::KeeperConfig;
use crate::error::KeeperError;
use crate::error::LockError;
use crate::files::listen;
use crate::guard;
use crate::locks::DirectoryLocks;
use crate::process_file::read_process;
use crate::{containerd, descriptors};

/// Names by which a service manager keeps them.
pub(crate) mod names {
    pub(crate) const GROUP: &str = "group";
    pub(crate) const JOURNAL: &str = "journal";
    pub(crate) const SOCKET: &str = "socket";
    pub(crate) const SNAPSHOTS: &str = "snapshots";
    pub(crate) const RUN_LOCK: &str = "run-lock";
    pub(crate) const ROOT_LOCK: &str = "root-lock";
    pub(crate) const WORKER: &str = "worker";
    pub(crate) const ALL: [&str; 7] = [GROUP, JOURNAL, SOCKET, SNAPSHOTS, RUN_LOCK, ROOT_LOCK, WORKER];
}

/// A keeper that is ending holds its locks while it takes its mounts down. That takes milliseconds; a start that
/// falls into them waits so long before it gives up.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is tried again meanwhile.
const RETRY: Duration = Duration::from_millis(10);

/// The descriptors that must not be lost while any reader may wait.
#[derive(Debug)]
pub(crate) struct Holdings {
    pub(crate) group: Group,
    pub(crate) journal: Arc<Journal>,
    pub(crate) listener: UnixListener,
    /// Where containerd connects; a socket that does not listen if it is not served.
    pub(crate) snapshots: OwnedFd,
    pub(crate) locks: DirectoryLocks,
    /// The worker that serves already listens elsewhere.
    pub(crate) is_moved: bool,
    /// Nobody can be reading: everything was made just now.
    pub(crate) is_new: bool,
}

impl Holdings {
    /// Comes by them. The worker is the one that serves already, if one does.
    pub(crate) fn come_by(
        config: &KeeperConfig,
        handed: &mut HandedDown,
    ) -> Result<(Holdings, Option<Child>), KeeperError> {
        if let (Some(group), Some(journal)) = (handed.take(names::GROUP), handed.take(names::JOURNAL)) {
            info!("takes over the descriptors of the keeper before it");
            let locks = DirectoryLocks::complete(
                (&config.run, handed.take(names::RUN_LOCK)),
                (&config.root, handed.take(names::ROOT_LOCK)),
            )?;
            let sockets = (
                handed.take(names::SOCKET).map(UnixListener::from),
                handed.take(names::SNAPSHOTS),
            );
            let mut holdings = Holdings::taken_over(config, group, journal, sockets, locks)?;
            // One that was started after the manager was last told stands in the journal alone.
            let worker = holdings.worker().or_else(|| {
                let kept = Child::from_descriptor(handed.take(names::WORKER)?).ok()?;
                holdings.are_held_by(&kept).then_some(kept)
            });
            if let Some(worker) = &worker {
                let is_theirs = |number, own: BorrowedFd<'_>| {
                    let theirs = worker.copy_descriptor(number);
                    theirs.is_ok_and(|theirs| identity(theirs.as_fd()) == identity(own))
                };
                holdings.is_moved = !is_theirs(descriptors::SOCKET, holdings.listener.as_fd())
                    || !is_theirs(descriptors::SNAPSHOTS, holdings.snapshots.as_fd());
            }
            return Ok((holdings, worker));
        }
        let listener = handed.take(names::SOCKET).map(UnixListener::from);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match DirectoryLocks::try_take(&config.run, &config.root) {
                Ok(locks) => return Ok((Holdings::anew(config, listener, locks)?, None)),
                Err(LockError::Held { directory }) => {
                    if let Some((mut holdings, worker)) = Holdings::from_worker(config)? {
                        holdings.listen_on(listener);
                        return Ok((holdings, Some(worker)));
                    }
                    if Instant::now() > deadline {
                        return Err(LockError::Held { directory }.into());
                    }
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Where a manager has made a socket of its own, clients come to that one; a worker that serves another is then of
    /// no use to them.
    fn listen_on(&mut self, listener: Option<UnixListener>) {
        let Some(listener) = listener else { return };
        if identity(listener.as_fd()) != identity(self.listener.as_fd()) {
            self.listener = listener;
            self.is_moved = true;
        }
    }

    /// The worker that the journal names, if it lives. Its process id may be somebody else's by now; a worker of ours
    /// has this very journal open.
    pub(crate) fn worker(&self) -> Option<Child> {
        let worker = Child::open(self.journal.counters().worker_pid).ok()?;
        self.are_held_by(&worker).then_some(worker)
    }

    fn are_held_by(&self, worker: &Child) -> bool {
        let theirs = worker.copy_descriptor(descriptors::JOURNAL);
        theirs.is_ok_and(|theirs| identity(theirs.as_fd()) == identity(self.journal.as_fd()))
    }

    /// The descriptors for the worker, by number; see [`descriptors`].
    pub(crate) fn for_worker(&self) -> [(BorrowedFd<'_>, i32); 6] {
        let (run, root) = self.locks.descriptors();
        [
            (self.group.as_fd(), descriptors::GROUP),
            (self.journal.as_fd(), descriptors::JOURNAL),
            (self.listener.as_fd(), descriptors::SOCKET),
            (self.snapshots.as_fd(), descriptors::SNAPSHOTS),
            (run, descriptors::RUN_LOCK),
            (root, descriptors::ROOT_LOCK),
        ]
    }

    /// The descriptors for a successor, by name.
    pub(crate) fn for_successor(&self) -> [(&'static str, BorrowedFd<'_>); 6] {
        let (run, root) = self.locks.descriptors();
        [
            (names::GROUP, self.group.as_fd()),
            (names::JOURNAL, self.journal.as_fd()),
            (names::SOCKET, self.listener.as_fd()),
            (names::SNAPSHOTS, self.snapshots.as_fd()),
            (names::RUN_LOCK, run),
            (names::ROOT_LOCK, root),
        ]
    }

    fn anew(
        config: &KeeperConfig,
        listener: Option<UnixListener>,
        locks: DirectoryLocks,
    ) -> Result<Holdings, KeeperError> {
        // First of all: from here on nobody reads a hole.
        let (group, kept) = guard::set_up(&config.root.join("layers"), &config.guarded())?;
        let rest = || -> Result<_, KeeperError> {
            let journal = Journal::create()?;
            journal.set_deaths_allowed(config.deaths_allowed);
            journal.set_unguarded(kept);
            let snapshots = snapshots(config, None)?;
            let listener = handed_or_new(listener, config, &journal)?;
            Ok((journal, listener, snapshots))
        };
        let (journal, listener, snapshots) = rest().inspect_err(|_| {
            // One that was found stays marked only while this group lives; the next start marks it again.
            if !kept {
                guard::take_down(&config.root.join("layers"), &config.guarded());
            }
        })?;
        Ok(Holdings {
            group,
            journal: Arc::new(journal),
            listener,
            snapshots,
            locks,
            is_moved: false,
            is_new: !kept,
        })
    }

    fn taken_over(
        config: &KeeperConfig,
        group: OwnedFd,
        journal: OwnedFd,
        (listener, kept): (Option<UnixListener>, Option<OwnedFd>),
        locks: DirectoryLocks,
    ) -> Result<Holdings, KeeperError> {
        let journal = Journal::open(journal)?;
        let group = Group::from_inherited(group);
        guard::restore(&group, &config.root.join("layers"), &config.guarded())?;
        let listener = handed_or_new(listener, config, &journal)?;
        let before = kept.as_ref().and_then(|kept| identity(kept.as_fd()));
        let snapshots = snapshots(config, kept)?;
        let is_moved = before != identity(snapshots.as_fd());
        Ok(Holdings {
            group,
            journal: Arc::new(journal),
            listener,
            snapshots,
            locks,
            is_moved,
            is_new: false,
        })
    }

    /// Copies of the holdings of a worker whose keeper is gone; `None` if there is no such worker.
    fn from_worker(config: &KeeperConfig) -> Result<Option<(Holdings, Child)>, KeeperError> {
        let Some(worker) = read_process(&config.worker_pid_file()) else {
            return Ok(None);
        };
        let pid = worker.pid();
        let copied = || -> io::Result<_> {
            let copies = [
                descriptors::GROUP,
                descriptors::JOURNAL,
                descriptors::SOCKET,
                descriptors::RUN_LOCK,
                descriptors::ROOT_LOCK,
            ];
            let mut copies = copies.into_iter().map(|number| worker.copy_descriptor(number));
            let mut next = || {
                copies
                    .next()
                    .unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
            };
            let copies = [next()?, next()?, next()?, next()?, next()?];
            // One of an earlier version has none, or something else by that number.
            let snapshots = worker.copy_descriptor(descriptors::SNAPSHOTS).ok();
            Ok((copies, snapshots))
        };
        // It may have ended just now.
        let Ok(([group, journal, socket, run, root], snapshots)) = copied() else {
            return Ok(None);
        };
        let is_its_journal = journal
            .try_clone()
            .is_ok_and(|copy| Journal::open(copy).is_ok_and(|journal| journal.counters().worker_pid == pid));
        if !is_its_journal {
            return Ok(None);
        }
        warn!("worker {pid} lost its keeper: this keeper takes over the worker's descriptors");
        let locks = DirectoryLocks::from_descriptors(run, root);
        let sockets = (Some(socket.into()), snapshots);
        let holdings = Holdings::taken_over(config, group, journal, sockets, locks)?;
        Ok(Some((holdings, worker)))
    }
}

/// The socket that was handed down, or one made now.
fn handed_or_new(
    handed: Option<UnixListener>,
    config: &KeeperConfig,
    journal: &Journal,
) -> Result<UnixListener, KeeperError> {
    handed.map_or_else(|| listen(&config.socket(), journal), Ok)
}

/// The socket at which containerd connects.
fn snapshots(config: &KeeperConfig, handed: Option<OwnedFd>) -> Result<OwnedFd, KeeperError> {
    containerd::socket(config.snapshots.as_deref(), handed).map_err(|source| KeeperError::File {
        action: "make a socket for",
        path: config.run.clone(),
        source,
    })
}

fn identity(descriptor: BorrowedFd<'_>) -> Option<FileIdentity> {
    FileIdentity::of(descriptor).ok()
}
