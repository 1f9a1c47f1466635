//! Names what readers waited for: the file in the image, the process and its container.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use xebec_cache::progress::Phase;
use xebec_cache::store::{LayerKey, Store};
use xebec_fill::fill_service::FillService;
use xebec_fill::waits::WaitRecord;
use xebec_format::digest::Digest;
use xebec_format::layer::{EntryKind, LayerIndex};
use xebec_images::record::Records;
use xebec_oci::Reference;
use xebec_protocol::explain::{Explanation, WaitReport, WaitState};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Holder;
use xebec_views::views::Views;

/// How often slow readers are looked for: a quarter of the time that makes them slow, but not more often or rarely.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Finds files by their place in a layer's data space. Indexes are decoded as they are needed and go with it.
struct Files<'a> {
    store: &'a Store,
    indexes: HashMap<LayerKey, Option<LayerIndex>>,
}

impl<'a> Files<'a> {
    fn new(store: &'a Store) -> Self {
        Self {
            store,
            indexes: HashMap::new(),
        }
    }

    /// The file that has bytes in `range`, by its path in the image.
    fn find(&mut self, key: LayerKey, range: &Range<u64>) -> Option<String> {
        let store = self.store;
        let index = self.indexes.entry(key).or_insert_with(|| {
            let bytes = store.index_bytes(key).ok()?;
            LayerIndex::decode(&bytes).ok()
        });
        let is_there = |kind: &EntryKind| match kind {
            EntryKind::File { extents, .. } => extents.iter().any(|extent| {
                extent.data_offset < range.end && range.start < extent.data_offset + extent.length
            }),
            _ => false,
        };
        let entry = index
            .as_ref()?
            .entries
            .iter()
            .find(|entry| is_there(&entry.kind))?;
        Some(entry.path.to_string())
    }

    /// A wait, with names.
    fn report(&mut self, wait: &WaitRecord) -> WaitReport {
        let milliseconds = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let account = &wait.account;
        let mut phases = account.phases;
        // Before the fetch began, and between two of them, the reader waited for its turn.
        phases.add(Phase::Queue, wait.waited.saturating_sub(phases.total()));
        let spent = Phase::ALL.map(|phase| (phase, milliseconds(phases.of(phase))));
        let state = match (wait.ended, &wait.error) {
            (false, _) => WaitState::Waiting,
            (true, None) => WaitState::Served,
            (true, Some(_)) => WaitState::Refused,
        };
        WaitReport {
            began_ms: wait.began,
            waited_ms: milliseconds(wait.waited),
            state,
            pid: wait.process.pid,
            comm: wait.process.comm.clone(),
            container: wait.process.container.clone(),
            layer: wait.key.map(|key| key.layer),
            file: wait.key.and_then(|key| self.find(key, &wait.range)),
            offset: wait.range.start,
            count: wait.range.end.saturating_sub(wait.range.start),
            spans: account.spans,
            joined: account.joined,
            retries: account.retries,
            waited_for_ms: spent
                .into_iter()
                .filter(|(_, time)| *time > 0.0)
                .map(|(phase, time)| (phase.name().to_owned(), time))
                .collect(),
            phase: account.phase.name().to_owned(),
            sources: account.sources.iter().map(ToString::to_string).collect(),
            problem: wait.error.clone().or_else(|| account.problem.clone()),
        }
    }
}

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

/// Which waits have to do with a name.
struct Subject {
    text: String,
    /// Waits of this container, and of processes outside of all containers on its layers.
    container: Option<String>,
    layers: Vec<LayerKey>,
}

impl Subject {
    fn has(&self, wait: &WaitRecord) -> bool {
        let on_layers = wait.key.is_some_and(|key| self.layers.contains(&key));
        match (&self.container, &wait.process.container) {
            (Some(container), Some(other)) => container == other,
            _ => on_layers,
        }
    }
}

/// Explains why readers waited.
pub(crate) struct Explanations {
    pub(crate) store: Arc<Store>,
    pub(crate) records: Records,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
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
                slow.iter().for_each(|wait| warn_of(&files.report(wait)));
            });
            let _ = named.await;
        }
    }

    /// Why readers waited that belong to `name`: a container, a view, or an image.
    pub(crate) fn explain(&self, name: &str) -> Result<Explanation, Failure> {
        let waits = self.fills.waits();
        let records = waits.records();
        let subject = self.subject(name, &records)?;
        let mut files = Files::new(&self.store);
        let chosen = records.iter().filter(|wait| subject.has(wait));
        Ok(Explanation {
            waits: chosen.map(|wait| files.report(wait)).collect(),
            subject: subject.text,
            since_ms: waits.started_ms(),
            slow_ms: waits.slow().as_millis() as u64,
        })
    }

    /// The reader that waits longest, with names.
    pub(crate) fn oldest_reader(&self) -> Option<WaitReport> {
        let oldest = self.fills.waits().oldest()?;
        Some(Files::new(&self.store).report(&oldest))
    }

    fn subject(&self, name: &str, waits: &[WaitRecord]) -> Result<Subject, Failure> {
        let views = self.views.list();
        let is_container =
            |holder: &Holder| matches!(holder, Holder::Process { name: held, .. } if held == name);
        let view = views.iter().find(|view| view.holders.iter().any(is_container));
        let was_container = |wait: &WaitRecord| wait.process.container.as_deref() == Some(name);
        if view.is_some() || waits.iter().any(was_container) {
            let image = view.map_or_else(String::new, |view| format!(" of {}", view.reference));
            return Ok(Subject {
                text: format!("container {name}{image}"),
                container: Some(name.to_owned()),
                layers: view.map_or_else(Vec::new, |view| {
                    view.layers.iter().map(|pair| (*pair).into()).collect()
                }),
            });
        }
        let is_mount =
            |holder: &Holder| matches!(holder, Holder::Directory { path } if path.as_os_str() == name);
        let view = views.iter().find(|view| {
            view.name == name || view.path.as_os_str() == name || view.holders.iter().any(is_mount)
        });
        if let Some(view) = view {
            return Ok(Subject {
                text: format!("view {} of {}", view.path.display(), view.reference),
                container: None,
                layers: view.layers.iter().map(|pair| (*pair).into()).collect(),
            });
        }
        let records = &self.records;
        let by_digest = name.parse::<Digest>().ok().and_then(|digest| records.get(digest));
        let by_reference = || {
            let reference: Reference = name.parse().ok()?;
            records
                .find(&reference.to_string())
                .or_else(|| records.get(reference.digest()?))
        };
        let record = by_digest.or_else(by_reference).ok_or_else(|| {
            Failure::new(
                FailureKind::NotFound,
                format!(
                    "{name} is no container, view or image that this host knows; `xebec ps`, `xebec daemon status` \
                     and `xebec images` list them"
                ),
            )
        })?;
        Ok(Subject {
            text: format!("image {name} ({})", record.manifest_digest),
            container: None,
            layers: record.layers.iter().map(|layer| layer.key()).collect(),
        })
    }
}
