//! The descriptors that a worker inherits from its keeper, and taking them over first of all.

use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use tracing::warn;
use xebec_keeper::descriptors;
use xebec_kernel::fanotify::Group;
use xebec_kernel::journal::{Intake, Journal, Owed};
use xebec_kernel::{memory, process};

use super::EventError;

/// If memory runs out the kernel takes the worker before the keeper, for it can be replaced; but after
/// ordinary processes, for their readers wait on it.
const WORKER_OOM_SCORE: i32 = -800;

/// Everything that the keeper handed down.
#[derive(Debug)]
pub struct Inherited {
    /// The group, for marks.
    pub group: Arc<Group>,
    /// The journal, for counters and the request to stop.
    pub journal: Arc<Journal>,
    /// Where clients connect.
    pub listener: UnixListener,
    /// Where containerd connects, if it listens.
    pub snapshots: UnixListener,
    /// The events for [`super::EventLoop::start`].
    pub left: LeftEvents,
    locks: [OwnedFd; 2],
}

/// Events that predecessors left, and the right to read new ones.
#[derive(Debug)]
pub struct LeftEvents {
    pub(super) group: Arc<Group>,
    pub(super) intake: Intake,
    pub(super) owed: Vec<Owed>,
}

/// Takes over what the keeper handed down, and occupies the number of every owed event.
///
/// **The first thing in a worker's `main`**: before it opens any file, starts a thread or a runtime.
///
/// # Errors
/// [`EventError`]. The process must then end, with a status other than 0, without doing anything else.
pub fn take_inherited() -> Result<Inherited, EventError> {
    // A number that is owed may be above the soft limit that this process started with.
    if let Err(error) = process::raise_open_file_limit() {
        warn!("cannot raise the limit of open files: {error}");
    }
    let group = Arc::new(Group::from_inherited(take(
        "the fanotify group",
        descriptors::GROUP,
    )?));
    let journal = Arc::new(Journal::open(take("the journal", descriptors::JOURNAL)?)?);
    let listener = UnixListener::from(take("the listening socket", descriptors::SOCKET)?);
    let snapshots = UnixListener::from(take("containerd's socket", descriptors::SNAPSHOTS)?);
    let locks = [
        take("the run lock", descriptors::RUN_LOCK)?,
        take("the root lock", descriptors::ROOT_LOCK)?,
    ];
    let (intake, owed) = journal.adopt()?;

    memory::keep_freed();
    if let Err(error) = memory::lock_all() {
        warn!("cannot lock memory: {error}; readers may wait for the daemon to be paged in");
    }
    if let Err(error) = memory::set_oom_score_adj(WORKER_OOM_SCORE) {
        warn!("cannot protect the worker from being killed when memory runs out: {error}");
    }
    let left = LeftEvents {
        group: group.clone(),
        intake,
        owed,
    };
    Ok(Inherited {
        group,
        journal,
        listener,
        snapshots,
        left,
        locks,
    })
}

impl Inherited {
    /// Splits it, the listeners for clients of ours and for containerd; the locks are then held until the process ends.
    pub fn into_parts(self) -> (Arc<Group>, Arc<Journal>, [UnixListener; 2], LeftEvents) {
        for lock in self.locks {
            std::mem::forget(lock);
        }
        let listeners = [self.listener, self.snapshots];
        (self.group, self.journal, listeners, self.left)
    }
}

fn take(what: &'static str, number: RawFd) -> Result<OwnedFd, EventError> {
    process::take_inherited(number).map_err(|source| EventError::NotInherited { what, number, source })
}
