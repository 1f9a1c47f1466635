//! Reports the pages that a finished start read, and learns from them. It looks into the view's page cache, and never delays the start.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::debug;
use xebec_cache::store::LayerKey;
use xebec_container::{Directories, Record};
use xebec_fill::access_log::AllAsked;
use xebec_fill::fill_service::FillService;
use xebec_fill::page_set::PageSet;
use xebec_fill::waits::WaitRecord;
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_images::lookup::by_first_digits;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::history::History;
use xebec_protocol::paths::Paths;
use xebec_protocol::start_report::{Learned, StartReport};
use xebec_protocol::wire::Holder;
use xebec_recordings::earlier::EarlierVersion;
use xebec_recordings::recordings::Recordings;
use xebec_views::page_cache_residency::Touched;
use xebec_views::view_tree::ViewTree;
use xebec_views::views::{Prefilled, Views};

use crate::background::run_without_turn;
use crate::container_runs::run_of;
use crate::containers;
use crate::learning::profile;
use crate::start_facts::{Facts, Over, Seen, advice_to_record_again, is_to_be_recorded, report};
use crate::start_table::{ActiveStart, StartTable};

/// Files of complete layers that are looked at: some 10 µs each, if nobody did before.
const MAX_FILES: usize = 20_000;

/// Reports starts.
pub(crate) struct StartReports {
    pub(crate) table: Arc<StartTable>,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) recordings: Recordings,
    /// Where containers are kept and recorded.
    pub(crate) containers: Directories,
    /// The directory of the history.
    pub(crate) history: PathBuf,
}

/// The pages of a start, by the page cache, as in [`Seen`].
struct InPageCache {
    touched: Touched,
    unnoticed: Option<Touched>,
    /// `None` if an earlier worker prefilled the view.
    prefilled: Option<Prefilled>,
}

impl StartReports {
    /// Blocks, for some milliseconds.
    pub(crate) fn conclude(&self, start: &ActiveStart, facts: &Facts, mut over: Over) {
        let began = Instant::now();
        let (is_shared, is_narrow) = self.views.look(&start.view).unwrap_or_default();
        let tree = start.tree.lock().take();
        let in_page_cache = self.look_at_page_cache(start, facts, tree.as_ref());
        let record = self.container_of_command(&start.holder);
        let container_run = record.as_ref().and_then(run_of);
        if let Some(record) = record {
            over.container.get_or_insert(record.id);
        }
        let waits = self.waits_of(start, &over, container_run.as_deref());
        // One that has ended has no record any more.
        let container_run = container_run.or_else(|| run_of_waits(&waits, over.container.as_deref()?));
        let AllAsked { mut entries, is_full } = start.watch.take(over.container.as_deref());
        let watched_ms = over.at_ms.saturating_sub(start.facts.began_ms);
        entries.retain(|entry| u64::from(entry.at) <= watched_ms);
        let seen = Seen {
            touched: in_page_cache.touched,
            prefilled: in_page_cache.prefilled.unwrap_or_default(),
            unnoticed: in_page_cache.unnoticed,
            asked: AllAsked { entries, is_full },
            waits,
            container_run,
            is_exact: start.is_narrow && is_narrow,
            is_shared: is_shared || start.is_shared.load(Ordering::Relaxed),
        };
        let mut report = report(facts, &over, &seen, tree.as_ref());
        if is_to_be_recorded(&report)
            && let Some(earlier) = self.earlier_version(&report)
        {
            report.advice = Some(advice_to_record_again(&report, &earlier));
        }
        if start.learns {
            report.learned = Some(self.learn(facts, &over, &seen));
        }
        debug!(
            image = start.facts.reference,
            ms = began.elapsed().as_secs_f64() * 1e3,
            "reported what a start read"
        );
        self.table.remember(report);
    }

    /// Looks at which pages of a start's view are in the page cache.
    fn look_at_page_cache(&self, start: &ActiveStart, facts: &Facts, tree: Option<&ViewTree>) -> InPageCache {
        let nothing = PageSet::default();
        let recorded = facts
            .recorded
            .as_ref()
            .map_or(&nothing, |recorded| &recorded.pages);
        let look = |pages: &PageSet, limit| match tree {
            Some(tree) => tree.touched(&start.path, pages, limit),
            None => pages.is_empty().then(Touched::default),
        };
        let touched = look(recorded, usize::MAX).unwrap_or_default();
        let silent = self.pages_without_events(start);
        let unnoticed = look(&silent.without(recorded), MAX_FILES);
        // Asked after looking: pages that were prefilled meanwhile were noted before.
        let prefilled = self.views.prefilled(&start.view);
        let is_said = |said: Touched| match &prefilled {
            Some(prefilled) => said.without(&prefilled.brought),
            None => Touched::default(),
        };
        let unnoticed = unnoticed.filter(|_| prefilled.is_some());
        InPageCache {
            touched: is_said(touched),
            unnoticed: unnoticed.map(is_said),
            prefilled,
        }
    }

    /// The version of the image for which the service was recorded before.
    fn earlier_version(&self, report: &StartReport) -> Option<EarlierVersion> {
        let reference: Reference = report.reference.parse().ok()?;
        self.recordings
            .earlier_version(report.manifest, reference.repository(), &report.command)
    }

    /// Ends the watch over a start's layers. Gives their pages whose reads raise no events, by the end of the start.
    fn pages_without_events(&self, start: &ActiveStart) -> PageSet {
        let mut silent = PageSet::default();
        for layer in &start.facts.layers {
            let key = LayerKey {
                layer: layer.layer,
                index: layer.index,
            };
            let Some(served) = self.fills.find(key) else {
                continue;
            };
            served.watchers().remove(&start.watch);
            let all = 0..layer.data_size / PAGE_SIZE;
            let was_complete = start.facts.present.runs(key) == std::slice::from_ref(&all);
            if served.layer().is_complete() && (start.learns || !was_complete) {
                silent.insert(key, vec![all]);
            }
        }
        silent
    }

    /// Keeps a profile of a start.
    fn learn(&self, facts: &Facts, over: &Over, seen: &Seen) -> Learned {
        let learned = profile(facts, over, seen).and_then(|profile| {
            let kept = self.recordings.profiles().add(&profile);
            kept.map(|()| profile).map_err(|failure| failure.to_string())
        });
        match learned {
            Ok(profile) => Learned::Kept {
                missed: profile.missed.iter().map(|run| u64::from(run.pages)).sum(),
                touched: profile
                    .touched
                    .map(|runs| runs.iter().map(|run| u64::from(run.pages)).sum()),
            },
            Err(reason) => Learned::Not(reason),
        }
    }

    /// The waits that began while it started, of its container and of processes outside of all.
    fn waits_of(&self, start: &ActiveStart, over: &Over, run: Option<&str>) -> Vec<WaitRecord> {
        let mut waits = self.fills.waits().since(start.facts.began_ms);
        waits.retain(|wait| {
            let is_layer = |key: LayerKey| {
                let mut layers = start.facts.layers.iter();
                layers.any(|layer| layer.layer == key.layer && layer.index == key.index)
            };
            let process = &wait.process;
            let is_own = match (&process.container, &over.container) {
                // Another container may have had the name before.
                (Some(one), Some(other)) => {
                    one == other && (run.is_none() || process.container_run.as_deref() == run)
                }
                _ => true,
            };
            is_own && wait.began <= over.at_ms && wait.key.is_some_and(is_layer)
        });
        waits
    }

    /// The container that a command runs now.
    fn container_of_command(&self, holder: &Holder) -> Option<Record> {
        let running = xebec_container::list(&self.containers.run).ok()?;
        let mut records = running.records.into_iter();
        records.find(|record| holder.supervises(record))
    }

    /// The last start: of a container or an image, if that is named.
    pub(crate) async fn explain(self: &Arc<Self>, name: Option<&str>) -> Result<StartReport, Failure> {
        // One that is just over is waited for; one that goes on is not.
        let active: Vec<Arc<ActiveStart>> = self.table.active.lock().clone();
        for start in &active {
            drop(start.is_over.lock().await);
        }
        let goes_on = !active.is_empty();
        let (this, name) = (self.clone(), name.map(str::to_owned));
        let found = run_without_turn(move || {
            let mut history = History::read(&this.history);
            history.add([], this.table.past());
            let meant = Meant::of(name.as_deref(), &this.containers, &history.starts)?;
            last_start(history.starts, &meant, goes_on)
        });
        found.await?
    }
}

/// The random part of the name of a container's control group, by the last of its waits. It tells the container from others of its name.
fn run_of_waits(waits: &[WaitRecord], container: &str) -> Option<String> {
    let mut own = waits.iter().rev().map(|wait| &wait.process);
    let own = own.find(|process| process.container.as_deref() == Some(container))?;
    own.container_run.clone()
}

/// The last start of a container or an image, or of all, by the history alone: no daemon runs.
///
/// # Errors
/// When none is remembered.
pub fn explain_start_without_daemon(paths: &Paths, name: Option<&str>) -> Result<StartReport, Failure> {
    let mut history = History::read(&paths.history());
    history.add([], []);
    let meant = Meant::of(name, &containers::directories(paths), &history.starts)?;
    last_start(history.starts, &meant, false)
}

/// The image or container whose last start a user asks for.
#[derive(Default)]
struct Meant<'a> {
    /// As it was named; all starts if it was not.
    name: Option<&'a str>,
    /// The reference of an image of that name, in full.
    reference: Option<String>,
    /// The image's manifest, if its first digits were given.
    manifest: Option<Digest>,
    /// The name of the container that there is now, and when it was made.
    container: Option<(String, u64)>,
}

impl<'a> Meant<'a> {
    fn of(name: Option<&'a str>, dirs: &Directories, starts: &[StartReport]) -> Result<Self, Failure> {
        let Some(named) = name else {
            return Ok(Self::default());
        };
        let reference = named.parse::<xebec_oci::Reference>().ok();
        let container = xebec_container::find(dirs, named).ok();
        let manifest = match &container {
            Some(_) => None,
            None => {
                let manifests: BTreeSet<Digest> = starts.iter().map(|start| start.manifest).collect();
                by_first_digits(
                    manifests,
                    named,
                    "images",
                    |manifest| *manifest,
                    Digest::to_string,
                )?
            }
        };
        Ok(Self {
            name,
            reference: reference.map(|reference| reference.to_string()),
            manifest,
            container: container.map(|container| (container.name.clone(), container.created_ms())),
        })
    }

    fn includes(&self, start: &StartReport) -> bool {
        let name = match &self.container {
            Some((name, _)) => Some(name.as_str()),
            None => self.name,
        };
        name.is_none_or(|name| start.is_of(name, self.reference.as_deref()))
            || self.manifest == Some(start.manifest)
    }

    /// Whether a start is one of an earlier container, which had the name of the one that there is now.
    fn is_of_an_earlier_container(&self, start: &StartReport) -> bool {
        let container = self.container.as_ref();
        container.is_some_and(|(name, created_ms)| {
            start.container.as_ref() == Some(name) && start.began_ms < *created_ms
        })
    }
}

/// The newest of the starts that are meant, with how many others are. A container that there is now is meant before one that had
/// its name earlier.
fn last_start(
    mut starts: Vec<StartReport>,
    meant: &Meant<'_>,
    goes_on: bool,
) -> Result<StartReport, Failure> {
    starts.retain(|start| meant.includes(start));
    starts.sort_by_key(|start| start.began_ms);
    let newest = starts.pop_if(|newest| !meant.is_of_an_earlier_container(newest));
    let Some(mut last) = newest else {
        return Err(none_remembered(meant, starts.last(), goes_on));
    };
    // Only if something was named: of all starts there are always others.
    last.earlier = meant.name.map_or(0, |_| starts.len() as u64);
    Ok(last)
}

fn none_remembered(meant: &Meant<'_>, earlier: Option<&StartReport>, goes_on: bool) -> Failure {
    let what = match (&meant.container, meant.name) {
        (Some((name, _)), _) => format!(" of the container {name}"),
        (None, Some(name)) => format!(" of {name}"),
        (None, None) => String::new(),
    };
    let goes_on = match goes_on {
        true => "; a start that goes on is shown when it is over: when its probe answers, or after a minute",
        false => "",
    };
    let mut message =
        format!("no start{what} is remembered{goes_on}; those with --no-runtime-image are not watched");
    let of_earlier =
        earlier.and_then(|start| Some((start.container.as_ref()?, start.container_run.as_ref()?)));
    if let Some((name, run)) = of_earlier {
        message.push_str(&format!(
            "; an earlier container of that name was started: xebec explain --start {name}@{run}"
        ));
    }
    Failure::new(FailureKind::NotFound, message)
}

#[cfg(test)]
mod tests;
