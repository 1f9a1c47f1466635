//! Images that are brought to this host without a view: `xebec pull`, `xebec check --prove`.

use std::sync::Arc;
use std::time::Duration;

use xebec_cache::store::LayerKey;
use xebec_images::images::Report;
use xebec_images::proof::Verdict;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::{ImageRequest, ProvedLayer, Reply};

use crate::completion::not_brought_in;
use crate::proofs::alarm;
use crate::services::Services;

impl Services {
    pub(crate) async fn pull(
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

    pub(super) async fn prove_image(
        self: &Arc<Self>,
        request: &ImageRequest,
        report: &Report,
    ) -> Result<Reply, Failure> {
        let (start, _reservation) = self.prepare(request, false, None, report).await?;
        let mut prepared = start.image;
        self.keep(&mut prepared).await?;
        let mut layers = Vec::new();
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, Some(&layer.index))?;
            let completed = self.fills.complete(&served, Duration::ZERO, false).await;
            self.report_mismatches(&served);
            completed.map_err(not_brought_in)?;
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
}
