//! Starts of services, from the mount until they are ready: the pages that each asked for, the use of its recording, and the
//! profile that it teaches.
//!
//! While a start is **active** its layers note the pages that are asked for ([`xebec_fill::access_log`]). Its command says when it
//! is over; one without a probe is over when its container ends, and one that goes on for long is given up. Then, in a thread for
//! that and never on the start's way, the page cache of its view is looked at ([`xebec_views::page_cache_residency`]), the report
//! is made (`start_facts`) and, if asked for, a profile kept. A view is given back only after that.
//!
//! All of it is in this worker's memory, and bounded: a worker that is replaced forgets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;
use xebec_container::{Identity, ImageConfig};
use xebec_fill::access_log::Watch;
use xebec_fill::page_set::PageSet;
use xebec_fill::served::ServedLayer;
use xebec_format::runtime_image::RecordedLayer;
use xebec_images::prepare::PreparedImage;
use xebec_images::record::Records;
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_protocol::failure::Failure;
use xebec_protocol::start_report::StartEnd;
use xebec_protocol::wire::{Holder, Mounted, Purpose, Reply};
use xebec_views::view_tree::ViewTree;
use xebec_views::views::Views;

use crate::background::Background;
use crate::loaded_images::{Pending, SOON};
use crate::start_facts::{Facts, Over};
use crate::start_reports::StartReports;
use crate::start_table::{ActiveStart, StartPlan, StartTable};
use crate::view_read_ahead::{START, ViewReadAhead};

/// How long a start without a probe is watched.
const WITHOUT_PROBE: Duration = Duration::from_secs(60);
/// How long one with a probe is.
const WITH_PROBE: Duration = Duration::from_secs(600);
/// The process that asks for a start; 0 if none does.
fn command_of(holder: &Holder) -> u32 {
    match holder {
        Holder::Process { pid, .. } => *pid,
        Holder::Directory { .. } | Holder::Snapshot { .. } => 0,
    }
}

/// How long a start is watched.
fn limit_of(has_probe: bool) -> Duration {
    match has_probe {
        true => WITH_PROBE,
        false => WITHOUT_PROBE,
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

/// A start whose view is mounted.
pub(crate) struct MountedStart<'a> {
    pub(crate) plan: StartPlan,
    pub(crate) holder: Holder,
    pub(crate) mounted: &'a Mounted,
    /// The layers that the view reads, each once.
    pub(crate) layers: &'a [Arc<ServedLayer>],
    pub(crate) tree: ViewTree,
    /// The runtime image that is loaded for it, if one is.
    pub(crate) loading: Option<Pending>,
}

/// Watches starts.
pub(crate) struct Starts {
    pub(crate) table: Arc<StartTable>,
    pub(crate) records: Records,
    pub(crate) views: Arc<Views>,
    pub(crate) read_ahead: Arc<ViewReadAhead>,
    pub(crate) reports: Arc<StartReports>,
    pub(crate) background: Background,
    /// Whether starts with a probe are learned from, if nobody asks for it.
    pub(crate) learns: bool,
}

impl Starts {
    /// The facts about a start before its view is mounted; `None` when it is none, or not to be watched.
    pub(crate) fn plan(&self, prepared: &PreparedImage, purpose: &Purpose) -> Option<StartPlan> {
        let Purpose::Service(command) = purpose else {
            return None;
        };
        let config = ImageConfig::from_blob(&prepared.found.config_bytes).ok()?;
        let argv =
            xebec_container::command_line(&config, command.entrypoint.as_deref(), &command.command).ok()?;
        let by_setting = || {
            let manifest = prepared.found.manifest_digest;
            self.learns && command.has_probe && self.table.is_due(manifest, &argv)
        };
        Some(StartPlan {
            learns: command.learn || by_setting(),
            has_probe: command.has_probe,
            layers: prepared.layers.iter().map(|layer| layer.key).collect(),
            argv,
        })
    }

    /// A view is used that is not watched.
    pub(crate) fn note_shared(&self, view: &str) {
        self.table.note_shared(view);
    }

    /// Watches a start whose view is mounted.
    pub(crate) fn begin(self: &Arc<Self>, start: MountedStart<'_>) {
        let MountedStart {
            plan,
            holder,
            mounted,
            layers,
            tree,
            loading,
        } = start;
        let (is_shared, is_narrow) = self.views.look(&mounted.view).unwrap_or_default();
        if is_shared {
            self.table.note_shared(&mounted.view);
        }
        let Watched {
            different,
            watched,
            present,
            borrows,
        } = Watched::of(&plan, layers);
        let facts = Facts {
            reference: mounted.reference.clone(),
            manifest: mounted.manifest,
            argv: plan.argv,
            layers: different,
            present,
            borrows,
            recorded: None,
            loaded: None,
            began_ms: milliseconds_since_1970(),
        };
        let watch = Arc::new(Watch::new(command_of(&holder)));
        let start = Arc::new(ActiveStart {
            view: mounted.view.clone(),
            path: mounted.path.clone(),
            facts,
            loading,
            learns: plan.learns,
            began: Instant::now(),
            holder,
            limit: limit_of(plan.has_probe),
            is_narrow,
            is_shared: AtomicBool::new(is_shared),
            watch: watch.clone(),
            inodes: tree.tree.inodes.len(),
            tree: Mutex::new(Some(tree)),
            is_over: tokio::sync::Mutex::new(false),
        });
        if !self.table.add(start.clone()) {
            if start.learns {
                self.read_ahead.widen_after(start.view.clone(), START);
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
        // The start is not held for so long: its memory is freed when it is over.
        let start = Arc::downgrade(start);
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            if let Some(start) = start.upgrade() {
                let over = Over {
                    end: StartEnd::Limit,
                    container: None,
                    at_ms: milliseconds_since_1970(),
                };
                this.end(start, over).await;
            }
        });
    }

    /// A command says that its start is over.
    pub(crate) async fn note_over(
        &self,
        holder: &Holder,
        user: Option<Identity>,
        over: &Over,
    ) -> Result<Reply, Failure> {
        if let Some(user) = user {
            self.remember_user(holder.clone(), user).await;
        }
        self.end_all(holder, over).await;
        Ok(Reply::Done)
    }

    /// The starts of a holder are over, if they were not before. Returns when all that is to be known of them is.
    pub(crate) async fn end_all(&self, holder: &Holder, over: &Over) {
        for start in self.table.of(holder) {
            self.end(start, over.clone()).await;
        }
    }

    async fn end(&self, start: Arc<ActiveStart>, over: Over) {
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
        let reports = self.reports.clone();
        let concluded = self
            .background
            .run(move || reports.conclude(&ended, &facts, over));
        if let Err(failure) = concluded.await {
            warn!("cannot report what a start read: {failure}");
        }
        if start.learns {
            // While it learns nothing is read ahead, however long it takes; whether that held was asked just now.
            let rest = match &start.loading {
                Some(_) => START.saturating_sub(start.began.elapsed()),
                None => Duration::ZERO,
            };
            self.read_ahead.widen_after(start.view.clone(), rest);
        }
        *is_over = true;
        self.table
            .active
            .lock()
            .retain(|active| !Arc::ptr_eq(active, &start));
    }

    /// Adds the ids of its user to the record of an image, unless the record has them.
    async fn remember_user(&self, holder: Holder, user: Identity) {
        let (views, records) = (self.views.clone(), self.records.clone());
        let remember = move || {
            let views = views.held();
            let view = views.into_iter().find(|view| view.holders.contains(&holder))?;
            let (_, manifest) = view.image_of(&holder);
            let remembered = records.change(manifest, |record| record.user = Some(user));
            remembered.err()
        };
        if let Ok(Some(failure)) = self.background.run(remember).await {
            warn!("{failure}");
        }
    }
}
