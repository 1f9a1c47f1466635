//! The journal: every event that is owed an answer is on record, from the instant it is read.
//!
//! A reader that waits for bytes is released by an answer that names the *number* of the descriptor which came
//! with its event. If the worker that read the event dies, its successor can still answer, provided that it
//! knows the number, and provided that nobody else's event has the same number. Hence the rules (numbers as in
//! the design's "Keeper"), each held by the code named here:
//!
//! 1. Events are `read(2)` straight into the journal's raw buffer, which is zeroed before each read: the
//!    kernel's own copy is the record. Then each goes into the pending table with its file's identity, and only
//!    then is the raw buffer cleared ([`Intake::read`]).
//! 2. An answered event: answer, free the entry, close the descriptor, in this order ([`Owed::answer`]). The
//!    number of an owed event is never reused: a successor first occupies every owed number in its descriptor
//!    table, before it opens anything ([`Journal::adopt`]).
//! 3. An entry whose file was not yet known says so ([`Owed::file`] is `None`): its range must be filled in
//!    every file it could be.
//! 4. One descriptor table owes answers at a time: the old worker must be reaped before a successor adopts.
//!    This is the keeper's part.
//! 5. An entry that was being filled when a worker died remembers it ([`Journal::record_death`],
//!    [`Owed::is_condemned`]).
//!
//! Proven by killing workers at every step under load: `crates/host/tests/keeper`.

mod intake;
mod layout;
mod owed;
mod stage;

pub use intake::Intake;
pub use layout::{CAPACITY, RAW_BYTES};
pub use owed::{FileId, Owed, Verdict};
pub use stage::{Stage, observe_stages};

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::fanotify::{Denial, FanotifyError, Group};
use layout::{Entry, FILLING, FREE, Mapping, OWED};

/// A worker's death is blamed on the events that it was filling; so many are allowed before they are denied.
pub const DEFAULT_DEATHS_ALLOWED: u32 = 3;

/// What went wrong with the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The shared memory could not be made.
    #[error("cannot create the journal of owed events: {source}")]
    Create {
        /// What the kernel said.
        source: io::Error,
    },
    /// The shared memory could not be mapped.
    #[error("cannot map the journal of owed events: {source}")]
    Open {
        /// What the kernel said.
        source: io::Error,
    },
    /// The descriptor is not a journal of this version.
    #[error("the inherited descriptor is no journal for this version of Xebec: {problem}")]
    Foreign {
        /// What does not fit.
        problem: &'static str,
    },
    /// A number that is owed could not be occupied; reading events would be unsound.
    #[error("cannot occupy descriptor {number}, which an owed event is named by: {source}")]
    Hold {
        /// The number.
        number: RawFd,
        /// What the kernel said; `EBADF` means that the limit of open files is lower than the predecessor's.
        source: io::Error,
    },
    /// The journal was adopted twice in one process.
    #[error("the journal is already in use in this process")]
    InUse,
    /// The pending table has no room left.
    #[error("the table of owed events is full ({CAPACITY} entries)")]
    Full,
    /// The kernel delivered something that is no event; its reader waits for ever.
    #[error("the kernel delivered an event that this version of Xebec cannot read: {0}")]
    Malformed(#[from] crate::fanotify::MalformedEvent),
    /// Reading or answering failed.
    #[error(transparent)]
    Fanotify(#[from] FanotifyError),
}

/// Counts since the journal was created; see `xebec daemon status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Workers that were started.
    pub starts: u32,
    /// Workers that died.
    pub deaths: u32,
    /// Process id of the keeper; 0 when there is none.
    pub keeper_pid: i32,
    /// Process id of the worker; 0 while there is none.
    pub worker_pid: i32,
    /// Events read.
    pub events: u64,
    /// Events answered with "go on".
    pub allowed: u64,
    /// Events answered with an error.
    pub denied: u64,
    /// Answers to events that a predecessor had already answered.
    pub not_owed: u64,
    /// Entries that a successor took over from the pending table.
    pub adopted_pending: u64,
    /// Entries that a successor found only in the raw buffer.
    pub adopted_raw: u64,
    /// Queue overflows that the kernel reported: readers may have seen zeros. Never seen, always an alarm.
    pub overflows: u64,
    /// Entries that are owed an answer now.
    pub owed: u64,
}

/// The journal, shared between the keeper and its worker.
#[derive(Debug)]
pub struct Journal {
    mapping: Mapping,
    adopted: std::sync::atomic::AtomicBool,
}

impl Journal {
    /// Creates an empty journal. The descriptor is for the worker to inherit.
    ///
    /// # Errors
    /// [`JournalError::Create`]: no memory, or more locked memory than allowed.
    pub fn create() -> Result<(Journal, OwnedFd), JournalError> {
        let (mapping, fd) = Mapping::create()?;
        let journal = Journal {
            mapping,
            adopted: false.into(),
        };
        journal.set_deaths_allowed(DEFAULT_DEATHS_ALLOWED);
        Ok((journal, fd))
    }

    /// Maps the journal behind an inherited descriptor.
    ///
    /// # Errors
    /// [`JournalError::Open`], [`JournalError::Foreign`].
    pub fn open(fd: impl AsFd) -> Result<Journal, JournalError> {
        Ok(Journal {
            mapping: Mapping::open(&fd)?,
            adopted: false.into(),
        })
    }

    /// Takes over what predecessors left, and returns the one value that may read events.
    ///
    /// **First thing in a worker's `main`**, before it opens a file, starts a thread or a runtime: every owed
    /// number must be occupied while it is still free. The predecessor must have been reaped.
    ///
    /// The returned entries are owed answers; each holds its number (on `/dev/null`) until it is answered.
    ///
    /// # Errors
    /// [`JournalError::Hold`] when a number cannot be occupied, [`JournalError::InUse`] on a second call. The
    /// process must then end without reading events.
    pub fn adopt(self: &Arc<Self>) -> Result<(Intake, Vec<Owed>), JournalError> {
        if self.adopted.swap(true, Ordering::SeqCst) {
            return Err(JournalError::InUse);
        }
        intake::adopt(self)
    }

    /// The keeper's part of rule 5, after it has reaped a worker: entries that were being filled get one more
    /// death. Returns how many there were.
    pub fn record_death(&self) -> usize {
        let header = &self.mapping.layout().header;
        header.deaths.fetch_add(1, Ordering::Relaxed);
        header.worker_pid.store(0, Ordering::Relaxed);
        let mut filling = 0;
        for entry in self.entries() {
            if entry.state.load(Ordering::Acquire) == FILLING {
                entry.deaths.fetch_add(1, Ordering::Relaxed);
                entry.state.store(OWED, Ordering::Release);
                filling += 1;
            }
        }
        filling
    }

    /// Counts a start and remembers who serves.
    pub fn record_start(&self, worker_pid: i32) {
        let header = &self.mapping.layout().header;
        header.starts.fetch_add(1, Ordering::Relaxed);
        header.worker_pid.store(worker_pid, Ordering::Relaxed);
    }

    /// Remembers who keeps.
    pub fn set_keeper_pid(&self, pid: i32) {
        self.mapping
            .layout()
            .header
            .keeper_pid
            .store(pid, Ordering::Relaxed);
    }

    /// How many workers an event may kill before it is denied; at least 1.
    pub fn set_deaths_allowed(&self, deaths: u32) {
        self.mapping
            .layout()
            .header
            .deaths_allowed
            .store(deaths.max(1), Ordering::Relaxed);
    }

    /// How many workers an event may kill before it is denied.
    pub fn deaths_allowed(&self) -> u32 {
        self.mapping
            .layout()
            .header
            .deaths_allowed
            .load(Ordering::Relaxed)
            .max(1)
    }

    /// Leaves word for workers to come that the daemon is to stop.
    pub fn request_stop(&self) {
        self.mapping.layout().header.stopping.store(1, Ordering::Relaxed);
    }

    /// True when the daemon is to stop.
    pub fn stop_requested(&self) -> bool {
        self.mapping.layout().header.stopping.load(Ordering::Relaxed) != 0
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        let header = &self.mapping.layout().header;
        let owed = self
            .entries()
            .filter(|entry| entry.state.load(Ordering::Relaxed) != FREE)
            .count();
        Counters {
            starts: header.starts.load(Ordering::Relaxed),
            deaths: header.deaths.load(Ordering::Relaxed),
            keeper_pid: header.keeper_pid.load(Ordering::Relaxed),
            worker_pid: header.worker_pid.load(Ordering::Relaxed),
            events: header.events.load(Ordering::Relaxed),
            allowed: header.allowed.load(Ordering::Relaxed),
            denied: header.denied.load(Ordering::Relaxed),
            not_owed: header.not_owed.load(Ordering::Relaxed),
            adopted_pending: header.adopted_pending.load(Ordering::Relaxed),
            adopted_raw: header.adopted_raw.load(Ordering::Relaxed),
            overflows: header.overflows.load(Ordering::Relaxed),
            owed: owed as u64,
        }
    }

    /// The keeper's last act, when no worker is left and the group is about to close: every owed event and
    /// every queued one is denied, because closing the group would release its reader with zeros.
    ///
    /// Returns how many readers were denied.
    ///
    /// # Errors
    /// The first failure; what could be denied has been.
    pub fn deny_everything(self: &Arc<Self>, group: &Group, denial: Denial) -> Result<usize, JournalError> {
        let (mut intake, adopted) = self.adopt()?;
        let mut denied = 0;
        let mut result = Ok(());
        let mut batch = adopted;
        loop {
            for owed in batch.drain(..) {
                match owed.answer(group, Verdict::Deny(denial)) {
                    Ok(_) => denied += 1,
                    Err(error) => result = result.and(Err(error)),
                }
            }
            if intake.read(group, &mut batch)? == 0 {
                return result.map(|()| denied);
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.mapping.layout().entries.iter()
    }
}
