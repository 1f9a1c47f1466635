//! An image for the start of a service: its recording is found first, since the indexes of its layers may come with that, and
//! its pages are on their way while the rest is prepared.

use std::sync::Arc;
use std::time::Instant;

use tracing::warn;
use xebec_artifact::recording::RUNTIME_IMAGE_TYPE;
use xebec_format::digest::Digest;
use xebec_images::admission::Admission;
use xebec_images::background_write::BackgroundWrite;
use xebec_images::choose::{Choice, NotChosen};
use xebec_images::found_image::FoundImage;
use xebec_images::images::Report;
use xebec_images::in_advance::{OnTheWay, Starting};
use xebec_images::prepare::PreparedImage;
use xebec_images::prepared_layer::PreparedLayer;
use xebec_images::referrers::{ConfigCarriers, Referrers};
use xebec_kernel::keyed_lock::KeyGuard;
use xebec_oci::Client;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::{ImageRequest, ServiceCommand};

use crate::bandwidth::Bandwidths;
use crate::find::{ASK_AGAIN, FoundRecording};
use crate::index_from_recording::BundledIndexFetch;
use crate::recordings::Recordings;
use crate::zone::{ZoneSource, ZoneStream};

/// A recording by which a service is started.
pub struct Begun {
    /// The recording.
    pub found: Arc<FoundRecording>,
    /// Where its zones come from.
    pub source: ZoneSource,
    /// The part of its zone that is on its way already.
    pub open: Option<ZoneStream>,
    /// It is being written down. Its pages must not be used before that: they could not be distrusted later.
    pub keeping: BackgroundWrite,
    /// Other starts of the same service wait until this goes; it may when it is known which pages are on their way.
    pub turn: Option<KeyGuard>,
}

/// An image whose layers all have an admitted index, and the recording by which a service of it is started.
pub struct PreparedStart {
    /// The image.
    pub image: PreparedImage,
    /// The recording, or why one that fits may not be used; `None` if there is none.
    pub recording: Option<Result<Begun, String>>,
}

/// A service for which an image is prepared.
#[derive(Clone, Copy)]
pub struct ForService<'a> {
    /// The command line of the service.
    pub command: &'a ServiceCommand,
    /// Measurements of registries.
    pub bandwidths: &'a Arc<Bandwidths>,
}

impl Recordings {
    /// Resolves an image and finds an admitted index for each of its layers; for a service, its recording first.
    ///
    /// # Errors
    /// When it cannot be resolved, when an index is refused, and with `require_lazy` when a layer has none.
    pub async fn prepare(
        &self,
        request: &ImageRequest,
        require_lazy: bool,
        service: Option<ForService<'_>>,
        report: &Report,
    ) -> Result<PreparedStart, Failure> {
        let Some(service) = service else {
            let image = self.images.prepare(request, require_lazy, report).await?;
            return Ok(PreparedStart {
                image,
                recording: None,
            });
        };
        let start = Instant::now();
        let resolving = self.resolve_for_service(request, service.command, report);
        let (found, OnTheWay { referrers, client }) = resolving.await?;
        let resolved = Instant::now();
        let client = match client {
            Some(client) => client,
            None => self.images.clients().get(request.docker_config.as_deref())?,
        };
        let referrers = referrers.unwrap_or_else(|| {
            let repository = found.reference.repository();
            match found.is_part {
                false => Referrers::at_once(client.clone(), repository, found.manifest_digest),
                true => Referrers::by_type(client.clone(), repository, found.manifest_digest),
            }
        });
        let mut choice = Choice::new(&self.images, request, &found, &referrers)?.asking(client.clone());
        // A service is recorded on all of its image.
        let recording = match found.is_part {
            false => {
                self.begin_recording(service, client, &found, &referrers, &mut choice)
                    .await?
            }
            true => None,
        };
        let begun = Instant::now();
        let (layers, keeping) = choice.prepare(require_lazy, report).await?;
        let stages_ms = vec![
            ("resolve", (resolved - start).as_secs_f64() * 1e3),
            ("find", (begun - resolved).as_secs_f64() * 1e3),
            ("index", begun.elapsed().as_secs_f64() * 1e3),
        ];
        Ok(PreparedStart {
            image: PreparedImage::new(found, layers, keeping, stages_ms),
            recording,
        })
    }

    /// Finds an image whose configuration may come from one of its recordings.
    async fn resolve_for_service(
        &self,
        request: &ImageRequest,
        command: &ServiceCommand,
        report: &Report,
    ) -> Result<(FoundImage, OnTheWay), Failure> {
        let are_due = |manifest| self.kept.asked(manifest).is_none_or(|ago| ago >= ASK_AGAIN);
        let is_wanted = |manifest, recording| !self.kept.is_distrusted(manifest, recording);
        let carriers = ConfigCarriers {
            artifact_type: RUNTIME_IMAGE_TYPE,
            are_due: &are_due,
            is_wanted: &is_wanted,
        };
        let starting = Starting { carriers, command };
        self.images.resolve_with(request, Some(&starting), report).await
    }

    /// Finds an index for each layer, of the manifest if one is named, and keeps the image's record for starts while
    /// the registry is away. The indexes may come with the recording of a service; then its pages are on their way,
    /// and the image is given as it would be prepared for a start, if all of it is lazy.
    ///
    /// # Errors
    /// When the image cannot be resolved or the registry cannot be asked for indexes.
    pub async fn admission(
        &self,
        request: &ImageRequest,
        manifest: Option<Digest>,
        service: ForService<'_>,
        report: &Report,
    ) -> Result<(Admission, Option<PreparedStart>), Failure> {
        let found = self.images.resolve_for(request, manifest, report).await?;
        let client = self.images.clients().get(request.docker_config.as_deref())?;
        let (repository, digest) = (found.reference.repository(), found.manifest_digest);
        let referrers = Referrers::at_once(client.clone(), repository, digest);
        let mut choice = Choice::new(&self.images, request, &found, &referrers)?;
        let recording = self
            .begin_recording(service, client, &found, &referrers, &mut choice)
            .await;
        let recording = recording.unwrap_or_else(|failure| {
            warn!("{failure}; its layers are pulled without a runtime image");
            None
        });
        let chosen = choice.without_reading().await?;
        let admission = self.images.admission(&found, &chosen).await?;
        let layers: Result<Vec<PreparedLayer>, NotChosen> = chosen.into_iter().collect();
        let prepared = match (layers, recording) {
            (Ok(layers), Some(Ok(begun))) => Some(PreparedStart {
                image: PreparedImage::new(found, layers, BackgroundWrite::default(), Vec::new()),
                recording: Some(Ok(begun)),
            }),
            _ => None,
        };
        Ok((admission, prepared))
    }

    async fn begin_recording(
        &self,
        service: ForService<'_>,
        client: Client,
        found: &FoundImage,
        referrers: &Referrers,
        choice: &mut Choice<'_>,
    ) -> Result<Option<Result<Begun, String>>, Failure> {
        let recording = self
            .find_recording(&client, found, referrers, service.command)
            .await?;
        let (recording, keeping) = match recording {
            Ok((recording, keeping)) => (Arc::new(recording), keeping),
            Err(refused) => return Ok(refused.map(Err)),
        };
        let repository = found.reference.repository().clone();
        let bandwidths = service.bandwidths.clone();
        let source = ZoneSource::new(client.without_answers(), repository, bandwidths, &recording);
        let in_advance = source.in_advance(&client);
        let carried = BundledIndexFetch {
            store: self.images.store(),
            reference: found.reference.to_string(),
            found: &recording,
            source: &source,
        };
        let (turn, open) = carried.begin(choice, &self.starts, in_advance).await;
        Ok(Some(Ok(Begun {
            found: recording,
            source,
            open,
            keeping,
            turn,
        })))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;
