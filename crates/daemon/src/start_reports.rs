//! What a start that is over read, and what is learned from it: looked at in its view's page cache, never on the start's way.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tracing::debug;
use xebec_cache::store::LayerKey;
use xebec_fill::access_log::AllAsked;
use xebec_fill::fill_service::FillService;
use xebec_fill::page_set::PageSet;
use xebec_fill::waits::WaitRecord;
use xebec_format::PAGE_SIZE;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::start_report::{Learned, StartReport};
use xebec_protocol::wire::Holder;
use xebec_recordings::profile::Profiles;
use xebec_views::page_cache_residency::Touched;
use xebec_views::views::Views;

use crate::learning::profile;
use crate::start_facts::{Facts, Over, Seen, report};
use crate::start_table::{ActiveStart, REMEMBERED, StartTable, lock};

/// Files of complete layers that are looked at: some 10 µs each, if nobody did before.
const MAX_FILES: usize = 20_000;

/// Reports starts.
pub(crate) struct StartReports {
    pub(crate) table: Arc<StartTable>,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) profiles: Profiles,
    /// The run directory, where containers are recorded.
    pub(crate) run: PathBuf,
}

impl StartReports {
    /// Blocks, for some milliseconds.
    pub(crate) fn conclude(&self, start: &ActiveStart, facts: &Facts, mut over: Over) {
        let began = Instant::now();
        let (is_shared, is_narrow) = self.views.look(&start.view).unwrap_or_default();
        let tree = lock(&start.tree).take();
        let nothing = PageSet::default();
        let recorded = facts
            .recorded
            .as_ref()
            .map_or(&nothing, |recorded| &recorded.pages);
        let look = |pages: &PageSet, limit| match &tree {
            Some(tree) => tree.touched(&start.path, pages, limit),
            None => pages.is_empty().then(Touched::default),
        };
        let touched = look(recorded, usize::MAX).unwrap_or_default();
        let silent = self.pages_without_events(start);
        let unnoticed = look(&silent.without(recorded), MAX_FILES);
        // Asked after looking: what was brought there meanwhile was noted before.
        let populated = self.views.populated(&start.view);
        let is_said = |said: Touched| match &populated {
            Some(populated) => said.without(&populated.brought),
            None => Touched::default(),
        };
        let unnoticed = unnoticed.filter(|_| populated.is_some());
        let (touched, unnoticed) = (is_said(touched), unnoticed.map(is_said));
        if over.container.is_none() {
            over.container = self.container_of_command(&start.holder);
        }
        let AllAsked { mut entries, is_full } = start.watch.take(over.container.as_deref());
        let watched_ms = over.at_ms.saturating_sub(start.facts.began_ms);
        entries.retain(|entry| u64::from(entry.at) <= watched_ms);
        let seen = Seen {
            touched,
            populated: populated.unwrap_or_default(),
            unnoticed,
            asked: AllAsked { entries, is_full },
            waits: self.waits_of(start, &over),
            is_exact: start.is_narrow && is_narrow,
            is_shared: is_shared || start.is_shared.load(Ordering::Relaxed),
        };
        let mut report = report(facts, &over, &seen, tree.as_ref());
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
            let kept = self.profiles.add(&profile);
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
    fn waits_of(&self, start: &ActiveStart, over: &Over) -> Vec<WaitRecord> {
        let mut waits = self.fills.waits().since(start.facts.began_ms);
        waits.retain(|wait| {
            let is_layer = |key: LayerKey| {
                let mut layers = start.facts.layers.iter();
                layers.any(|layer| layer.layer == key.layer && layer.index == key.index)
            };
            let is_own = match (&wait.process.container, &over.container) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            };
            is_own && wait.began <= over.at_ms && wait.key.is_some_and(is_layer)
        });
        waits
    }

    /// The container that a command runs now.
    fn container_of_command(&self, holder: &Holder) -> Option<String> {
        let Holder::Process { pid, .. } = holder else {
            return None;
        };
        let running = xebec_container::list(&self.run).ok()?;
        let mut own = running
            .records
            .into_iter()
            .filter(|record| record.supervisor.unsigned_abs() == *pid);
        own.next().map(|record| record.id)
    }

    /// The last start: of a container or an image, if that is named.
    pub(crate) async fn explain(&self, name: Option<&str>) -> Result<StartReport, Failure> {
        // One that is just over is waited for; one that goes on is not.
        let active: Vec<Arc<ActiveStart>> = lock(&self.table.active).clone();
        for start in &active {
            drop(start.is_over.lock().await);
        }
        let reference = name.and_then(|name| name.parse::<xebec_oci::Reference>().ok());
        let reference = reference.map(|reference| reference.to_string());
        let past = lock(&self.table.past);
        let is_meant = |report: &&StartReport| {
            let Some(name) = name else { return true };
            report.container.as_deref() == Some(name)
                || report.manifest.to_string() == name
                || Some(&report.reference) == reference.as_ref()
        };
        let found = past.iter().rev().find(is_meant).cloned();
        found.ok_or_else(|| {
            let what = name.map_or_else(String::new, |name| format!(" of {name}"));
            let goes_on = match active.is_empty() {
                true => "",
                false => "; one goes on",
            };
            let message = format!(
                "no start{what} is remembered{goes_on}. The last {REMEMBERED} are, since the daemon's worker started; those \
                 with --no-runtime-image are not watched"
            );
            Failure::new(FailureKind::NotFound, message)
        })
    }
}
