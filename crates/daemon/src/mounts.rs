//! Mounts an image for a holder: the image is prepared, admitted for the readers of its layers, loaded and held.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use xebec_fill::usage::Reservation;
use xebec_images::images::{Images, Report};
use xebec_images::prepare::PreparedImage;
use xebec_oci::Reference;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Completion, Holder, ImageRequest, LayerPair, Mounted, Purpose, Reply};
use xebec_views::recording_admission::{RecordingAdmission, TrustGuard, TrustRequirement};
use xebec_views::views::{Shown, Views};

use crate::background::Background;
use crate::building::Building;
use crate::completion::Completions;
use crate::ending::Ending;
use crate::held_view::HeldView;
use crate::integrity_check::IntegrityCheck;
use crate::loaded_images::Loading;
use crate::order::Order;
use crate::preparation::Preparation;
use crate::runtime_images::RuntimeImages;
use crate::start_facts::Over;
use crate::start_table::StartPlan;
use crate::starts::{MountedStart, Starts};
use crate::stopping::Stopping;
use crate::view_cleanup::ViewCleanup;
use crate::view_lease::ViewLeases;
use crate::view_read_ahead::ViewReadAhead;

/// The work that follows once the client has its view.
struct FollowUp {
    plan: Option<StartPlan>,
    completion: Option<Completion>,
    holder: Holder,
    /// Some pages are read in place of the blob cache.
    is_free: bool,
}

/// An image that only has to be mounted, and stays until that is done.
struct Ready {
    prepared: PreparedImage,
    loading: Option<Loading>,
    guard: TrustGuard,
    reservation: Reservation,
}

/// Mounts images.
pub(crate) struct Mounts {
    pub(crate) images: Images,
    pub(crate) views: Arc<Views>,
    pub(crate) recording_admission: Arc<RecordingAdmission>,
    pub(crate) preparation: Arc<Preparation>,
    pub(crate) integrity: Arc<IntegrityCheck>,
    pub(crate) runtime_images: Arc<RuntimeImages>,
    pub(crate) building: Arc<Building>,
    pub(crate) leases: ViewLeases,
    pub(crate) starts: Arc<Starts>,
    pub(crate) read_ahead: Arc<ViewReadAhead>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) stopping: Arc<Stopping>,
    pub(crate) background: Background,
}

impl Mounts {
    /// Mounts an image for a holder, which gives it back by [`Mounts::release`].
    pub(crate) async fn mount(
        self: &Arc<Self>,
        request: &ImageRequest,
        require_lazy: bool,
        mut order: Order,
        report: &Report,
    ) -> Result<Reply, Failure> {
        // Before anything is fetched.
        let shown = self.look_at_target(request, &order)?;
        let ready = self.make_ready(request, require_lazy, &order.purpose, report);
        let Ready {
            prepared,
            loading,
            guard,
            reservation,
        } = self.stopping.unless_told(ready).await?;
        if let Some(shown) = shown {
            return self.mounted_already(shown, &prepared, order.completion);
        }
        let plan = match order.holder {
            // containerd says neither which service it starts, nor when that is ready.
            Holder::Snapshot { .. } => None,
            _ => self.starts.plan(&prepared, &order.purpose),
        };
        order.learns = plan.as_ref().is_some_and(|plan| plan.learns);
        let follow = FollowUp {
            plan,
            completion: order.completion,
            holder: order.holder.clone(),
            is_free: loading.as_ref().is_some_and(|loading| !loading.free.is_empty()),
        };
        let this = self.clone();
        let mounted = self.background.run(move || {
            let _reservation = reservation;
            this.mount_unless_ending(prepared, order, loading, &guard)
        });
        let Some((mounted, view, loading)) = mounted.await?? else {
            return Ok(Reply::Again);
        };
        self.follow_mount(follow, &mounted, view, loading);
        Ok(Reply::Mounted(Box::new(mounted)))
    }

    /// Prepares an image, and the pages of its recording that are loaded before it is mounted.
    async fn make_ready(
        &self,
        request: &ImageRequest,
        require_lazy: bool,
        purpose: &Purpose,
        report: &Report,
    ) -> Result<Ready, Failure> {
        let service = match purpose {
            Purpose::Service(command) => Some(command),
            Purpose::Files | Purpose::Recording => None,
        };
        let (start, reservation) = self
            .preparation
            .prepare(request, require_lazy, service, report)
            .await?;
        let (mut prepared, recording) = (start.image, start.recording);
        if *purpose != Purpose::Recording {
            self.fetch_contents(request, &mut prepared).await;
        }
        let policy = self.images.policy()?;
        let guard = self
            .recording_admission
            .claim(TrustRequirement::of(&prepared, purpose), &policy)
            .await;
        self.integrity.check_injected(&prepared, purpose).await?;
        let loading = self.runtime_images.begin(&prepared, recording).await?;
        prepared.written().await?;
        Ok(Ready {
            prepared,
            loading,
            guard,
            reservation,
        })
    }

    /// Checks that a directory can show the image; gives the view that it shows already, if that may be the same.
    fn look_at_target(&self, request: &ImageRequest, order: &Order) -> Result<Option<Shown>, Failure> {
        let Holder::Directory { path } = &order.holder else {
            return Ok(None);
        };
        let Some(shown) = self.views.shown_on(path)? else {
            return self.views.check_target(path).map(|()| None);
        };
        let named = request.reference.parse::<Reference>();
        let is_named = named.is_ok_and(|named| named.to_string() == shown.reference);
        match is_named && shown.allowed == order.allowed {
            true => Ok(Some(shown)),
            false => Err(shown.refusal()),
        }
    }

    /// A directory shows the image already, if the name still means the same one. So a command that is asked for twice, since the
    /// worker that carried it out died before it could say so, mounts once.
    fn mounted_already(
        &self,
        shown: Shown,
        prepared: &PreparedImage,
        completion: Option<Completion>,
    ) -> Result<Reply, Failure> {
        if shown.manifest != prepared.found.manifest_digest {
            return Err(shown.refusal());
        }
        let view = shown.view;
        if let Some(completion) = completion {
            self.views.complete_later(&view.name, completion);
            let layers = view.layers.iter();
            let layers = layers.filter_map(|pair| self.completions.fills.find((*pair).into()));
            self.completions.begin(layers.collect(), Some(completion));
        }
        let mounted = Mounted {
            path: view.path,
            view: view.name,
            layers: view.layers,
            already: true,
            ..describe(prepared)?
        };
        Ok(Reply::Mounted(Box::new(mounted)))
    }

    /// Builds and mounts the view, unless the daemon was told to stop since the image was asked for. Blocks.
    fn mount_unless_ending(
        &self,
        prepared: PreparedImage,
        order: Order,
        loading: Option<Loading>,
        guard: &TrustGuard,
    ) -> Result<Option<(Mounted, HeldView, Option<Loading>)>, Failure> {
        let _building = self.building.begin();
        if !self.ending.goes_on()? {
            return Ok(None);
        }
        let (mounted, view) = self.mount_prepared(prepared, order, loading.as_ref(), guard)?;
        Ok(Some((mounted, view, loading)))
    }

    /// Begins the work that follows when the client has its view: the rest of a runtime image, the watch over its start, completion.
    fn follow_mount(&self, follow: FollowUp, mounted: &Mounted, view: HeldView, loading: Option<Loading>) {
        let learns = follow.plan.as_ref().is_some_and(|plan| plan.learns);
        let prefills = follow.is_free && !learns && !view.was_mounted;
        let loaded = loading.map(|loading| self.runtime_images.finish(&view, loading, prefills));
        // A view whose start is learned reads ahead only after that.
        if follow.is_free && !learns {
            self.read_ahead.widen_later(mounted.view.clone());
        }
        match follow.plan {
            Some(plan) => self.starts.begin(MountedStart {
                plan,
                holder: follow.holder,
                mounted,
                layers: &view.layers,
                tree: view.tree,
                loading: loaded,
            }),
            None => self.starts.note_shared(&mounted.view),
        }
        self.completions.begin(view.layers, follow.completion);
    }

    /// A holder gives a view back; a directory is unmounted.
    pub(crate) async fn release(&self, view: Option<&str>, holder: &Holder) -> Result<Reply, Failure> {
        // While the view is there.
        self.starts.end_all(holder, &Over::told(None, None)).await;
        match holder {
            Holder::Directory { path } => self.views.release_directory(path)?,
            _ => self.views.release(view, holder)?,
        }
        self.cleanup.forget_unused();
        Ok(Reply::Done)
    }

    fn mount_prepared(
        &self,
        prepared: PreparedImage,
        order: Order,
        loading: Option<&Loading>,
        guard: &TrustGuard,
    ) -> Result<(Mounted, HeldView), Failure> {
        let start = Instant::now();
        let view = self.leases.hold(&prepared, &order, loading, guard)?;
        let mut mounted = describe(&prepared)?;
        mounted.stages_ms.insert("view".to_owned(), view.built_ms);
        mounted.stages_ms.insert(
            "mount".to_owned(),
            start.elapsed().as_secs_f64() * 1e3 - view.built_ms,
        );
        let layers = view.layers.iter().map(|served| LayerPair {
            layer: served.layer().key().layer,
            index: served.layer().key().index,
        });
        mounted.layers = layers.collect();
        mounted.path.clone_from(&view.path);
        mounted.view.clone_from(&view.name);
        let is_recording = order.purpose == Purpose::Recording;
        mounted.recording = is_recording.then(|| self.images.paths().recording_mounts().join(&view.name));
        Ok((mounted, view))
    }

    /// Content digests are worth a request only when there is something to share with.
    async fn fetch_contents(&self, request: &ImageRequest, prepared: &mut PreparedImage) {
        if self.leases.shared.is_empty() {
            return;
        }
        for layer in &mut prepared.layers {
            self.images.fetch_contents(request, &prepared.found, layer).await;
        }
    }
}

/// The reply about an image when it is mounted; the view is not known yet.
fn describe(prepared: &PreparedImage) -> Result<Mounted, Failure> {
    let config = serde_json::from_slice(&prepared.found.config_bytes)
        .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let stages = prepared.stages_ms.iter();
    Ok(Mounted {
        view: String::new(),
        path: PathBuf::new(),
        layers: Vec::new(),
        reference: prepared.found.reference.to_string(),
        manifest: prepared.found.manifest_digest,
        config,
        stages_ms: stages.map(|(name, ms)| ((*name).to_owned(), *ms)).collect(),
        lazy: !prepared.layers.iter().any(|layer| layer.read_whole),
        recording: None,
        already: false,
    })
}
