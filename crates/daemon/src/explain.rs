//! Names the file in the image, the process and its container for each wait. A worker takes from the history the facts that it does
//! not have itself; without a daemon, all of them come from there.

mod files;
mod subject;
pub(crate) mod waits;

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use xebec_cache::store::Store;
use xebec_fill::fill_service::FillService;
use xebec_images::images::Images;
use xebec_images::record::Records;
use xebec_protocol::explain::{Explanation, WaitReport};
use xebec_protocol::failure::Failure;
use xebec_protocol::history::History;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};
use xebec_views::views::Views;

use crate::container_runs::live_containers;
use crate::start_table::StartTable;
use files::Files;
use subject::Known;
use waits::report;

/// How often slow readers are looked for: a quarter of the time that makes them slow, but not more often or rarely.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Says in the log that a reader is slow.
fn warn_of(report: &WaitReport) {
    let problem = report.problem.as_deref().unwrap_or("none");
    warn!(
        pid = report.pid,
        comm = report.comm,
        container = report.container,
        file = report.file,
        layer = report.layer.map(|layer| layer.to_string()),
        offset = report.offset,
        waited_ms = report.waited_ms as u64,
        waits_for = report.phase,
        retries = report.retries,
        "a slow reader: {}[{}] has waited {:.1} s for {}; it waits for: {}; latest problem: {problem}",
        report.comm,
        report.pid,
        report.waited_ms / 1e3,
        report.file.as_deref().unwrap_or("a file without a name"),
        report.phase,
    );
}

/// Explains why readers waited.
pub(crate) struct Explanations {
    pub(crate) paths: Paths,
    pub(crate) store: Arc<Store>,
    pub(crate) records: Records,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) starts: Arc<StartTable>,
}

impl Explanations {
    /// Logs readers that wait long, for as long as the worker lives.
    pub(crate) async fn watch_slow_readers(self: Arc<Self>) {
        let period = (self.fills.waits().slow() / 4).clamp(SHORTEST_LOOK, LONGEST_LOOK);
        let mut look = tokio::time::interval(period);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let slow = self.fills.waits().newly_slow();
            if slow.is_empty() {
                continue;
            }
            let this = self.clone();
            let named = tokio::task::spawn_blocking(move || {
                let mut files = Files::new(&this.store);
                for wait in &slow {
                    let mut report = report(wait);
                    files.name(&mut report);
                    warn_of(&report);
                }
            });
            let _ = named.await;
        }
    }

    /// Why readers waited that belong to `name`: a container, a view, or an image.
    pub(crate) fn explain(&self, name: &str) -> Result<Explanation, Failure> {
        let waits = self.fills.waits();
        let mut history = History::read(&self.paths.history());
        history.add(waits.records().iter().map(report), self.starts.past());
        let (views, live) = (self.views.list(), live_containers(self.paths.run(), &self.views));
        history
            .containers
            .extend(live.iter().map(|live| live.run.clone()));
        let known = Known {
            history: &history,
            live: &live,
            views: &views,
            records: &self.records,
        };
        explain_by(&known, &self.store, name, waits.slow(), Some(waits.started_ms()))
    }

    /// The reader that waits longest, with names.
    pub(crate) fn oldest_reader(&self) -> Option<WaitReport> {
        let mut oldest = report(&self.fills.waits().oldest()?);
        Files::new(&self.store).name(&mut oldest);
        Some(oldest)
    }
}

/// Why readers waited that belong to `name`, by the history alone: no daemon runs.
///
/// # Errors
/// When nothing of that name is known.
pub fn explain_without_daemon(paths: &Paths, name: &str) -> Result<Explanation, Failure> {
    let images = Images::open(paths)?;
    let mut history = History::read(&paths.history());
    history.add([], []);
    let known = Known {
        history: &history,
        live: &[],
        views: &[],
        records: images.records(),
    };
    let slow = Settings::load(&paths.settings(), &Overrides::new())?.slow_reader;
    explain_by(&known, images.store(), name, slow, None)
}

fn explain_by(
    known: &Known<'_>,
    store: &Store,
    name: &str,
    slow: Duration,
    started_ms: Option<u64>,
) -> Result<Explanation, Failure> {
    let subject = known.subject(name)?;
    let images = known.images();
    let all = &known.history.waits;
    let oldest = all.first().map(|wait| wait.began_ms);
    let mut waits: Vec<WaitReport> = all
        .iter()
        .filter(|wait| subject.has(wait, &images))
        .cloned()
        .collect();
    let mut files = Files::new(store);
    waits.iter_mut().for_each(|wait| files.name(wait));
    Ok(Explanation {
        subject: subject.text,
        since_ms: oldest.into_iter().chain(started_ms).min().unwrap_or_default(),
        slow_ms: slow.as_millis() as u64,
        others: subject.others,
        waits,
    })
}
