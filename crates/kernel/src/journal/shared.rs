//! The parts of the journal that the keeper and its worker both use.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::clock::waited_since;
use super::error::JournalError;
use super::layout::{Entry, FILLING, FREE, Mapping, OWED};

/// A worker's death is blamed on the events that it was filling; so many are allowed before they are denied.
pub const DEFAULT_DEATHS_ALLOWED: u32 = 3;

/// How long a worker that adopts waits for its predecessor to end.
pub const PREDECESSOR: std::time::Duration = std::time::Duration::from_secs(2);

/// A worker's report before it ended: only its parent can see its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastWord {
    /// Nothing: it died.
    None,
    /// Nothing needs events any more; the daemon may end.
    Finished,
    /// It made room for a successor, and nobody is to blame.
    HandedOver,
}

/// The program that starts the keeper, and starts it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// Nobody else: a worker that loses its keeper starts another at once.
    Own,
    /// A service manager, which restarts the keeper and keeps the descriptors meanwhile.
    Managed,
    /// The keeper left on purpose, because the service was stopped: the worker goes on alone.
    Left,
}

/// Counts since the journal was created; see `xebec daemon status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keepers so far; more than one after upgrades, and after keepers that died.
    pub keepers: u32,
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
    /// How long the oldest of them has waited.
    pub oldest: Option<std::time::Duration>,
}

/// The journal, shared between the keeper and its worker.
#[derive(Debug)]
pub struct Journal {
    pub(super) mapping: Mapping,
    adopted: std::sync::atomic::AtomicBool,
}

impl Journal {
    /// Creates an empty journal. Its descriptor is for workers to inherit.
    ///
    /// # Errors
    /// [`JournalError::Create`]: no memory, or more locked memory than allowed.
    pub fn create() -> Result<Journal, JournalError> {
        let journal = Journal {
            mapping: Mapping::create()?,
            adopted: false.into(),
        };
        journal.set_deaths_allowed(DEFAULT_DEATHS_ALLOWED);
        Ok(journal)
    }

    /// Maps the journal behind an inherited descriptor, and keeps the descriptor open under its number.
    ///
    /// # Errors
    /// [`JournalError::Open`], [`JournalError::Foreign`].
    pub fn open(fd: OwnedFd) -> Result<Journal, JournalError> {
        Ok(Journal {
            mapping: Mapping::open(fd)?,
            adopted: false.into(),
        })
    }

    /// Makes this process the one that owes answers.
    pub(super) fn begin_adoption(&self) -> Result<(), JournalError> {
        if self.adopted.swap(true, Ordering::SeqCst) {
            return Err(JournalError::InUse);
        }
        self.lock()?;
        let header = &self.mapping.layout().header;
        header
            .worker_pid
            .store(std::process::id().cast_signed(), Ordering::SeqCst);
        Ok(())
    }

    /// Takes the lock that goes with owing answers, on an open file of this process alone. It is never given back:
    /// the kernel does that after it has closed the last of the process's descriptors. Its number stays occupied,
    /// so it does no harm if that is an owed one.
    fn lock(&self) -> Result<(), JournalError> {
        let error = |source| JournalError::Lock { source };
        let own = std::fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", self.mapping.descriptor().as_raw_fd()))
            .map_err(error)?;
        let deadline = std::time::Instant::now() + PREDECESSOR;
        loop {
            match rustix::fs::flock(&own, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let pid = self.counters().worker_pid;
                    return Err(JournalError::Serving { pid });
                }
                Err(errno) => return Err(error(errno.into())),
            }
        }
        std::mem::forget(own);
        Ok(())
    }

    /// The keeper's part of rule 5, after it has reaped a worker: entries that were being filled get one more
    /// death, if the worker died and they may be to `blame` for it. Returns how many there were.
    ///
    /// Nothing is recorded of a worker that never served, while another one does.
    pub fn record_end(&self, worker_pid: i32, blame: bool) -> usize {
        let header = &self.mapping.layout().header;
        let serving = header.worker_pid.load(Ordering::SeqCst);
        if serving != worker_pid && serving != 0 {
            return 0;
        }
        let died = self.last_word() == LastWord::None;
        header.deaths.fetch_add(died.into(), Ordering::Relaxed);
        let blame = u16::from(died && blame);
        header.worker_pid.store(0, Ordering::Relaxed);
        let mut filling = 0;
        for entry in self.entries() {
            if entry.state.load(Ordering::Acquire) == FILLING {
                entry.deaths.fetch_add(blame, Ordering::Relaxed);
                entry.state.store(OWED, Ordering::Release);
                filling += 1;
            }
        }
        filling
    }

    /// Before a worker is started: its predecessor's report does not count for it.
    pub fn prepare_start(&self) {
        self.set_last_word(LastWord::None);
    }

    /// Counts a start and remembers who serves.
    pub fn record_start(&self, worker_pid: i32) {
        let header = &self.mapping.layout().header;
        header.starts.fetch_add(1, Ordering::Relaxed);
        // It may have said so itself, and so may one that a dead keeper had just started.
        let _ = header
            .worker_pid
            .compare_exchange(0, worker_pid, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Records the keeper's process, and the program that starts keepers.
    pub fn record_keeper(&self, pid: i32, custody: Custody) {
        let header = &self.mapping.layout().header;
        header.keepers.fetch_add(1, Ordering::Relaxed);
        header.keeper_pid.store(pid, Ordering::Relaxed);
        self.set_custody(custody);
    }

    /// The program that starts the keeper, and starts it again.
    pub fn custody(&self) -> Custody {
        match self.mapping.layout().header.custody.load(Ordering::Relaxed) {
            1 => Custody::Managed,
            2 => Custody::Left,
            _ => Custody::Own,
        }
    }

    /// Changes who sees to it that there is a keeper.
    pub fn set_custody(&self, custody: Custody) {
        let header = &self.mapping.layout().header;
        header.custody.store(custody as u32, Ordering::Relaxed);
    }

    /// The worker's report before it ended.
    pub fn last_word(&self) -> LastWord {
        match self.mapping.layout().header.last_word.load(Ordering::Relaxed) {
            1 => LastWord::Finished,
            2 => LastWord::HandedOver,
            _ => LastWord::None,
        }
    }

    /// The last thing that a worker does which ends in order.
    pub fn set_last_word(&self, word: LastWord) {
        let header = &self.mapping.layout().header;
        header.last_word.store(word as u32, Ordering::SeqCst);
    }

    /// Inode of the path of the socket that a keeper made; 0 if the socket came from elsewhere.
    pub fn own_socket(&self) -> u64 {
        self.mapping.layout().header.own_socket.load(Ordering::Relaxed)
    }

    /// Remembers the path of a socket that this keeper made.
    pub fn set_own_socket(&self, inode: u64) {
        let header = &self.mapping.layout().header;
        header.own_socket.store(inode, Ordering::Relaxed);
    }

    /// Whether there was a time in which nobody held the group, and nobody has looked yet for pages that were read then.
    pub fn was_unguarded(&self) -> bool {
        self.mapping.layout().header.unguarded.load(Ordering::Relaxed) != 0
    }

    /// Notes such a time, or that its harm is known.
    pub fn set_unguarded(&self, unguarded: bool) {
        let header = &self.mapping.layout().header;
        header.unguarded.store(unguarded.into(), Ordering::Relaxed);
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
        let (mut owed, mut oldest) = (0u64, None);
        for entry in self
            .entries()
            .filter(|entry| entry.state.load(Ordering::Relaxed) != FREE)
        {
            owed += 1;
            let waited = waited_since(entry.since.load(Ordering::Relaxed));
            oldest = oldest.max(Some(waited));
        }
        Counters {
            keepers: header.keepers.load(Ordering::Relaxed),
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
            owed,
            oldest,
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.mapping.layout().entries.iter()
    }
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mapping.descriptor()
    }
}
