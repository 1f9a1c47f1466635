//! One owed event: the pages that it asks for, and the one way to answer it.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clock::waited_since;
use super::layout::{Entry, FILLING, FREE};
use super::stage::{Stage, reached};
use super::{Journal, JournalError};
use crate::fanotify::{Answered, Denial, Group};
use crate::file::FileIdentity;

/// The answer to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The bytes are there: the reader goes on.
    Allow,
    /// The bytes cannot be fetched: the reader gets an error.
    Deny(Denial),
}

/// An event that is owed an answer. Dropping it without an answer leaves it in the journal, for a successor.
#[derive(Debug)]
pub struct Owed {
    pub(super) journal: Arc<Journal>,
    pub(super) slot: usize,
    /// Keeps the number occupied until the entry is free. `None` when the number belongs to a descriptor that
    /// this process has for other reasons, and keeps.
    pub(super) descriptor: Option<OwnedFd>,
    pub(super) number: RawFd,
    /// Number of the event, counted from the journal's creation; it tells events apart in logs.
    pub serial: u64,
    /// The file, or `None` when the predecessor died before it looked.
    pub file: Option<FileIdentity>,
    /// The process that reads.
    pub pid: i32,
    /// First byte wanted.
    pub offset: u64,
    /// Number of bytes wanted.
    pub count: u64,
    /// Workers that died while they filled it.
    pub deaths: u32,
    /// When it was first on record, in nanoseconds of `CLOCK_MONOTONIC`: workers that died are included.
    pub since: u64,
}

impl Owed {
    /// The number of the event's descriptor, by which the kernel knows the event.
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// The event's own descriptor (reading by it raises no event). For an adopted event this is `/dev/null`.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.descriptor.as_ref()
    }

    /// How long its reader has waited.
    pub fn waited(&self) -> Duration {
        waited_since(self.since)
    }

    /// True when as many workers died filling this as are allowed: deny it and say so.
    pub fn is_condemned(&self) -> bool {
        self.deaths >= self.journal.deaths_allowed()
    }

    /// True when one more death would condemn it: nothing else that is suspect should be filled meanwhile, so
    /// that the next death points at one event.
    pub fn is_suspect(&self) -> bool {
        self.deaths.saturating_add(1) >= self.journal.deaths_allowed() && self.deaths > 0
    }

    /// Notes that work on it begins: if the worker dies now, the event is among those blamed.
    pub fn begin(&self) {
        if let Some(entry) = self.entry() {
            entry.state.store(FILLING, Ordering::Release);
        }
    }

    /// Answers, frees the entry, and closes the descriptor, in this order (rule 2).
    ///
    /// # Errors
    /// [`JournalError::Fanotify`] when the kernel does not take the answer. The entry is then kept, and so is
    /// its number: the reader still waits, and a successor will try again.
    pub fn answer(mut self, group: &Group, verdict: Verdict) -> Result<Answered, JournalError> {
        reached(Stage::Answering);
        let header = &self.journal.mapping.layout().header;
        let answered = match verdict {
            Verdict::Allow => group.allow(self.number),
            Verdict::Deny(denial) => group.deny(self.number, denial),
        }?;
        reached(Stage::Answered);
        let counter = match (answered, verdict) {
            (Answered::NotOwed, _) => &header.not_owed,
            (Answered::Delivered, Verdict::Allow) => &header.allowed,
            (Answered::Delivered, Verdict::Deny(_)) => &header.denied,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.entry() {
            entry.state.store(FREE, Ordering::SeqCst);
        }
        reached(Stage::Freed);
        drop(self.descriptor.take());
        Ok(answered)
    }

    fn entry(&self) -> Option<&Entry> {
        self.journal.mapping.layout().entries.get(self.slot)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        // Not answered: the number stays occupied for as long as the entry says that it is owed.
        if let Some(descriptor) = self.descriptor.take() {
            let _ = descriptor.into_raw_fd();
        }
    }
}
