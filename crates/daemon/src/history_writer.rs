//! Writes the history, a moment after the events and never on anybody's way: waits of readers that are over, starts that are over,
//! and the images of the containers that waited. Entries that cannot be written are left out; the log says so once a minute.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tracing::warn;
use xebec_fill::fill_service::FillService;
use xebec_fill::rate_limited_log::RateLimitedLog;
use xebec_fill::waits::WaitRecord;
use xebec_protocol::history::{Entry, Log, STARTS, STARTS_LIMIT, WAITS, WAITS_LIMIT};
use xebec_protocol::paths::Paths;
use xebec_views::views::Views;

use crate::container_runs::live_containers;
use crate::explain::waits::report;
use crate::start_table::StartTable;

/// How often it is written. An event is in the history within a second. So is a refused read, which waits for the time in which the
/// kernel may ask for it again.
const PERIOD: Duration = Duration::from_millis(250);
/// Containers that are remembered as written down.
const MAX_KNOWN: usize = 1024;

/// Writes the history.
pub(crate) struct HistoryWriter {
    fills: Arc<FillService>,
    views: Arc<Views>,
    starts: Arc<StartTable>,
    run: PathBuf,
    directory: PathBuf,
    state: Mutex<State>,
}

struct State {
    waits: Log,
    starts: Log,
    /// The last wait that was written, by its number.
    last_wait: u64,
    /// The number of starts that were written.
    starts_written: u64,
    /// Containers that were written.
    known: HashSet<(String, Option<String>)>,
    failures: RateLimitedLog,
    /// Entries that could not be written, and were not told of yet.
    lost: u64,
}

impl HistoryWriter {
    /// A writer of the facts that these have.
    pub(crate) fn new(
        paths: &Paths,
        fills: &Arc<FillService>,
        views: &Arc<Views>,
        starts: &Arc<StartTable>,
    ) -> Self {
        let directory = paths.history();
        Self {
            fills: fills.clone(),
            views: views.clone(),
            starts: starts.clone(),
            run: paths.run().to_owned(),
            state: Mutex::new(State {
                waits: Log::new(directory.clone(), WAITS, WAITS_LIMIT),
                starts: Log::new(directory.clone(), STARTS, STARTS_LIMIT),
                last_wait: 0,
                starts_written: 0,
                known: HashSet::new(),
                failures: RateLimitedLog::default(),
                lost: 0,
            }),
            directory,
        }
    }

    /// Runs until the worker ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut tick = tokio::time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if !self.has_news() {
                continue;
            }
            let this = self.clone();
            let _ = tokio::task::spawn_blocking(move || this.note(false)).await;
        }
    }

    /// Whether anything ended that is to be written now. A worker is not to start a thread for nothing, however long a read waits
    /// again that was refused before.
    fn has_news(&self) -> bool {
        let state = self.state.lock();
        self.fills.waits().has_ended_since(state.last_wait) || self.starts.count() > state.starts_written
    }

    /// Writes the new entries, for the last time. Blocks.
    pub(crate) fn finish(&self) {
        self.note(true);
    }

    /// Writes the new entries; with `all` also reads that were refused just now, for which the kernel may ask again. Blocks.
    fn note(&self, all: bool) {
        let mut state = self.state.lock();
        let waits = self.fills.waits().ended_since(state.last_wait, all);
        let starts = self.starts.ended_since(&mut state.starts_written);
        if waits.is_empty() && starts.is_empty() {
            return;
        }
        if let Some((number, _)) = waits.last() {
            state.last_wait = *number;
        }
        let mut happened: Vec<Entry> = self.containers(&mut state, &waits);
        let started = starts.into_iter().map(|start| Entry::Start(Box::new(start)));
        happened.extend(started);
        let waited = waits.iter().map(|(_, wait)| Entry::Wait(Box::new(report(wait))));
        let waited: Vec<Entry> = waited.collect();
        let results = [
            (happened.len(), state.starts.append(&happened)),
            (waited.len(), state.waits.append(&waited)),
        ];
        for (entries, result) in results {
            let Err(error) = result else { continue };
            state.lost += entries as u64;
            if state.failures.say().is_some() {
                let lost = std::mem::take(&mut state.lost);
                warn!(
                    "{lost} waits and starts are missing in {}, which `xebec explain` reads: {error}",
                    self.directory.display()
                );
            }
        }
    }

    /// The images of the containers that waited, each container once.
    fn containers(&self, state: &mut State, waits: &[(u64, WaitRecord)]) -> Vec<Entry> {
        let processes = waits.iter().map(|(_, wait)| &wait.process);
        let waited =
            processes.filter_map(|process| Some((process.container.clone()?, process.container_run.clone())));
        let new: HashSet<_> = waited
            .filter(|container| !state.known.contains(container))
            .collect();
        if new.is_empty() {
            return Vec::new();
        }
        let live = live_containers(&self.run, &self.views).into_iter();
        let live = live.map(|live| live.run);
        let entries = live.filter(|run| new.contains(&(run.name.clone(), run.run.clone())));
        let entries = entries.map(Entry::Container).collect();
        if state.known.len() + new.len() > MAX_KNOWN {
            state.known.clear();
        }
        state.known.extend(new);
        entries
    }
}
