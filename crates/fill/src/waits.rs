//! Readers that wait, and readers that waited: how long each may wait, why, and what is remembered of it.
//!
//! A reader whose pages are there does not come here. Every other is in the table while it waits, and afterwards in a
//! ring of the latest, so that a slow start can be explained when it is over (`xebec explain`).

mod waiter;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use xebec_cache::fill::Patience;
use xebec_cache::progress::Ticket;
use xebec_cache::store::LayerKey;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::journal::waited_since;
use xebec_protocol::settings::Settings;

pub use waiter::{WaitRecord, Waiter};

use crate::events::Event;
use crate::wait_metrics::WaitMetrics;

/// Waits that are remembered. A start of a large service raises a few thousand; at half a KiB each this is 4 MiB.
const REMEMBERED: usize = 8192;
/// Least time for a try: for a reader whose time was spent while no worker was there to serve it, and for the second
/// event of a read whose first was denied.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
/// After a denial the kernel asks again for the same read: first for its next range of read-ahead, then for the page
/// alone. Events of the same process that come so soon after a denial, so near to it, are taken for that.
const SAME_READ: Duration = Duration::from_millis(500);
/// See [`SAME_READ`]; twice the largest read-ahead that views are mounted with.
const SAME_PLACE: u64 = 1 << 20;
/// Most events that one read raises: the kernel sends what it reads ahead in several requests, of 64 KiB each on Linux 6.18, and
/// then asks for the page alone, twice. A program that reads again and again is given its time anew after so many.
const EVENTS_OF_A_READ: u32 = 8;
/// Denials that are looked through for that.
const DENIALS: usize = 256;

/// A reader that was denied a moment ago.
#[derive(Debug)]
struct Denied {
    serial: u64,
    pid: i32,
    file: Option<FileIdentity>,
    range: Range<u64>,
    since: u64,
    at: Instant,
    times: u32,
}

/// A wait that is over.
#[derive(Debug)]
struct Ended {
    /// How many ended before it.
    number: u64,
    at: Instant,
    record: WaitRecord,
}

impl Ended {
    /// Whether no further event of the same read can come.
    fn is_settled(&self) -> bool {
        self.record.error.is_none() || self.at.elapsed() > SAME_READ
    }
}

/// The waits that are over, the oldest first.
#[derive(Debug, Default)]
struct Past {
    ended: VecDeque<Ended>,
    count: u64,
}

impl Past {
    fn push(&mut self, record: WaitRecord) {
        if self.ended.len() >= REMEMBERED {
            self.ended.pop_front();
        }
        self.count += 1;
        self.ended.push_back(Ended {
            number: self.count,
            at: Instant::now(),
            record,
        });
    }

    /// Takes a wait out that was not the end of its read.
    fn take(&mut self, serial: u64) -> Option<WaitRecord> {
        let place = self
            .ended
            .iter()
            .rposition(|ended| ended.record.serial == serial)?;
        self.ended.remove(place).map(|ended| ended.record)
    }
}

/// See the module.
pub struct Waits {
    fill_wait: Duration,
    slow: Duration,
    started: u64,
    metrics: WaitMetrics,
    now: Mutex<BTreeMap<u64, Arc<Waiter>>>,
    past: Mutex<Past>,
    denied: Mutex<VecDeque<Denied>>,
}

impl Waits {
    /// Nobody waits yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            fill_wait: settings.fill_wait,
            slow: settings.slow_reader,
            started: milliseconds_since_1970(),
            metrics: WaitMetrics::default(),
            now: Mutex::default(),
            past: Mutex::default(),
            denied: Mutex::default(),
        }
    }

    /// How long readers wait for bytes.
    pub fn fill_wait(&self) -> Duration {
        self.fill_wait
    }

    /// A reader that waits longer is slow.
    pub fn slow(&self) -> Duration {
        self.slow
    }

    /// When this worker began, in milliseconds since 1970.
    pub fn started_ms(&self) -> u64 {
        self.started
    }

    /// The metrics of waits.
    pub fn metrics(&self) -> &WaitMetrics {
        &self.metrics
    }

    /// A reader begins to wait for `range` of a layer. It must be ended with [`Waits::end`].
    pub fn begin(&self, event: &Event, key: Option<LayerKey>, range: Range<u64>) -> Arc<Waiter> {
        let file = event.file;
        let (since, denials, before) = self.clock(event, file, &range);
        let earlier = before.and_then(|serial| self.past.lock().take(serial));
        let waiter = Arc::new(Waiter {
            serial: event.serial,
            key,
            range,
            ticket: Ticket::default(),
            file,
            pid: event.pid,
            process: OnceLock::new(),
            since,
            began: milliseconds_since_1970().saturating_sub(waited_since(since).as_millis() as u64),
            denials,
            earlier: earlier.map(Box::new),
            named_after: AtomicU64::new(self.slow.as_millis() as u64),
        });
        self.now.lock().insert(event.serial, waiter.clone());
        waiter
    }

    /// How long this reader goes on waiting.
    pub fn patience(&self, waiter: &Waiter) -> Patience {
        Patience::lasting(self.fill_wait.saturating_sub(waiter.waited()).max(LEAST_PATIENCE))
    }

    /// A reader does not wait any longer: it gets its bytes, or this error.
    pub fn end(&self, waiter: &Waiter, error: Option<String>) {
        self.now.lock().remove(&waiter.serial);
        if error.is_some() {
            let mut denied = self.denied.lock();
            if denied.len() >= DENIALS {
                denied.pop_front();
            }
            denied.push_back(Denied {
                serial: waiter.serial,
                pid: waiter.pid,
                file: waiter.file,
                range: waiter.range.clone(),
                since: waiter.since,
                at: Instant::now(),
                times: waiter.denials + 1,
            });
        }
        let record = waiter.record(true, error);
        match &waiter.earlier {
            None => self
                .metrics
                .count(record.waited, record.error.is_none(), record.account.phases),
            // The read is counted already, as one that was refused.
            Some(earlier) => self.metrics.count_time(
                record.waited.saturating_sub(earlier.waited),
                waiter.ticket.account().phases,
            ),
        }
        self.past.lock().push(record);
    }

    /// Whether any wait ended since, of which no more may come: [`Self::ended_since`] has it.
    pub fn has_ended_since(&self, after: u64) -> bool {
        let past = self.past.lock();
        let first = past.ended.partition_point(|ended| ended.number <= after);
        past.ended.get(first).is_some_and(Ended::is_settled)
    }

    /// The waits that ended since, in the order in which they did, up to the first of which more may come; each with its number,
    /// which is above `after`. With `all`, those too of which more may come.
    pub fn ended_since(&self, after: u64, all: bool) -> Vec<(u64, WaitRecord)> {
        let past = self.past.lock();
        let first = past.ended.partition_point(|ended| ended.number <= after);
        let later = past.ended.range(first..);
        later
            .take_while(|ended| all || ended.is_settled())
            .map(|ended| (ended.number, ended.record.clone()))
            .collect()
    }

    /// The waits that are remembered, the oldest first, and then those that go on.
    pub fn records(&self) -> Vec<WaitRecord> {
        let now = self.now();
        let past = self.past.lock();
        let mut records: Vec<WaitRecord> = past.ended.iter().map(|ended| ended.record.clone()).collect();
        drop(past);
        records.extend(now.iter().map(|waiter| waiter.record(false, None)));
        records
    }

    /// Those of them that began at that time, in milliseconds since 1970, or later.
    pub fn since(&self, began: u64) -> Vec<WaitRecord> {
        let now = self.now();
        let past = self.past.lock();
        let ended = past.ended.iter().map(|ended| &ended.record);
        let mut records: Vec<WaitRecord> = ended.filter(|wait| wait.began >= began).cloned().collect();
        drop(past);
        let later = now.iter().filter(|waiter| waiter.began >= began);
        records.extend(later.map(|waiter| waiter.record(false, None)));
        records
    }

    /// The readers that wait now.
    pub fn now(&self) -> Vec<Arc<Waiter>> {
        self.waiting().values().cloned().collect()
    }

    /// The reader that waits longest.
    pub fn oldest(&self) -> Option<WaitRecord> {
        let oldest = self.waiting().values().min_by_key(|waiter| waiter.since).cloned();
        oldest.map(|waiter| waiter.record(false, None))
    }

    /// Waiters that have become slow since the last call: each once, and again whenever its wait has doubled.
    pub fn newly_slow(&self) -> Vec<WaitRecord> {
        let is_due = |waiter: &Arc<Waiter>| {
            let waited = waiter.waited().as_millis() as u64;
            let due = waiter.named_after.load(Ordering::Relaxed);
            if waited < due {
                return false;
            }
            waiter
                .named_after
                .store(waited.saturating_mul(2).max(1), Ordering::Relaxed);
            true
        };
        let due: Vec<_> = self.now().into_iter().filter(is_due).collect();
        due.iter().map(|waiter| waiter.record(false, None)).collect()
    }

    /// The table, without waiters whose task is gone: their readers were denied when it went.
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Waiter>>> {
        let mut now = self.now.lock();
        now.retain(|_, waiter| Arc::strong_count(waiter) > 1);
        now
    }

    /// Since when the read that raised this event waits, how many of its events were denied, and which was the last of them.
    fn clock(
        &self,
        event: &Event,
        file: Option<FileIdentity>,
        range: &Range<u64>,
    ) -> (u64, u32, Option<u64>) {
        let mut denied = self.denied.lock();
        while denied
            .front()
            .is_some_and(|denied| denied.at.elapsed() > SAME_READ)
        {
            denied.pop_front();
        }
        let is_same = |denied: &&Denied| {
            denied.pid == event.pid
                && denied.file == file
                && denied.range.start.abs_diff(range.start) <= SAME_PLACE
        };
        match denied.iter().rev().find(is_same) {
            Some(denied) if denied.times < EVENTS_OF_A_READ => {
                (denied.since.min(event.since), denied.times, Some(denied.serial))
            }
            _ => (event.since, 0, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits() -> Waits {
        Waits::new(&Settings {
            fill_wait: Duration::from_secs(60),
            slow_reader: Duration::ZERO,
            ..Settings::default()
        })
    }

    /// An event that was read just now, since `waited_since` counts from there.
    fn event(serial: u64, since: u64) -> Event {
        Event {
            serial,
            pid: std::process::id() as i32,
            file: Some(FileIdentity { device: 1, inode: 2 }),
            offset: 0,
            count: 4096,
            deaths: 0,
            since,
        }
    }

    fn now() -> u64 {
        waited_since(0).as_nanos() as u64
    }

    fn seconds(patience: Patience) -> u64 {
        match patience {
            Patience::Brief => 0,
            Patience::Until(deadline) => {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now());
                (left.as_secs_f64()).round() as u64
            }
        }
    }

    #[test]
    fn the_events_of_one_read_share_its_time() {
        let waits = waits();
        let start = now();
        let since = start - 60_000_000_000;
        let first = waits.begin(&event(1, since), None, 0..65536);
        assert_eq!(
            seconds(waits.patience(&first)),
            1,
            "its time is over, but it gets a try"
        );
        waits.end(&first, Some("gone".to_owned()));
        for number in 1..u64::from(EVENTS_OF_A_READ) {
            // The next ranges of read-ahead, and in the end the page alone.
            let range = match number < 4 {
                true => number * 65536..(number + 1) * 65536,
                false => 0..4096,
            };
            let further = waits.begin(&event(1 + number, now()), None, range);
            assert_eq!(seconds(waits.patience(&further)), 1, "event {number}");
            waits.end(&further, Some("gone".to_owned()));
        }
        let fresh = waits.begin(&event(100, now()), None, 0..4096);
        assert_eq!(
            seconds(waits.patience(&fresh)),
            60,
            "a program that reads again waits again"
        );
        let other = waits.begin(&event(101, now()), None, 8 << 20..9 << 20);
        assert_eq!(seconds(waits.patience(&other)), 60);
        assert_eq!(waits.oldest().map(|waiter| waiter.serial), Some(100));
        let records = waits.records();
        let refused: Vec<_> = records.iter().filter(|wait| wait.error.is_some()).collect();
        assert_eq!(
            refused.len(),
            1,
            "the kernel asked {EVENTS_OF_A_READ} times for one read: {records:?}"
        );
        assert_eq!(records.len(), 3, "{records:?}");
        assert!(refused[0].waited >= Duration::from_secs(60));
        assert_eq!(refused[0].range, 0..4096, "the page that was read");
    }

    #[test]
    fn a_refused_read_is_over_when_the_kernel_cannot_ask_again() {
        let waits = waits();
        let served = waits.begin(&event(1, now()), None, 0..4096);
        waits.end(&served, None);
        let refused = waits.begin(&event(2, now()), None, 8 << 20..9 << 20);
        waits.end(&refused, Some("gone".to_owned()));
        let ended = |after, all| {
            let ended = waits.ended_since(after, all).into_iter();
            ended
                .map(|(number, wait)| (number, wait.serial))
                .collect::<Vec<_>>()
        };
        assert_eq!(ended(0, false), [(1, 1)]);
        assert_eq!(ended(0, true), [(1, 1), (2, 2)]);
        assert!(
            waits.has_ended_since(0) && !waits.has_ended_since(1),
            "the kernel may ask again"
        );
        let again = waits.begin(&event(3, now()), None, 8 << 20..9 << 20);
        assert_eq!(ended(0, true), [(1, 1)], "it goes on");
        assert!(!waits.has_ended_since(1), "it goes on");
        waits.end(&again, Some("gone".to_owned()));
        std::thread::sleep(SAME_READ + Duration::from_millis(50));
        assert_eq!(ended(1, false), [(3, 3)]);
        assert!(waits.has_ended_since(1) && !waits.has_ended_since(3));
        assert!(ended(3, true).is_empty());
    }

    #[test]
    fn a_slow_reader_is_named_once_and_again_when_its_wait_has_doubled() {
        let waits = waits();
        let waiter = waits.begin(&event(1, now() - 1_000_000_000), None, 0..4096);
        let named = waits.newly_slow();
        assert_eq!(named.len(), 1);
        assert!(!named[0].process.comm.is_empty());
        assert!(waits.newly_slow().is_empty());
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(waits.newly_slow().len(), 1);
        waits.end(&waiter, None);
        assert!(waits.newly_slow().is_empty());
        drop(waits.begin(&event(2, now() - 1_000_000_000), None, 0..4096));
        assert!(waits.oldest().is_none(), "the task that was to serve it is gone");
    }
}
