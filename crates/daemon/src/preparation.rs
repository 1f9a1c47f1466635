//! Prepares images in such a way that their layers stay until the view that is made of them holds them.

use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::FillService;
use xebec_fill::usage::Reservation;
use xebec_images::images::{Images, Report};
use xebec_images::prepare::PreparedImage;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{ImageRequest, ServiceCommand};
use xebec_recordings::bandwidth::Bandwidths;
use xebec_recordings::prepare::{ForService, PreparedStart};
use xebec_recordings::recordings::Recordings;

use crate::background::Background;

/// How often an image is prepared anew because a layer of it was evicted meanwhile. Once it is prepared its layers
/// are the last to go, so a second time is unlikely.
const PREPARATIONS: usize = 3;

/// Prepares images.
pub(crate) struct Preparation {
    pub(crate) images: Images,
    pub(crate) recordings: Recordings,
    pub(crate) fills: Arc<FillService>,
    pub(crate) bandwidths: Arc<Bandwidths>,
    pub(crate) background: Background,
}

impl Preparation {
    /// Prepares an image, and sees to it that its layers stay until the reservation goes.
    pub(crate) async fn prepare(
        &self,
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
    pub(crate) async fn keep(&self, prepared: &mut PreparedImage) -> Result<(), Failure> {
        prepared.written().await?;
        let layers = prepared.layers.iter().map(|layer| layer.key);
        let image = prepared.found.manifest_digest;
        self.images.synced(layers, Some(image)).await
    }

    /// Sees to it that a prepared image's layers stay until the reservation goes; `None` if one is gone already.
    pub(crate) async fn reserve(&self, prepared: &PreparedImage) -> Result<Option<Reservation>, Failure> {
        let keys: Vec<LayerKey> = prepared.layers.iter().map(|layer| layer.key).collect();
        let (fills, store) = (self.fills.clone(), self.images.store().clone());
        let reserved = self.background.run(move || {
            let reservation = fills.usage().reserve(keys.iter().copied());
            let is_there = keys.iter().all(|key| store.touch(*key).is_ok());
            is_there.then_some(reservation)
        });
        reserved.await
    }

    /// Whether layers are still there, now that none of them is going.
    pub(crate) async fn are_there(&self, keys: &[LayerKey]) -> Result<bool, Failure> {
        let keys = keys.to_vec();
        let (fills, store) = (self.fills.clone(), self.images.store().clone());
        let are_there = self.background.run(move || {
            let _reservation = fills.usage().reserve(keys.iter().copied());
            keys.iter().all(|key| store.contains(*key))
        });
        are_there.await
    }
}
