//! Bringing all of a layer in: then it needs this daemon no more.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};
use xebec_cache::store::{LayerKey, Store};
use xebec_fill::fill_service::{FillService, ServedLayer, Unfilled};
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_images::facts;
use xebec_images::images::{Images, Report};
use xebec_images::prepare::PreparedImage;
use xebec_images::proof::Verdict;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Completion, ImageRequest};
use xebec_views::sharing::SharedContents;
use xebec_views::views::Views;

use crate::background::Background;
use crate::corrections::Corrections;
use crate::durability::Durability;
use crate::fill_failure::kind_of;
use crate::integrity_check::IntegrityCheck;
use crate::proofs::{Proofs, alarm};
use crate::pull_progress::PullProgress;
use crate::quota::Quota;

/// Brings whole layers in.
pub(crate) struct Completions {
    pub(crate) store: Arc<Store>,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) shared: Arc<SharedContents>,
    pub(crate) corrections: Arc<Corrections>,
    pub(crate) integrity: Arc<IntegrityCheck>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) proofs: Arc<Proofs>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) background: Background,
}

impl Completions {
    /// Goes on with the layers that earlier workers were to bring in.
    pub(crate) fn resume(self: &Arc<Self>) {
        for view in self.views.held() {
            let layers = view.layers.iter();
            let layers = layers.filter_map(|pair| self.fills.find((*pair).into()));
            self.begin(layers.collect(), view.completion);
        }
    }

    /// Brings the digests of the files of an image's layers here, if any layer of this host could have the same files.
    pub(crate) async fn fetch_contents(
        &self,
        images: &Images,
        request: &ImageRequest,
        prepared: &mut PreparedImage,
    ) {
        if self.shared.is_empty() {
            return;
        }
        for layer in &mut prepared.layers {
            if !self.store.is_complete(layer.key) {
                images.fetch_contents(request, &prepared.found, layer).await;
            }
        }
    }

    /// Brings all of an image in, one layer after the other, when there is room for all, and tells how far it has come. Each layer has its part of the
    /// time; without a deadline, somebody waits for it.
    pub(crate) async fn complete_image(
        &self,
        images: &Images,
        request: &ImageRequest,
        prepared: &mut PreparedImage,
        completion: Completion,
        report: &Report,
    ) -> Result<(), Failure> {
        self.make_room(prepared.layers.iter().map(|layer| layer.key).collect())
            .await?;
        self.fetch_contents(images, request, prepared).await;
        let count = u32::try_from(prepared.layers.len().max(1)).unwrap_or(u32::MAX);
        let each = Duration::from_secs(completion.deadline_seconds) / count;
        let total = prepared.found.layers.iter().map(|layer| layer.size).sum();
        let mut progress = PullProgress::new(&prepared.found.reference, total, report);
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, Some(&layer.index))?;
            let completed = self.complete(&served, each, !each.is_zero());
            progress.layer(&served, layer.index.layer_size, completed).await?;
        }
        Ok(())
    }

    /// Keeps the cache's limit, with room for the pages that these layers lack.
    pub(crate) async fn make_room(&self, keys: Vec<LayerKey>) -> Result<(), Failure> {
        let quota = self.quota.clone();
        let enforced = self
            .background
            .run(move || quota.enforce(quota.missing_bytes(&keys)));
        enforced.await
    }

    /// Brings layers in while their view is used, if that is asked for.
    pub(crate) fn begin(self: &Arc<Self>, layers: Vec<Arc<ServedLayer>>, completion: Option<Completion>) {
        let Some(completion) = completion else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let pause = Duration::from_secs(completion.deadline_seconds)
                / u32::try_from(layers.len().max(1)).unwrap_or(u32::MAX);
            for served in layers {
                if let Err(error) = this.complete(&served, pause, true).await {
                    warn!("{} was not brought in: {error}", served.layer().key());
                }
            }
        });
    }

    /// Brings all of a layer in.
    pub(crate) async fn bring_in(
        &self,
        served: &Arc<ServedLayer>,
        deadline: Duration,
        in_background: bool,
    ) -> Result<(), Failure> {
        self.copy_known(served).await;
        let completed = self.fills.complete(served, deadline, in_background).await;
        self.corrections.report_mismatches(served);
        completed.map_err(not_brought_in)
    }

    /// Copies the files of a layer that other layers of this host have. What cannot be copied is fetched.
    async fn copy_known(&self, served: &Arc<ServedLayer>) {
        if self.shared.is_empty() || served.layer().is_complete() {
            return;
        }
        let (store, shared, key) = (self.store.clone(), self.shared.clone(), served.layer().key());
        let found = tokio::task::spawn_blocking(move || {
            let index = LayerIndex::decode(&store.index_bytes(key).ok()?).ok()?;
            let digests = std::fs::read(store.directory().join(key.folder()).join("contents")).ok()?;
            let is_whole = index.contents.as_ref()?.digest == Digest::of(&digests);
            is_whole.then(|| shared.local_contents(&store, key, &index, &digests))
        });
        let Some(local) = found.await.ok().flatten().filter(|local| !local.is_empty()) else {
            return;
        };
        match self.fills.copy(served, local).await {
            Ok(0) => {}
            Ok(spared) => info!(%key, spared, "files that other layers have were copied"),
            // Fetching meets the same disk, and says so to those that wait.
            Err(error) => debug!(%key, "files of other layers were not copied: {error}"),
        }
    }

    /// Brings all of a layer in and proves it.
    pub(crate) async fn complete(
        &self,
        served: &Arc<ServedLayer>,
        deadline: Duration,
        in_background: bool,
    ) -> Result<(), Failure> {
        self.bring_in(served, deadline, in_background).await?;
        let key = served.layer().key();
        self.integrity.compare_injected(served).await?;
        self.durability.sync_layer(served).await?;
        if !facts::is_proven(&self.store, key)
            && let Verdict::Disproved(problem) = self.proofs.prove(key).await?
        {
            return Err(Failure::new(FailureKind::Integrity, alarm(key, &problem)));
        }
        self.shared.learn(&self.store, key);
        Ok(())
    }
}

fn not_brought_in(error: Unfilled) -> Failure {
    let kind = match &error {
        Unfilled::Failed(error) => kind_of(error),
        Unfilled::Ending => FailureKind::Host,
    };
    Failure::new(kind, error)
}
