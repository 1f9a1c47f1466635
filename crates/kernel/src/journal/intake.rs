//! Reads events into the journal, and takes over those that a predecessor read.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;

use super::clock::monotonic_nanoseconds;
use super::layout::{Entry, FREE, OWED};
use super::limits::{CAPACITY, RAW_BYTES};
use super::owed::{Owed, Verdict};
use super::stage::{Stage, reached};
use super::{Journal, JournalError};
use crate::fanotify::{Denial, Event, Events, Group, MIN_EVENT_BYTES};
use crate::file::FileIdentity;

impl Journal {
    /// Takes over the events that predecessors left, and returns the one value that may read events.
    ///
    /// **First thing in a worker's `main`**, before it opens a file, starts a thread or a runtime: every owed
    /// number must be occupied while it is still free. The predecessor must have been reaped.
    ///
    /// The returned entries are owed answers; each holds its number (on `/dev/null`) until it is answered.
    ///
    /// # Errors
    /// [`JournalError::Hold`] when a number cannot be occupied, [`JournalError::InUse`] on a second call. The
    /// process must then end without reading events. [`JournalError::Serving`] when another process has adopted the
    /// journal and does not end within [`super::PREDECESSOR`].
    pub fn adopt(self: &Arc<Self>) -> Result<(Intake, Vec<Owed>), JournalError> {
        self.begin_adoption()?;
        adopt(self)
    }

    /// The keeper's last act, when no worker is left and the group is about to close: every owed event and
    /// every queued one is denied, because closing the group would release its reader with zeros.
    ///
    /// Returns how many readers were denied.
    ///
    /// # Errors
    /// The first failure; all events that could be denied have been.
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
}

/// The one value of a process that reads events into its journal.
#[derive(Debug)]
pub struct Intake {
    journal: Arc<Journal>,
    /// Where the search for a free entry goes on.
    cursor: usize,
}

impl Intake {
    /// No read delivers more events than this: leave so much room in the table and among descriptors.
    pub const MAX_EVENTS_PER_READ: usize = RAW_BYTES / MIN_EVENT_BYTES;

    /// The journal that events go to.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// False while the table could not take all events of one read; [`Intake::read`] would then refuse.
    pub fn has_room(&mut self) -> bool {
        self.find_free(Self::MAX_EVENTS_PER_READ).is_some()
    }

    /// Reads waiting events, records them, and appends them to `batch`. Does not block. Returns how many
    /// events were read; 0 when none waits.
    ///
    /// # Errors
    /// [`JournalError::Full`] before anything is read when there may be too little room, and
    /// [`JournalError::Fanotify`] when the kernel refuses.
    pub fn read(&mut self, group: &Group, batch: &mut Vec<Owed>) -> Result<usize, JournalError> {
        if !self.has_room() {
            return Err(JournalError::Full);
        }
        self.clear_raw();
        reached(Stage::Reading);
        let raw = self.raw_mut();
        let bytes = group.read(raw)?;
        if bytes == 0 {
            return Ok(0);
        }
        reached(Stage::Read);
        let count = self.record(bytes, batch)?;
        self.clear_raw();
        reached(Stage::Cleared);
        Ok(count)
    }

    fn record(&mut self, bytes: usize, batch: &mut Vec<Owed>) -> Result<usize, JournalError> {
        let mut count = 0;
        let raw = self.raw_copy();
        for event in Events::new(raw.get(..bytes).unwrap_or_default()) {
            let event = event?;
            count += 1;
            let header = &self.journal.mapping.layout().header;
            header.events.fetch_add(1, Ordering::Relaxed);
            if event.is_overflow() {
                header.overflows.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: this process has just read the event, and nobody else knows its descriptor yet.
            let Some(descriptor) = (unsafe { event.take_descriptor() }) else {
                continue;
            };
            let file = FileIdentity::of(&descriptor).ok();
            let owed = self.enter(&event, file, Some(descriptor))?;
            batch.push(owed);
            reached(Stage::Recorded);
        }
        Ok(count)
    }

    /// Writes an entry; its state comes last, so that an entry is either complete or free.
    fn enter(
        &mut self,
        event: &Event,
        file: Option<FileIdentity>,
        descriptor: Option<OwnedFd>,
    ) -> Result<Owed, JournalError> {
        let slot = self.find_free(1).ok_or(JournalError::Full)?;
        let layout = self.journal.mapping.layout();
        let entry = layout.entries.get(slot).ok_or(JournalError::Full)?;
        let serial = layout.header.serial.fetch_add(1, Ordering::Relaxed);
        entry.number.store(event.number, Ordering::Relaxed);
        entry.pid.store(event.pid, Ordering::Relaxed);
        entry.deaths.store(0, Ordering::Relaxed);
        entry.file_known.store(file.is_some().into(), Ordering::Relaxed);
        entry
            .dev
            .store(file.map_or(0, |file| file.device), Ordering::Relaxed);
        entry
            .ino
            .store(file.map_or(0, |file| file.inode), Ordering::Relaxed);
        entry.offset.store(event.offset, Ordering::Relaxed);
        entry.count.store(event.count, Ordering::Relaxed);
        entry.serial.store(serial, Ordering::Relaxed);
        entry.since.store(monotonic_nanoseconds(), Ordering::Relaxed);
        entry.state.store(OWED, Ordering::SeqCst);
        Ok(owed(&self.journal, slot, entry, descriptor))
    }

    /// A free slot such that the `needed` slots from there on (wrapping around) hold enough free ones.
    fn find_free(&mut self, needed: usize) -> Option<usize> {
        let entries = &self.journal.mapping.layout().entries;
        let mut first = None;
        let mut found = 0;
        for step in 0..CAPACITY {
            let slot = (self.cursor + step) % CAPACITY;
            if entries.get(slot)?.state.load(Ordering::Acquire) == FREE {
                first.get_or_insert(slot);
                found += 1;
                if found >= needed {
                    self.cursor = first?;
                    return first;
                }
            }
        }
        None
    }

    fn raw_mut(&mut self) -> &mut [u8] {
        // SAFETY: `Intake` exists once per journal and process (`Journal::adopt`), `&mut self` makes this the
        // only reference, and other processes do not touch the buffer while this one lives (rule 4).
        unsafe { &mut *self.journal.mapping.layout().raw.0.get() }
    }

    fn raw_copy(&mut self) -> [u8; RAW_BYTES] {
        let mut copy = [0; RAW_BYTES];
        copy.copy_from_slice(self.raw_mut());
        copy
    }

    /// Zeroes the raw buffer, after everything that was stored before and before everything that follows:
    /// a successor sees memory as this process left it, in program order.
    fn clear_raw(&mut self) {
        fence(Ordering::SeqCst);
        self.raw_mut().fill(0);
        fence(Ordering::SeqCst);
    }
}

/// See [`Journal::adopt`].
fn adopt(journal: &Arc<Journal>) -> Result<(Intake, Vec<Owed>), JournalError> {
    let mut intake = Intake {
        journal: journal.clone(),
        cursor: 0,
    };
    // Events that the predecessor read but did not record, or recorded but did not clear.
    let raw = intake.raw_copy();
    let raw: Vec<Event> = Events::new(&raw)
        .map_while(Result::ok)
        .filter(|event| event.number >= 0)
        .collect();
    let pending: Vec<(usize, RawFd)> = journal
        .entries()
        .enumerate()
        .filter(|(_, entry)| entry.state.load(Ordering::Acquire) != FREE)
        .map(|(slot, entry)| (slot, entry.number.load(Ordering::Relaxed)))
        .collect();
    let unrecorded: Vec<Event> = raw
        .into_iter()
        .filter(|event| pending.iter().all(|(_, number)| *number != event.number))
        .collect();

    let numbers = pending
        .iter()
        .map(|(_, number)| *number)
        .chain(unrecorded.iter().map(|event| event.number));
    let mut held = hold(numbers)?.into_iter();
    let mut adopted = Vec::with_capacity(pending.len() + unrecorded.len());
    for (slot, _) in &pending {
        if let (Some(entry), Some(descriptor)) = (journal.mapping.layout().entries.get(*slot), held.next()) {
            adopted.push(owed(journal, *slot, entry, descriptor));
        }
    }
    for event in &unrecorded {
        if let Some(descriptor) = held.next() {
            adopted.push(intake.enter(event, None, descriptor)?);
        }
    }
    reached(Stage::Adopted);
    intake.clear_raw();
    let header = &journal.mapping.layout().header;
    add(&header.adopted_pending, pending.len());
    add(&header.adopted_raw, unrecorded.len());
    Ok((intake, adopted))
}

/// Occupies every number with `/dev/null`, in order. `None` for a number that is open already: it belongs to
/// something that this process was started with, so it stays occupied anyway.
fn hold(numbers: impl Iterator<Item = RawFd>) -> Result<Vec<Option<OwnedFd>>, JournalError> {
    let error = |number| {
        move |errno: rustix::io::Errno| JournalError::Hold {
            number,
            source: errno.into(),
        }
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut null = None;
    let mut held = Vec::new();
    let mut numbers = numbers.peekable();
    if let Some(first) = numbers.peek() {
        null = Some(rustix::fs::open("/dev/null", flags, Mode::empty()).map_err(error(*first))?);
    }
    for number in numbers {
        if null.as_ref().is_some_and(|null| null.as_raw_fd() == number) {
            // The kernel chose an owed number for our own descriptor: it holds it. Copy from a copy henceforth.
            let copy = null.as_ref().map(copy_of).transpose().map_err(error(number))?;
            held.push(std::mem::replace(&mut null, copy));
        } else if is_open(number) {
            held.push(None);
        } else if let Some(null) = &null {
            held.push(Some(duplicate_to(null, number).map_err(error(number))?));
        }
        reached(Stage::Held);
    }
    Ok(held)
}

fn copy_of(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: F_GETFD takes any number and only tells whether it is open.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Makes `number`, which is free, a duplicate of `fd`.
fn duplicate_to(fd: &OwnedFd, number: RawFd) -> rustix::io::Result<OwnedFd> {
    // SAFETY: `number` is not open (the caller asked), so nobody owns it; dup3 either makes it ours or fails,
    // and on failure the value is forgotten rather than closed.
    let mut target = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup3(fd, &mut target, DupFlags::CLOEXEC)?;
    Ok(std::mem::ManuallyDrop::into_inner(target))
}

fn owed(journal: &Arc<Journal>, slot: usize, entry: &Entry, descriptor: Option<OwnedFd>) -> Owed {
    let known = entry.file_known.load(Ordering::Relaxed) != 0;
    Owed {
        journal: journal.clone(),
        slot,
        descriptor,
        number: entry.number.load(Ordering::Relaxed),
        serial: entry.serial.load(Ordering::Relaxed),
        file: known.then(|| FileIdentity {
            device: entry.dev.load(Ordering::Relaxed),
            inode: entry.ino.load(Ordering::Relaxed),
        }),
        pid: entry.pid.load(Ordering::Relaxed),
        offset: entry.offset.load(Ordering::Relaxed),
        count: entry.count.load(Ordering::Relaxed),
        deaths: entry.deaths.load(Ordering::Relaxed).into(),
        since: entry.since.load(Ordering::Relaxed),
    }
}

fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}
