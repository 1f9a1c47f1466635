//! The answer to one event, and what the event loop has to know about answers.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tracing::{debug, error, warn};
use xebec_kernel::fanotify::{Denial, Group};
use xebec_kernel::journal::{Owed, Verdict};

use super::Event;

/// Owed to a reader, exactly once. An answer that is dropped denies with `EIO`: a reader never waits for a task
/// that is gone.
#[derive(Debug)]
#[must_use = "a reader waits for it"]
pub struct Answer {
    owed: Option<Owed>,
    event: Event,
    suspect: bool,
    waiting: Arc<Waiting>,
}

impl Answer {
    pub(super) fn new(owed: Owed, suspect: bool, waiting: Arc<Waiting>) -> Answer {
        let event = event_of(&owed);
        Answer {
            owed: Some(owed),
            event,
            suspect,
            waiting,
        }
    }

    /// The bytes are in the file: the reader goes on.
    pub fn allow(mut self) {
        self.give(Verdict::Allow);
    }

    /// The bytes cannot be fetched: the reader gets an error. Log why before: the reader learns only the number.
    pub fn deny(mut self, denial: Denial) {
        self.give(Verdict::Deny(denial));
    }

    /// Where the file that is read lies now, below its mount at least; `None` when that cannot be told, as of an event that
    /// a dead worker had read. It may have moved when the caller looks there.
    pub fn path(&self) -> Option<PathBuf> {
        let descriptor = self.owed.as_ref()?.descriptor()?;
        std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).ok()
    }

    fn give(&mut self, verdict: Verdict) {
        let Some(owed) = self.owed.take() else { return };
        // A worker that is ending gives tasks up whose bytes could still be fetched: its successor decides, or the keeper,
        // if there is to be none.
        if self.waiting.is_stopping() && verdict != Verdict::Allow {
            debug!(event = self.event.serial, "left to a successor");
            return;
        }
        match owed.answer(&self.waiting.group, verdict) {
            Ok(answered) => debug!(event = self.event.serial, ?verdict, ?answered, "answered"),
            Err(problem) => {
                error!(event = ?self.event, "cannot answer an event, so its reader still waits: {problem}")
            }
        }
        self.waiting.answered(self.suspect);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.owed.is_some() && !self.waiting.is_stopping() {
            warn!(event = ?self.event, "the worker denies this read: the task that should answer it ended");
        }
        self.give(Verdict::Deny(Denial::Io));
    }
}

pub(super) fn event_of(owed: &Owed) -> Event {
    Event {
        serial: owed.serial,
        pid: owed.pid,
        file: owed.file,
        offset: owed.offset,
        count: owed.count,
        deaths: owed.deaths,
        since: owed.since,
    }
}

/// The state that answers share with the event loop: how many events are owed, and whether it may go on.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) group: Arc<Group>,
    owed: AtomicUsize,
    /// The loop waits for room.
    paused: AtomicBool,
    stopping: AtomicBool,
    suspects: Mutex<Suspects>,
    wake: OwnedFd,
}

/// Events that are a death away from being condemned; one at a time is filled.
#[derive(Debug, Default)]
struct Suspects {
    queue: VecDeque<Owed>,
    one_is_out: bool,
}

impl Waiting {
    pub(super) fn new(group: Arc<Group>) -> std::io::Result<Waiting> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Waiting {
            group,
            owed: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            suspects: Mutex::default(),
            wake: rustix::event::eventfd(0, flags)?,
        })
    }

    /// Events that are owed an answer now.
    pub(super) fn owed(&self) -> usize {
        self.owed.load(Ordering::SeqCst)
    }

    pub(super) fn add(&self, events: usize) {
        self.owed.fetch_add(events, Ordering::SeqCst);
    }

    /// Notes that the loop waits for room. The next answer sees it, or the loop sees the answer: both
    /// sides write first and read second, in one total order.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Readable when the loop should look again.
    pub(super) fn wake_descriptor(&self) -> &OwnedFd {
        &self.wake
    }

    /// Makes the wake descriptor unreadable again.
    pub(super) fn drain_wake(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    pub(super) fn queue_suspect(&self, owed: Owed) {
        self.suspects().queue.push_back(owed);
    }

    /// The next suspect, if none is out.
    pub(super) fn next_suspect(&self) -> Option<Owed> {
        let mut suspects = self.suspects();
        if suspects.one_is_out {
            return None;
        }
        let next = suspects.queue.pop_front();
        suspects.one_is_out = next.is_some();
        next
    }

    fn answered(&self, suspect: bool) {
        if suspect {
            self.suspects().one_is_out = false;
        }
        self.owed.fetch_sub(1, Ordering::SeqCst);
        if suspect || self.paused.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        // The counter can only overflow, and then it is readable anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock()
    }
}
