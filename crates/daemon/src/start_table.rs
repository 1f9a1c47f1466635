//! Starts that are watched, those that are over, and services of which a profile was kept.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::debug;
use xebec_cache::store::LayerKey;
use xebec_fill::access_log::Watch;
use xebec_format::digest::Digest;
use xebec_protocol::start_report::StartReport;
use xebec_protocol::wire::{Holder, Loaded};
use xebec_views::view_tree::ViewTree;

use crate::loaded_images::{Pending, STILL_COMING};
use crate::start_counts::Counts;
use crate::start_facts::Facts;

/// Starts that are watched at a time. Each may take 1.5 MiB for the record of its reads.
const MAX_ACTIVE: usize = 32;
/// Inodes of the views of all active starts: some 150 bytes each. A start of a view beyond that has no file names, and it is not
/// known which pages of its recording it touched.
const MAX_INODES: usize = 500_000;
/// Starts that are remembered.
pub(crate) const REMEMBERED: usize = 64;
/// How often a profile of one service is kept if all starts learn. Profiles of a service are alike, and for an exact one
/// reads are not ahead.
const LEARN_AGAIN: Duration = Duration::from_secs(600);
/// Services whose last profile is remembered for that.
const MAX_LEARNED: usize = 1024;

/// The starts that are over.
#[derive(Default)]
struct PastStarts {
    /// The latest of them.
    reports: VecDeque<StartReport>,
    /// How many there were in all.
    count: u64,
}

/// The table of starts.
#[derive(Default)]
pub(crate) struct StartTable {
    pub(crate) active: Mutex<Vec<Arc<ActiveStart>>>,
    past: Mutex<PastStarts>,
    pub(crate) learned: Mutex<HashMap<Digest, Instant>>,
    pub(crate) counts: Counts,
}

impl StartTable {
    pub(crate) fn of(&self, holder: &Holder) -> Vec<Arc<ActiveStart>> {
        let active = self.active.lock();
        active
            .iter()
            .filter(|start| start.holder == *holder)
            .cloned()
            .collect()
    }

    /// Another holder uses the view from now on.
    pub(crate) fn note_shared(&self, view: &str) {
        let active = self.active.lock();
        for start in active.iter().filter(|start| start.view == view) {
            start.is_shared.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, start: Arc<ActiveStart>) -> bool {
        let mut active = self.active.lock();
        if active.len() >= MAX_ACTIVE {
            debug!("{} starts are watched already", active.len());
            return false;
        }
        // Those that keep their trees.
        let with_tree = active.iter().filter(|start| start.tree.lock().is_some());
        let inodes: usize = with_tree.map(|start| start.inodes).sum();
        if inodes + start.inodes > MAX_INODES {
            *start.tree.lock() = None;
        }
        active.push(start);
        true
    }

    pub(crate) fn remember(&self, report: StartReport) {
        self.counts.count(&report);
        let mut past = self.past.lock();
        if past.reports.len() >= REMEMBERED {
            past.reports.pop_front();
        }
        past.reports.push_back(report);
        past.count += 1;
    }

    /// The starts that are remembered, the oldest first.
    pub(crate) fn past(&self) -> Vec<StartReport> {
        self.past.lock().reports.iter().cloned().collect()
    }

    /// The number of starts that ended.
    pub(crate) fn count(&self) -> u64 {
        self.past.lock().count
    }

    /// Those of them that ended after so many others; then that is how many ended.
    pub(crate) fn ended_since(&self, after: &mut u64) -> Vec<StartReport> {
        let past = self.past.lock();
        let new = usize::try_from(past.count.saturating_sub(*after)).unwrap_or(usize::MAX);
        *after = past.count;
        let first = past.reports.len().saturating_sub(new);
        past.reports.range(first..).cloned().collect()
    }

    /// Whether a profile of the service is due, which it then is not for a while.
    pub(crate) fn is_due(&self, manifest: Digest, argv: &[String]) -> bool {
        let mut name = manifest.as_bytes().to_vec();
        for word in argv {
            name.extend_from_slice(word.as_bytes());
            name.push(0);
        }
        let (name, now) = (Digest::of(&name), Instant::now());
        let mut learned = self.learned.lock();
        learned.retain(|_, at| now.duration_since(*at) < LEARN_AGAIN);
        if learned.contains_key(&name) || learned.len() >= MAX_LEARNED {
            return false;
        }
        learned.insert(name, now);
        true
    }
}

/// The facts about a start before its view is mounted.
pub(crate) struct StartPlan {
    pub(crate) argv: Vec<String>,
    /// Whether a profile is to be kept.
    pub(crate) learns: bool,
    pub(crate) has_probe: bool,
    /// The image's layers.
    pub(crate) layers: Vec<LayerKey>,
}

/// A start that is watched.
pub(crate) struct ActiveStart {
    pub(crate) view: String,
    pub(crate) path: PathBuf,
    pub(crate) facts: Facts,
    /// The load of its recording, with its result once it is known.
    pub(crate) loading: Option<Pending>,
    pub(crate) learns: bool,
    pub(crate) began: Instant,
    pub(crate) holder: Holder,
    pub(crate) limit: Duration,
    /// Whether the view reads nothing ahead, as far as it is known from its mount.
    pub(crate) is_narrow: bool,
    pub(crate) is_shared: AtomicBool,
    pub(crate) watch: Arc<Watch>,
    pub(crate) tree: Mutex<Option<ViewTree>>,
    pub(crate) inodes: usize,
    pub(crate) is_over: tokio::sync::Mutex<bool>,
}

impl ActiveStart {
    /// The facts about it, with the result of loading its recording.
    pub(crate) async fn facts_at_end(&self, patience: Duration) -> Facts {
        let mut facts = self.facts.clone();
        let Some(mut loading) = self.loading.clone() else {
            return facts;
        };
        let known = tokio::time::timeout(patience, loading.outcome.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(image)) => {
                facts.loaded = image.as_ref().map(|image| image.loaded.clone());
                facts.recorded = image.as_ref().and_then(|image| image.recorded.clone());
            }
            _ => {
                facts.loaded = Some(Loaded::refused(STILL_COMING.to_owned()));
                facts.recorded = loading.recorded;
            }
        }
        facts
    }
}
