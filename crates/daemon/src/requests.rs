//! What the command line asks for.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::warn;
use xebec_cache::store::LayerKey;
use xebec_container::Identity;
use xebec_fill::fill_service::FillService;
use xebec_fill::usage::Reservation;
use xebec_images::images::{Images, Report};
use xebec_images::prepare::PreparedImage;
use xebec_kernel::journal::Journal;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::settings::Settings;
use xebec_protocol::wire::LayerPair;
use xebec_protocol::wire::{
    Allowed, Completion, Holder, ImageRequest, Mounted, Purpose, Reply, Request, ServiceCommand,
};
use xebec_recordings::bandwidth::Paces;
use xebec_recordings::prepare::{ForService, PreparedStart};
use xebec_recordings::recordings::Recordings;
use xebec_views::recording_admission::{Reliance, Strictness, Use};
use xebec_views::sharing::SharedContents;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

use crate::background::{Background, run_without_turn};
use crate::loading::{Loading, Loadings};
use crate::quota::Quota;
use crate::snapshots::Snapshots;
use crate::start_facts::Over;
use crate::starts::Starts;
use crate::view_lease::HeldView;

/// How often an image is prepared anew because a layer of it was evicted meanwhile. Once it is prepared its layers
/// are the last to go, so a second time is unlikely.
const PREPARATIONS: usize = 3;

/// What a view is mounted for.
pub(super) struct Order {
    pub(super) holder: Holder,
    pub(super) completion: Option<Completion>,
    pub(super) purpose: Purpose,
    /// What is allowed on the directory that holds it.
    pub(super) allowed: Allowed,
    /// A profile is to be kept: nothing is read ahead at first, whether there are free pages or not, and what earlier
    /// starts read is in nobody's memory.
    pub(super) learns: bool,
}

/// Everything that requests need.
pub struct Requests {
    pub(super) images: Images,
    pub(super) recordings: Recordings,
    pub(super) fills: Arc<FillService>,
    pub(super) views: Arc<Views>,
    pub(super) suspects: Suspects,
    pub(super) shared: Arc<SharedContents>,
    pub(super) journal: Arc<Journal>,
    pub(super) settings: Settings,
    pub(super) quota: Quota,
    pub(super) paces: Arc<Paces>,
    pub(super) strictness: Arc<Strictness>,
    pub(super) starts: Starts,
    pub(super) loadings: Loadings,
    pub(super) background: Background,
    /// Views that were mounted, by name, with their metadata, which is not on the disk yet.
    pub(super) unsynced_views: Mutex<Vec<(String, PathBuf)>>,
    /// Held while corrections of pages are counted.
    pub(super) corrections: Mutex<()>,
    pub(super) stop: tokio::sync::Notify,
    /// Nothing needs this daemon any more, and nothing may come to.
    pub(super) ended: AtomicBool,
    /// Tells conversations that another worker will answer.
    pub(super) hand_over: tokio::sync::Notify,
    /// What containerd is served by, if it is.
    pub(super) snapshots: Snapshots,
}

impl Requests {
    /// Carries a request out.
    pub(super) async fn answer(self: Arc<Self>, request: Request, report: &Report) -> Result<Reply, Failure> {
        if request.wants_image() && !self.goes_on()? {
            return Ok(Reply::Again);
        }
        match request {
            Request::Mount {
                image,
                holder,
                require_lazy,
                completion,
                purpose,
                allowed,
                wants_configuration: _,
            } => {
                if let Holder::Directory { path } = &holder {
                    // Before anything is fetched.
                    self.views.check_target(path)?;
                }
                let order = Order {
                    holder,
                    completion,
                    purpose,
                    allowed,
                    learns: false,
                };
                self.mount(&image, require_lazy, order, report).await
            }
            Request::StartOver {
                holder,
                container,
                ready_ms,
                user,
            } => {
                if let Some(user) = user {
                    self.remember_user(holder.clone(), user).await;
                }
                self.end_starts(&holder, &Over::told(container, ready_ms)).await;
                Ok(Reply::Done)
            }
            Request::Release { view, holder } => {
                // While the view is there.
                self.end_starts(&holder, &Over::told(None, None)).await;
                match &holder {
                    Holder::Directory { path } => self.views.release_directory(path)?,
                    _ => self.views.release(view.as_deref(), &holder)?,
                }
                self.forget_unused();
                Ok(Reply::Done)
            }
            Request::Pull { image, complete } => self.pull(&image, complete, report).await,
            Request::Prove { image } => self.prove_image(&image, report).await,
            Request::Cache => Ok(Reply::Cache(Box::new(
                self.in_background(|this| this.survey()).await?,
            ))),
            Request::Collect { target, dry_run } => {
                let limit = self.settings.cache_size.map(|size| size.0);
                let collected = self.in_background(move |this| this.collect(target.or(limit), dry_run));
                Ok(Reply::Collected(Box::new(collected.await?)))
            }
            Request::Pin { image, pinned } => self.pin(&image, pinned).map(|()| Reply::Done),
            Request::Forget { image } => {
                let forgotten = self.in_background(move |this| this.forget_image(&image));
                Ok(Reply::Forgotten(Box::new(forgotten.await??)))
            }
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Explain { name } => {
                let explained = self.in_background(move |this| this.explain(&name));
                Ok(Reply::Explained(Box::new(explained.await??)))
            }
            Request::ExplainStart { name } => {
                let report = self.explain_start(name.as_deref()).await?;
                Ok(Reply::Start(Box::new(report)))
            }
            Request::Metrics => {
                let text = self
                    .metrics()
                    .map_err(|error| Failure::host("write metrics", error))?;
                Ok(Reply::Metrics { text })
            }
            Request::Loaded { view } => Ok(Reply::Loaded {
                loaded: self.loadings.of(&view).await,
            }),
            Request::Touched { view } => self.touched(&view).map(Reply::Touched),
            Request::Stop { force } => self.in_background(move |this| this.stop(force)).await?,
        }
    }

    pub(super) async fn mount(
        self: &Arc<Self>,
        request: &ImageRequest,
        require_lazy: bool,
        mut order: Order,
        report: &Report,
    ) -> Result<Reply, Failure> {
        let completion = order.completion;
        let service = match &order.purpose {
            Purpose::Service(command) => Some(command),
            Purpose::Files | Purpose::Recording => None,
        };
        let (start, reservation) = self.prepare(request, require_lazy, service, report).await?;
        let (mut prepared, recording) = (start.image, start.recording);
        if order.purpose != Purpose::Recording {
            self.fetch_contents(request, &mut prepared).await;
        }
        let policy = self.images.policy()?;
        let reliance = self
            .strictness
            .claim(Use::of(&prepared, &order.purpose), &policy)
            .await;
        self.check_injected(&prepared, &order.purpose).await?;
        let loading = self.begin_loading(&prepared, recording).await?;
        prepared.written().await?;
        let is_free = loading.as_ref().is_some_and(|loading| !loading.free.is_empty());
        let plan = match order.holder {
            // containerd does not say when it is ready, or what it is.
            Holder::Snapshot { .. } => None,
            _ => self.plan_start(&prepared, &order.purpose),
        };
        let learns = plan.as_ref().is_some_and(|plan| plan.learns);
        order.learns = learns;
        let holder = order.holder.clone();
        let mounted = self.in_background(move |this| {
            let _reservation = reservation;
            let _building = this
                .quota
                .building
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            // The daemon may have been told to stop since the image was asked for.
            match this.goes_on()? {
                true => {
                    let mounted = this.mount_prepared(prepared, order, loading.as_ref(), &reliance);
                    mounted.map(|(mounted, view)| Some((mounted, view, loading)))
                }
                false => Ok(None),
            }
        });
        let Some((mounted, view, loading)) = mounted.await?? else {
            return Ok(Reply::Again);
        };
        let populates = is_free && !learns && !view.was_mounted;
        let loaded = loading.map(|loading| self.finish_loading(&view, loading, populates));
        // What learns is let read ahead when it has learned.
        if is_free && !learns {
            self.widen_later(mounted.view.clone());
        }
        match plan {
            Some(plan) => self.begin_start(plan, holder, &mounted, &view.layers, view.tree, loaded),
            None => self.starts.note_shared(&mounted.view),
        }
        self.complete_in_background(view.layers, completion);
        Ok(Reply::Mounted(Box::new(mounted)))
    }

    /// Keeps with what is known of an image who its user is, unless that is kept already.
    async fn remember_user(self: &Arc<Self>, holder: Holder, user: Identity) {
        let remember = move |this: &Self| {
            let views = this.views.held();
            let view = views.into_iter().find(|view| view.holders.contains(&holder))?;
            let records = this.images.records();
            let remembered = records.change(view.manifest, |record| record.user = Some(user));
            remembered.err()
        };
        if let Ok(Some(failure)) = self.in_background(remember).await {
            warn!("{failure}");
        }
    }

    /// Does what takes long or blocks, in a thread for that.
    pub(super) async fn in_background<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let this = self.clone();
        self.background.run(move || work(&this)).await
    }

    /// The same for what the daemon does of itself, which waits for no request.
    pub(super) async fn without_turn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let this = self.clone();
        run_without_turn(move || work(&this)).await
    }

    /// Prepares an image, and sees to it that its layers stay until the reservation goes.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        request: &ImageRequest,
        require_lazy: bool,
        service: Option<&ServiceCommand>,
        report: &Report,
    ) -> Result<(PreparedStart, Reservation), Failure> {
        let paces = &self.paces;
        let service = service.map(|command| ForService { command, paces });
        for _ in 0..PREPARATIONS {
            let prepared = self
                .recordings
                .prepare(request, require_lazy, service, report)
                .await?;
            if let Some(reservation) = self.reserve(&prepared.image).await? {
                return Ok((prepared, reservation));
            }
        }
        let message = format!(
            "layers of {} are evicted as soon as they are known; is the cache's limit far too small?",
            request.reference
        );
        Err(Failure::new(FailureKind::Host, message))
    }

    /// Waits until a prepared image is on the disk, by which it is found again without its registry.
    pub(super) async fn keep(&self, prepared: &mut PreparedImage) -> Result<(), Failure> {
        prepared.written().await?;
        let layers = prepared.layers.iter().map(|layer| layer.key);
        let image = prepared.found.manifest_digest;
        self.images.synced(layers, Some(image)).await
    }

    /// Sees to it that a prepared image's layers stay until the reservation goes; `None` if one is gone already.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        prepared: &PreparedImage,
    ) -> Result<Option<Reservation>, Failure> {
        let keys: Vec<LayerKey> = prepared.layers.iter().map(|layer| layer.key).collect();
        let reserved = self.in_background(move |this| {
            let reservation = this.fills.usage().reserve(keys.iter().copied());
            let is_there = keys.iter().all(|key| this.images.store().touch(*key).is_ok());
            is_there.then_some(reservation)
        });
        reserved.await
    }

    /// Whether layers are still there, now that none of them is going.
    pub(super) async fn are_there(self: &Arc<Self>, keys: &[LayerKey]) -> Result<bool, Failure> {
        let keys = keys.to_vec();
        self.in_background(move |this| {
            let _reservation = this.fills.usage().reserve(keys.iter().copied());
            keys.iter().all(|key| this.images.store().contains(*key))
        })
        .await
    }

    fn mount_prepared(
        &self,
        prepared: PreparedImage,
        order: Order,
        loading: Option<&Loading>,
        reliance: &Reliance,
    ) -> Result<(Mounted, HeldView), Failure> {
        let start = Instant::now();
        let view = self.hold_view(&prepared, &order, loading, reliance)?;
        let mut stages_ms: std::collections::BTreeMap<String, f64> = prepared
            .stages_ms
            .iter()
            .map(|(name, ms)| ((*name).to_owned(), *ms))
            .collect();
        stages_ms.insert("view".to_owned(), view.built_ms);
        stages_ms.insert(
            "mount".to_owned(),
            start.elapsed().as_secs_f64() * 1e3 - view.built_ms,
        );
        let config: serde_json::Value = serde_json::from_slice(&prepared.found.config_bytes)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        let lazy = !prepared.layers.iter().any(|layer| layer.read_whole);
        let layers = view.layers.iter().map(|served| LayerPair {
            layer: served.layer().key().layer,
            index: served.layer().key().index,
        });
        let is_recording = order.purpose == Purpose::Recording;
        let mounted = Mounted {
            layers: layers.collect(),
            path: view.path.clone(),
            reference: prepared.found.reference.to_string(),
            manifest: prepared.found.manifest_digest,
            config,
            stages_ms,
            lazy,
            recording: is_recording.then(|| self.images.paths().recording_mounts().join(&view.name)),
            view: view.name.clone(),
        };
        Ok((mounted, view))
    }

    /// Content digests are worth a request only when there is something to share with.
    async fn fetch_contents(&self, request: &ImageRequest, prepared: &mut PreparedImage) {
        if self.shared.is_empty() {
            return;
        }
        for layer in &mut prepared.layers {
            self.images.fetch_contents(request, &prepared.found, layer).await;
        }
    }

    async fn pull(
        self: &Arc<Self>,
        request: &ImageRequest,
        complete: bool,
        report: &Report,
    ) -> Result<Reply, Failure> {
        let before = self.images.clients().stats().bytes_received;
        let (start, _reservation) = self.prepare(request, false, None, report).await?;
        let mut prepared = start.image;
        self.keep(&mut prepared).await?;
        if complete {
            let keys: Vec<LayerKey> = prepared.layers.iter().map(|layer| layer.key).collect();
            self.in_background(move |this| this.enforce(this.missing_bytes(&keys)))
                .await?;
            let total = prepared.found.layers.iter().map(|layer| layer.size).sum();
            let mut done = 0;
            for layer in &prepared.layers {
                let served = self.fills.serve(layer.key, Some(&layer.index))?;
                self.complete(&served, Duration::ZERO, false).await?;
                done += layer.index.layer_size;
                report(Reply::Progress {
                    what: prepared.found.reference.to_string(),
                    done,
                    total: Some(total),
                });
            }
            self.forget_unused();
            self.in_background(|this| this.enforce(0)).await?;
        }
        let bytes = self
            .images
            .clients()
            .stats()
            .bytes_received
            .saturating_sub(before);
        Ok(Reply::Pulled {
            manifest: prepared.found.manifest_digest,
            bytes,
        })
    }

    /// Called now and then.
    pub(super) fn sweep(&self) {
        self.views.sweep();
        self.suspects.sweep();
        self.forget_unused();
    }

    /// Layers of no view are served no more; their files stay.
    pub(super) fn forget_unused(&self) {
        // A layer that is forgotten takes what it found with it.
        for served in self.fills.all() {
            self.raise_lies(&served);
        }
        let views = self.views.list();
        // Nothing comes for a view that lingers.
        self.loadings
            .retain(|name| views.iter().any(|view| view.name == name && view.is_held()));
        let views = views.into_iter().flat_map(|view| view.layers);
        let used: HashSet<LayerKey> = views.chain(self.suspects.layers()).map(LayerKey::from).collect();
        self.fills.retain(|key| used.contains(&key));
    }
}
