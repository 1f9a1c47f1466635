//! Images that are brought to this host without a view: `xebec pull`, `xebec check --prove`.

use std::sync::Arc;
use std::time::Duration;

use xebec_fill::fill_service::FillService;
use xebec_images::images::{Images, Report};
use xebec_images::proof::Verdict;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::{Completion, ImageRequest, ProvedLayer, Reply};

use crate::completion::Completions;
use crate::preparation::Preparation;
use crate::proofs::{Proofs, alarm};
use crate::stopping::Stopping;
use crate::view_cleanup::ViewCleanup;

/// Brings images to this host.
pub(crate) struct Pulls {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) preparation: Arc<Preparation>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) proofs: Arc<Proofs>,
    pub(crate) cleanup: Arc<ViewCleanup>,
    pub(crate) stopping: Arc<Stopping>,
}

impl Pulls {
    /// Brings an image here, and all of its layers if they are to be `complete`.
    pub(crate) async fn pull(
        &self,
        request: &ImageRequest,
        complete: bool,
        report: &Report,
    ) -> Result<Reply, Failure> {
        self.stopping
            .unless_told(self.bring(request, complete, report))
            .await
    }

    /// Brings an image here, all of it, and proves each of its layers.
    pub(crate) async fn prove_image(
        &self,
        request: &ImageRequest,
        report: &Report,
    ) -> Result<Reply, Failure> {
        self.stopping.unless_told(self.prove(request, report)).await
    }

    async fn bring(&self, request: &ImageRequest, complete: bool, report: &Report) -> Result<Reply, Failure> {
        let before = self.images.clients().stats().bytes_received;
        let (start, _reservation) = self.preparation.prepare(request, false, None, report).await?;
        let mut prepared = start.image;
        self.preparation.keep(&mut prepared).await?;
        if complete {
            let at_once = Completion { deadline_seconds: 0 };
            self.completions
                .complete_image(&self.images, request, &mut prepared, at_once, report)
                .await?;
            self.cleanup.forget_unused();
            self.completions.make_room(Vec::new()).await?;
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

    async fn prove(&self, request: &ImageRequest, report: &Report) -> Result<Reply, Failure> {
        let (start, _reservation) = self.preparation.prepare(request, false, None, report).await?;
        let mut prepared = start.image;
        self.preparation.keep(&mut prepared).await?;
        self.completions
            .fetch_contents(&self.images, request, &mut prepared)
            .await;
        let mut layers = Vec::new();
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, Some(&layer.index))?;
            self.completions.bring_in(&served, Duration::ZERO, false).await?;
            let problem = match self.proofs.prove(layer.key).await? {
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
        self.cleanup.forget_unused();
        Ok(Reply::Proved { layers })
    }
}
