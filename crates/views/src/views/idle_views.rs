//! Idle views: views without a holder. They stay mounted for a while, since the next start of the same image then finds
//! its view built, and what was read of it in memory.
//!
//! An idle view counts as unused: an eviction, a removal of an image and the daemon's end unmount it first
//! ([`Views::take_down_unused`]). While it is mounted its layers lose no pages, so what its bypass devices rely on stays true.
//! Its former users may still read it, so its layers keep the pages that they need as long as it is mounted, and then as long as a
//! process reads it (`departed.rs`). A start whose recording the idle view does not admit unmounts it first. A later start is admitted
//! anew, and one whose answer would be another view gets another, since the name has everything that it depends on.

use std::collections::BTreeMap;
use std::fs;

use tracing::{debug, warn};
use xebec_kernel::clock::milliseconds_since_start;
use xebec_kernel::mount::{self, BackingDevice};

use super::departed::depart;
use super::own_mounts::{remove_own_mount, remove_unused_mount, unmount_view};
use super::record::ViewRecord;
use super::table::Views;
use crate::view;

/// Views that linger at a time. Each is a mount, its metadata on the disk, and what is in the page cache, which the kernel
/// takes back when it needs it.
const MOST: usize = 8;

impl ViewRecord {
    /// Whether it may be kept for another: not one of a recording, and not one whose pages were still coming and may never.
    fn may_linger(&self) -> bool {
        let is_whole = self.arriving.iter().all(|part| part.over);
        self.own_mount.is_none() && is_whole && !self.is_spoiled
    }

    /// Another service starts on it, by a recording: nothing is read ahead meanwhile.
    pub(super) fn narrow_again(&mut self) {
        let backing = self.backing.clone();
        let Some(device) = backing.as_deref().and_then(BackingDevice::named) else {
            return;
        };
        match device.set_read_ahead_kib(0) {
            Ok(()) => {
                self.narrow = backing;
                self.narrowed += 1;
            }
            Err(error) => warn!("view {}: {error}", self.name),
        }
    }
}

impl Views {
    /// Unmounts those that nobody uses and `which` names.
    pub fn take_down_unused(&self, which: impl Fn(&ViewRecord) -> bool) {
        let mut table = self.lock();
        table.retain(|_, record| record.is_held() || !which(record) || !self.take_down(record));
    }

    /// Views that nobody holds begin to linger, or have lingered for long enough.
    pub(super) fn settle(&self, table: &mut BTreeMap<String, ViewRecord>) {
        let now = milliseconds_since_start();
        let linger = u64::try_from(self.linger.as_millis()).unwrap_or(u64::MAX);
        table.retain(|_, record| {
            if record.is_held() {
                return true;
            }
            let is_new = record.unused_since_ms.is_none();
            let since = *record.unused_since_ms.get_or_insert(now);
            if linger == 0 || !record.may_linger() || now.saturating_sub(since) >= linger {
                return !self.take_down(record);
            }
            if is_new {
                record.completion = None;
                debug!("view {} of {} lingers", record.name, record.reference);
                // Without it the next worker lets it linger from when it begins.
                let _ = self.write(record);
            }
            true
        });
        let unused = table.values().filter(|record| !record.is_held());
        let mut since: Vec<u64> = unused.filter_map(|record| record.unused_since_ms).collect();
        if since.len() <= MOST {
            return;
        }
        since.sort_unstable();
        // The oldest go.
        let first = since.get(since.len() - MOST).copied().unwrap_or_default();
        table.retain(|_, record| {
            let goes = !record.is_held() && record.unused_since_ms.is_some_and(|since| since < first);
            !goes || !self.take_down(record)
        });
    }

    /// Gives the view to no other start: its files on the disk may differ from those that were written.
    pub fn spoil(&self, name: &str) {
        let mut table = self.lock();
        self.forget_built(name);
        if let Some(record) = table.get_mut(name) {
            record.is_spoiled = true;
            let _ = self.write(record);
        }
        self.settle(&mut table);
    }

    /// Forgets a view that nobody uses if somebody unmounted it.
    pub(super) fn drop_unmounted(&self, table: &mut BTreeMap<String, ViewRecord>, name: &str) {
        let is_gone = table
            .get(name)
            .is_some_and(|record| !record.is_held() && !mount::is_mounted(&record.path).unwrap_or(true));
        if is_gone {
            table.retain(|other, record| other != name || !self.take_down(record));
        }
    }

    /// Unmounts a view; false if the kernel refuses.
    pub(super) fn take_down(&self, record: &ViewRecord) -> bool {
        let name = &record.name;
        if let Err(error) = unmount_view(&self.paths, name, &record.path) {
            // Somebody may have done it.
            if mount::is_mounted(&record.path).unwrap_or(true) {
                warn!("view {name}: {error}");
                return false;
            }
        }
        self.forget_built(name);
        depart(&self.paths, record);
        let _ = fs::remove_dir(&record.path);
        if let Some(own) = &record.own_mount {
            remove_own_mount(&self.paths, own);
        }
        for part in &record.arriving {
            remove_unused_mount(&self.paths, &part.mount);
        }
        let _ = fs::remove_file(self.record_path(name));
        let _ = fs::remove_file(view::metadata(&self.paths, name));
        true
    }
}
