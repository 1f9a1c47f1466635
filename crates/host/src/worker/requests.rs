//! What the command line asks for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{error, info, warn};
use xebec_cache::store::LayerKey;
use xebec_kernel::journal::Journal;
use xebec_kernel::mount;

use crate::facts;
use crate::failure::{Failure, FailureKind};
use crate::image::{Images, PreparedImage, Report};
use crate::proof::{self, Verdict};
use crate::protocol::{
    Completion, Counters, Holder, ImageRequest, Mounted, ProvedLayer, Reply, Request, Status, Touched,
    ViewStatus,
};
use crate::sharing::SharedContents;
use crate::view;
use crate::worker::fills::{FillService, ServedLayer};
use crate::worker::views::Views;

/// How long after a layer became complete its proof begins: putting it together and hashing it takes a core, which
/// the container that is just starting needs more.
const PROOF_DELAY: Duration = Duration::from_secs(5);

/// Everything that requests need.
pub struct Requests {
    pub(super) images: Images,
    pub(super) fills: Arc<FillService>,
    pub(super) views: Arc<Views>,
    pub(super) shared: Arc<SharedContents>,
    pub(super) journal: Arc<Journal>,
    pub(super) stop: tokio::sync::Notify,
}

impl Requests {
    /// Carries a request out.
    pub(super) async fn answer(self: Arc<Self>, request: Request, report: &Report) -> Result<Reply, Failure> {
        match request {
            Request::Mount {
                image,
                holder,
                require_lazy,
                completion,
            } => self.mount(&image, holder, require_lazy, completion, report).await,
            Request::Release { view, holder } => {
                if let Holder::Directory { path } = &holder
                    && mount::is_mounted(path).unwrap_or(false)
                {
                    view::unmount(path)?;
                    if mount::is_mounted(path).unwrap_or(false) {
                        // Mounted more than once, one on the other: what is below goes on.
                        return Ok(Reply::Done);
                    }
                }
                self.views.release(view.as_deref(), &holder)?;
                self.forget_unused();
                Ok(Reply::Done)
            }
            Request::Pull { image, complete } => self.pull(&image, complete, report).await,
            Request::Prove { image } => self.prove_image(&image, report).await,
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Touched { view } => self.touched(&view).map(Reply::Touched),
            Request::Stop { force } => self.stop(force),
        }
    }

    async fn mount(
        self: &Arc<Self>,
        request: &ImageRequest,
        holder: Holder,
        require_lazy: bool,
        completion: Option<Completion>,
        report: &Report,
    ) -> Result<Reply, Failure> {
        let mut prepared = self.images.prepare(request, require_lazy, report).await?;
        self.fetch_contents(request, &mut prepared).await;
        let this = self.clone();
        let blocking = tokio::task::spawn_blocking(move || this.mount_prepared(prepared, holder));
        let (mounted, layers) = blocking
            .await
            .map_err(|error| Failure::host("mount a view", error))??;
        self.complete_in_background(layers, completion);
        Ok(Reply::Mounted(Box::new(mounted)))
    }

    fn mount_prepared(
        &self,
        prepared: PreparedImage,
        holder: Holder,
    ) -> Result<(Mounted, Vec<Arc<ServedLayer>>), Failure> {
        let built = view::build(&self.images.paths, &prepared.layers, &self.shared)?;
        let start = Instant::now();
        let layers: Vec<_> = built
            .devices
            .iter()
            .map(|key| self.fills.serve(*key, None))
            .collect::<Result<_, _>>()?;
        let is_complete = |key: LayerKey| {
            layers
                .iter()
                .any(|l| l.layer().key() == key && l.layer().is_complete())
        };
        let reference = prepared.found.reference.to_string();
        let manifest = prepared.found.manifest_digest;
        let path = self
            .views
            .hold(&built, &reference, manifest, holder.clone(), is_complete)?;
        if let Holder::Directory { path: target } = &holder {
            let bound = mount::bind_private(&path, target);
            if let Err(error) = bound {
                let _ = self.views.release(Some(&built.name), &holder);
                return Err(Failure::host(
                    format!("mount the view on {}", target.display()),
                    error,
                ));
            }
        }
        let mut stages_ms: std::collections::BTreeMap<String, f64> = prepared
            .stages_ms
            .iter()
            .map(|(name, ms)| ((*name).to_owned(), *ms))
            .collect();
        stages_ms.insert("view".to_owned(), built.milliseconds);
        stages_ms.insert("mount".to_owned(), start.elapsed().as_secs_f64() * 1e3);
        let config: serde_json::Value = serde_json::from_slice(&prepared.found.config_bytes)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        let lazy = !prepared.layers.iter().any(|layer| layer.read_whole);
        let mounted = Mounted {
            view: built.name,
            path,
            reference,
            manifest,
            config,
            stages_ms,
            lazy,
        };
        Ok((mounted, layers))
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

    fn complete_in_background(
        self: &Arc<Self>,
        layers: Vec<Arc<ServedLayer>>,
        completion: Option<Completion>,
    ) {
        let Some(completion) = completion else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let pause = Duration::from_secs(completion.deadline_seconds)
                / u32::try_from(layers.len().max(1)).unwrap_or(u32::MAX);
            for served in layers {
                if let Err(error) = this.complete(&served, pause).await {
                    warn!("{} was not brought in: {error}", served.layer().key());
                }
            }
        });
    }

    /// Brings all of a layer in and proves it.
    async fn complete(
        self: &Arc<Self>,
        served: &Arc<ServedLayer>,
        deadline: Duration,
    ) -> Result<(), Failure> {
        let integrity = |error: xebec_cache::fill::FillError| Failure::new(FailureKind::Registry, error);
        self.fills.complete(served, deadline).await.map_err(integrity)?;
        let key = served.layer().key();
        if !facts::is_proven(self.images.store(), key)
            && let Verdict::Disproved(problem) = self.prove(key).await?
        {
            return Err(Failure::new(FailureKind::Integrity, alarm(key, &problem)));
        }
        self.shared.learn(self.images.store(), key);
        Ok(())
    }

    /// Proves layers as they become complete, one at a time and not while a start may be under way, and lets others
    /// share their files.
    pub(super) async fn prove_completed(self: Arc<Self>, mut completed: UnboundedReceiver<LayerKey>) {
        while let Some(key) = completed.recv().await {
            tokio::time::sleep(PROOF_DELAY).await;
            if !facts::is_proven(self.images.store(), key)
                && let Err(failure) = self.prove(key).await
            {
                warn!("{key} is not proven: {failure}");
            }
            self.shared.learn(self.images.store(), key);
        }
    }

    async fn prove(self: &Arc<Self>, key: LayerKey) -> Result<Verdict, Failure> {
        let client_source = self.images.clone();
        let verdict = proof::prove(&client_source, key).await?;
        match &verdict {
            Verdict::Proven => info!("{key} is proven"),
            Verdict::Unprovable(reason) => info!("{key} cannot be proven: {reason}"),
            Verdict::Disproved(problem) => self.raise_alarm(key, problem),
        }
        Ok(verdict)
    }

    /// The index is marked already, so nothing that starts from now on uses it. What is mounted cannot be taken
    /// from its readers, so they are named.
    fn raise_alarm(&self, key: LayerKey, problem: &str) {
        error!("{}", alarm(key, problem));
        for view in self.views.list() {
            if view.layers.iter().any(|pair| LayerKey::from(*pair) == key) {
                error!(
                    "ALARM: {} is mounted with it, for {:?}; stop what runs on it",
                    view.reference, view.holders
                );
            }
        }
    }

    async fn pull(
        self: &Arc<Self>,
        request: &ImageRequest,
        complete: bool,
        report: &Report,
    ) -> Result<Reply, Failure> {
        let before = self.images.clients().stats().bytes_received;
        let prepared = self.images.prepare(request, false, report).await?;
        if complete {
            let total = prepared.found.layers.iter().map(|layer| layer.size).sum();
            let mut done = 0;
            for layer in &prepared.layers {
                let served = self.fills.serve(layer.key, None)?;
                self.complete(&served, Duration::ZERO).await?;
                done += layer.index.layer_size;
                report(Reply::Progress {
                    what: prepared.found.reference.to_string(),
                    done,
                    total: Some(total),
                });
            }
            self.forget_unused();
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

    async fn prove_image(
        self: &Arc<Self>,
        request: &ImageRequest,
        report: &Report,
    ) -> Result<Reply, Failure> {
        let prepared = self.images.prepare(request, false, report).await?;
        let mut layers = Vec::new();
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, None)?;
            let integrity = |error: xebec_cache::fill::FillError| Failure::new(FailureKind::Registry, error);
            self.fills
                .complete(&served, Duration::ZERO)
                .await
                .map_err(integrity)?;
            let problem = match self.prove(layer.key).await? {
                Verdict::Proven => None,
                Verdict::Unprovable(reason) => Some(reason),
                Verdict::Disproved(problem) => Some(alarm(layer.key, &problem)),
            };
            layers.push(ProvedLayer {
                layer: layer.key.layer,
                index: layer.key.index,
                problem,
            });
        }
        self.forget_unused();
        Ok(Reply::Proved { layers })
    }

    fn status(&self) -> Status {
        let network = self.images.clients().stats();
        let fills = self.fills.stats();
        let journal = self.journal.counters();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = Counters {
            network_requests: network.requests,
            network_bytes: network.bytes_received,
            network_retries: network.retries,
            events: self.fills.events(),
            hits: count(&fills.hits),
            joins: count(&fills.joins),
            spans: count(&fills.spans),
            bytes_fetched: count(&fills.bytes),
            bytes_written: count(&fills.bytes_written),
            failures: count(&fills.failures),
        };
        let views = self.views.list().into_iter().map(|record| {
            let complete = |key: LayerKey| self.fills.find(key).is_some_and(|l| l.layer().is_complete());
            let complete_layers = record
                .layers
                .iter()
                .filter(|pair| complete((**pair).into()))
                .count();
            ViewStatus {
                view: record.name,
                path: record.path,
                reference: record.reference,
                holders: record.holders,
                layers: record.layers.len(),
                complete_layers,
            }
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            keeper_pid: journal.keeper_pid.unsigned_abs(),
            worker_pid: std::process::id(),
            restarts: u64::from(journal.deaths),
            queue: journal.owed,
            oldest_wait_ms: None,
            counters,
            views: views.collect(),
        }
    }

    fn touched(&self, view: &str) -> Result<Touched, Failure> {
        let views = self.views.list();
        let record = views
            .iter()
            .find(|record| record.name == view)
            .ok_or_else(|| Failure::new(FailureKind::NotFound, format!("no view {view} is mounted")))?;
        let mut touched = Touched::default();
        for pair in &record.layers {
            let key: LayerKey = (*pair).into();
            let Some(served) = self.fills.find(key) else {
                continue;
            };
            touched.pages += served.touched_pages();
            let bytes = self.images.store().index_bytes(key)?;
            let index = xebec_format::layer::LayerIndex::decode(&bytes)
                .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
            touched.files += touched_files(&index, &served);
        }
        Ok(touched)
    }

    fn stop(&self, force: bool) -> Result<Reply, Failure> {
        self.views.sweep();
        let views = self.views.list();
        if !views.is_empty() && !force {
            let names: Vec<_> = views.iter().map(|view| view.path.display().to_string()).collect();
            let message = format!(
                "views are mounted: {}. Unmount them first, or use --force",
                names.join(", ")
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        self.views.clear();
        self.stop.notify_one();
        Ok(Reply::Done)
    }

    /// Unmounts every view, used or not.
    pub(super) fn unmount_all(&self) {
        for view in self.views.list() {
            warn!(
                "told to stop: view {} of {} is unmounted under its users",
                view.path.display(),
                view.reference
            );
        }
        self.views.clear();
    }

    /// Called now and then.
    pub(super) fn sweep(&self) {
        self.views.sweep();
        self.forget_unused();
    }

    /// Whether the guarded mount shows another directory than the one that is now at its path: somebody removed the
    /// root directory under this daemon, and nothing that is written there could be read through the mount.
    pub(super) fn root_was_replaced(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |path: std::path::PathBuf| {
            std::fs::metadata(path)
                .ok()
                .map(|metadata| (metadata.dev(), metadata.ino()))
        };
        let paths = &self.images.paths;
        identity(paths.guarded()) != identity(paths.layers())
    }

    /// Layers of no view are served no more; their files stay.
    fn forget_unused(&self) {
        let views = self.views.list();
        let used = |key: LayerKey| {
            views
                .iter()
                .any(|view| view.layers.iter().any(|pair| LayerKey::from(*pair) == key))
        };
        self.fills.retain(used);
    }

    /// Finds the complete and proven layers of the cache.
    pub(super) fn learn_shared_contents(self: &Arc<Self>) {
        let this = self.clone();
        std::thread::spawn(move || {
            for key in this.images.store().list().unwrap_or_default() {
                let complete = this.images.store().is_complete(key);
                if complete && facts::is_proven(this.images.store(), key) {
                    this.shared.learn(this.images.store(), key);
                }
            }
        });
    }
}

/// What is said of an index that lies.
fn alarm(key: LayerKey, problem: &str) -> String {
    format!(
        "ALARM: the index of {key} shows other contents than the layer has: {problem}. It is not used again; who \
         pushed it may have meant harm"
    )
}

/// How many files of a layer have a page that was asked for.
fn touched_files(index: &xebec_format::layer::LayerIndex, served: &ServedLayer) -> u64 {
    use xebec_format::PAGE_SIZE;
    use xebec_format::layer::EntryKind;
    let is_touched = |entry: &&xebec_format::layer::Entry| match &entry.kind {
        EntryKind::File { extents, .. } => extents.iter().any(|extent| {
            let first = extent.data_offset / PAGE_SIZE;
            let end = (extent.data_offset + extent.length).div_ceil(PAGE_SIZE);
            (first..end).any(|page| served.is_touched(page))
        }),
        _ => false,
    };
    index.entries.iter().filter(is_touched).count() as u64
}
