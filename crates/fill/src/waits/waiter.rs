//! A reader that waits, and the record of its wait.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use xebec_cache::progress::{Account, Ticket};
use xebec_cache::store::LayerKey;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::journal::waited_since;

use crate::reading_process::Process;

/// A reader that waits.
#[derive(Debug)]
pub struct Waiter {
    /// The event's number.
    pub serial: u64,
    /// The layer whose data it reads; `None` when a worker died before it knew.
    pub key: Option<LayerKey>,
    /// The bytes of the layer's data space.
    pub range: Range<u64>,
    /// The fetches that it waits for.
    pub ticket: Ticket,
    pub(super) file: Option<FileIdentity>,
    pub(super) pid: i32,
    pub(super) process: OnceLock<Process>,
    pub(super) since: u64,
    pub(super) began: u64,
    pub(super) denials: u32,
    /// The record of the earlier events of the same read, which were denied.
    pub(super) earlier: Option<Box<WaitRecord>>,
    /// It is named in the log after so many milliseconds.
    pub(super) named_after: AtomicU64,
}

impl Waiter {
    /// How long it has waited, dead workers included.
    pub fn waited(&self) -> Duration {
        waited_since(self.since)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        self.process.get_or_init(|| Process::look_at(self.pid))
    }
}

/// A wait that is over, or one that goes on.
#[derive(Clone, Debug)]
pub struct WaitRecord {
    /// The event's number.
    pub serial: u64,
    /// When it began, in milliseconds since 1970.
    pub began: u64,
    /// The process that waited.
    pub process: Process,
    /// For which layer's data.
    pub key: Option<LayerKey>,
    /// For which bytes of it.
    pub range: Range<u64>,
    /// How long in all.
    pub waited: Duration,
    /// The time that it waited, by phase.
    pub account: Account,
    /// Whether it is over.
    pub ended: bool,
    /// Why the reader was refused.
    pub error: Option<String>,
}

impl Waiter {
    /// One record for all events of a read: it began with the first of them, and ends as the last.
    pub(super) fn record(&self, ended: bool, error: Option<String>) -> WaitRecord {
        let mut account = self.ticket.account();
        let mut began = self.began;
        if let Some(earlier) = &self.earlier {
            account.put_before(&earlier.account);
            began = began.min(earlier.began);
        }
        WaitRecord {
            serial: self.serial,
            began,
            process: self.process().clone(),
            key: self.key,
            range: self.range.clone(),
            waited: self.waited(),
            account,
            ended,
            error,
        }
    }
}
