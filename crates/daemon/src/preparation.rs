//! Images are prepared in such a way that their layers stay until what is made of them holds them.

use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_fill::usage::Reservation;
use xebec_images::images::Report;
use xebec_images::prepare::PreparedImage;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{ImageRequest, ServiceCommand};
use xebec_recordings::prepare::{ForService, PreparedStart};

use crate::services::Services;

/// How often an image is prepared anew because a layer of it was evicted meanwhile. Once it is prepared its layers
/// are the last to go, so a second time is unlikely.
const PREPARATIONS: usize = 3;

impl Services {
    /// Prepares an image, and sees to it that its layers stay until the reservation goes.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        request: &ImageRequest,
        require_lazy: bool,
        service: Option<&ServiceCommand>,
        report: &Report,
    ) -> Result<(PreparedStart, Reservation), Failure> {
        let bandwidths = &self.bandwidths;
        let service = service.map(|command| ForService { command, bandwidths });
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
            "layers of {} are evicted before the image is ready; raise cache_size in daemon.toml",
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
}
