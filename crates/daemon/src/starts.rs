//! Starts of services, from the mount until they are ready: what each asked for, what its recording was good for, and
//! what is to be learned from it.
//!
//! While a start is **active** its layers note what is asked for ([`xebec_fill::access_log`]). Its command says when it is over;
//! one without a probe is over when its container ends, and one that goes on for long is given up. Then, in a thread for
//! that and never on the start's way, the page cache of its view is looked at ([`xebec_views::page_cache_residency`]), the report is
//! made (`start_facts`) and, if asked for, a profile kept. A view is given back only after that.
//!
//! All of it is in this worker's memory, and bounded: a worker that is replaced forgets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::{debug, warn};
use xebec_cache::store::LayerKey;
use xebec_container::{Identity, ImageConfig};
use xebec_fill::access_log::{AllAsked, Watch};
use xebec_fill::page_set::PageSet;
use xebec_fill::served::ServedLayer;
use xebec_format::PAGE_SIZE;
use xebec_format::runtime_image::RecordedLayer;
use xebec_images::prepare::PreparedImage;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::start_report::{Learned, StartEnd, StartReport};
use xebec_protocol::wire::{Holder, Mounted, Purpose, Reply};
use xebec_views::page_cache_residency::Touched;
use xebec_views::view_tree::ViewTree;

use crate::learning::profile;
use crate::loaded_images::{Pending, SOON};
use crate::services::Services;
use crate::start_facts::{Facts, Over, Seen, report};
use crate::start_table::{ActiveStart, REMEMBERED, START, StartPlan, lock};

/// How long a start without a probe is watched.
const WITHOUT_PROBE: Duration = Duration::from_secs(60);
/// How long one with a probe is.
const WITH_PROBE: Duration = Duration::from_secs(600);
/// Files of complete layers that are looked at: some 10 µs each, if nobody did before.
const MAX_FILES: usize = 20_000;

/// The process that asks for a start; 0 if none does.
fn command_of(holder: &Holder) -> u32 {
    match holder {
        Holder::Process { pid, .. } => *pid,
        Holder::Directory { .. } | Holder::Snapshot { .. } => 0,
    }
}

/// The layers of a start's own image that are watched.
struct Watched<'a> {
    different: Vec<RecordedLayer>,
    /// With the number in `different`.
    watched: Vec<(u16, &'a Arc<ServedLayer>)>,
    /// Their pages that are here when the start begins.
    present: PageSet,
    /// Whether files of other images' layers are read in place of files of these.
    borrows: bool,
}

impl<'a> Watched<'a> {
    fn of(plan: &StartPlan, layers: &'a [Arc<ServedLayer>]) -> Self {
        // Layers of other images are complete.
        let is_own = |served: &&Arc<ServedLayer>| plan.layers.contains(&served.layer().key());
        let mut this = Self {
            different: Vec::new(),
            watched: Vec::new(),
            present: PageSet::default(),
            borrows: !layers.iter().all(|served| is_own(&served)),
        };
        for served in layers.iter().filter(is_own) {
            let layer = RecordedLayer {
                layer: served.layer().key().layer,
                index: served.layer().key().index,
                data_size: served.layer().table().data_size,
            };
            // A layer may stand in an image twice: it counts where it stands first.
            if this.different.iter().all(|known| known.layer != layer.layer)
                && let Ok(number) = u16::try_from(this.different.len())
            {
                let pages = served.layer().presence();
                this.present
                    .insert(served.layer().key(), pages.held(0..pages.pages()));
                this.different.push(layer);
                this.watched.push((number, served));
            }
        }
        this
    }
}

impl Services {
    /// What is known of a start before its view is mounted; `None` when it is none, or not to be watched.
    pub(super) fn plan_start(&self, prepared: &PreparedImage, purpose: &Purpose) -> Option<StartPlan> {
        let Purpose::Service(command) = purpose else {
            return None;
        };
        let config = ImageConfig::from_blob(&prepared.found.config_bytes).ok()?;
        let argv =
            xebec_container::command_line(&config, command.entrypoint.as_deref(), &command.command).ok()?;
        let by_setting = || {
            let manifest = prepared.found.manifest_digest;
            self.settings.learn && command.has_probe && self.starts.is_due(manifest, &argv)
        };
        Some(StartPlan {
            learns: command.learn || by_setting(),
            has_probe: command.has_probe,
            layers: prepared.layers.iter().map(|layer| layer.key).collect(),
            argv,
        })
    }

    /// Watches a start whose view is mounted.
    pub(super) fn begin_start(
        self: &Arc<Self>,
        plan: StartPlan,
        holder: Holder,
        mounted: &Mounted,
        layers: &[Arc<ServedLayer>],
        tree: ViewTree,
        loading: Option<Pending>,
    ) {
        let (is_shared, is_narrow) = self.views.look(&mounted.view).unwrap_or_default();
        if is_shared {
            self.starts.note_shared(&mounted.view);
        }
        let Watched {
            different,
            watched,
            present,
            borrows,
        } = Watched::of(&plan, layers);
        let watch = Arc::new(Watch::new(command_of(&holder)));
        let start = Arc::new(ActiveStart {
            view: mounted.view.clone(),
            path: mounted.path.clone(),
            facts: Facts {
                reference: mounted.reference.clone(),
                manifest: mounted.manifest,
                argv: plan.argv,
                layers: different,
                present,
                borrows,
                recorded: None,
                loaded: None,
                began_ms: milliseconds_since_1970(),
            },
            loading,
            learns: plan.learns,
            began: Instant::now(),
            holder,
            limit: match plan.has_probe {
                true => WITH_PROBE,
                false => WITHOUT_PROBE,
            },
            is_narrow,
            is_shared: AtomicBool::new(is_shared),
            watch: watch.clone(),
            inodes: tree.tree.inodes.len(),
            tree: Mutex::new(Some(tree)),
            is_over: tokio::sync::Mutex::new(false),
        });
        if !self.starts.add(start.clone()) {
            if start.learns {
                self.widen_after(start.view.clone(), START);
            }
            return;
        }
        for (number, served) in watched {
            served.watchers().add(number, watch.clone());
        }
        self.end_at_limit(&start);
    }

    /// Gives a start up that goes on for long.
    fn end_at_limit(self: &Arc<Self>, start: &Arc<ActiveStart>) {
        let (this, limit) = (self.clone(), start.limit);
        // Not held for so long: what it has is freed when it is over.
        let start = Arc::downgrade(start);
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            if let Some(start) = start.upgrade() {
                let over = Over {
                    end: StartEnd::Limit,
                    container: None,
                    at_ms: milliseconds_since_1970(),
                };
                this.end_start(start, over).await;
            }
        });
    }

    /// A command says that its start is over.
    pub(super) async fn note_start_over(
        self: &Arc<Self>,
        holder: &Holder,
        user: Option<Identity>,
        over: &Over,
    ) -> Result<Reply, Failure> {
        if let Some(user) = user {
            self.remember_user(holder.clone(), user).await;
        }
        self.end_starts(holder, over).await;
        Ok(Reply::Done)
    }

    /// The starts of a holder are over, if they were not before. Returns when all that is to be known of them is.
    pub(super) async fn end_starts(self: &Arc<Self>, holder: &Holder, over: &Over) {
        for start in self.starts.of(holder) {
            self.end_start(start, over.clone()).await;
        }
    }

    async fn end_start(self: &Arc<Self>, start: Arc<ActiveStart>, over: Over) {
        let mut is_over = start.is_over.lock().await;
        if *is_over {
            return;
        }
        let ended = start.clone();
        // A container that is gone is not kept waiting.
        let patience = match over.end {
            StartEnd::Ended => Duration::ZERO,
            StartEnd::Ready | StartEnd::Limit => SOON,
        };
        let facts = start.facts_at_end(patience).await;
        let concluded = self
            .in_background(move |this| this.conclude(&ended, &facts, over))
            .await;
        if let Err(failure) = concluded {
            warn!("cannot report what a start read: {failure}");
        }
        if start.learns {
            // While it learns nothing is read ahead, however long it takes; whether that held was asked just now.
            let rest = match &start.loading {
                Some(_) => START.saturating_sub(start.began.elapsed()),
                None => Duration::ZERO,
            };
            self.widen_after(start.view.clone(), rest);
        }
        *is_over = true;
        lock(&self.starts.active).retain(|active| !Arc::ptr_eq(active, &start));
    }

    /// Blocks, for some milliseconds.
    fn conclude(&self, start: &ActiveStart, facts: &Facts, mut over: Over) {
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
        self.starts.remember(report);
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
    fn waits_of(&self, start: &ActiveStart, over: &Over) -> Vec<xebec_fill::waits::WaitRecord> {
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
        let running = xebec_container::list(self.images.paths().run()).ok()?;
        let mut own = running
            .records
            .into_iter()
            .filter(|record| record.supervisor.unsigned_abs() == *pid);
        own.next().map(|record| record.id)
    }

    /// The last start: of a container or an image, if that is named.
    pub(super) async fn explain_start(self: &Arc<Self>, name: Option<&str>) -> Result<StartReport, Failure> {
        // One that is just over is waited for; one that goes on is not.
        let active: Vec<Arc<ActiveStart>> = lock(&self.starts.active).clone();
        for start in &active {
            drop(start.is_over.lock().await);
        }
        let reference = name.and_then(|name| name.parse::<xebec_oci::Reference>().ok());
        let reference = reference.map(|reference| reference.to_string());
        let past = lock(&self.starts.past);
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
