//! A runtime image for a new version of an image, predicted from what was recorded of an earlier one in the same repository.
//!
//! * `wanted`: the new version.
//! * `sources`: the earlier versions, the one that fits best first, and their recordings.
//! * `layers`: indexes of layers, with what they say of contents.
//! * `decoded`: the pages, decoded from the layers and verified.
//! * `zone`: pages become a zone and an artifact.
//!
//! Which pages they are says `xebec_prediction`. All of it is one thread's work, which leaves most of a processor to others.
//!
//! Promises: only blobs of the same repository are read. Pages are what the layers have, whatever recordings say: each was compared with
//! the digest in its index. What users push bounds neither memory, nor work, nor time. The artifact is recorded last, so a process
//! that is killed leaves none or a whole one.

mod decoded;
mod layers;
mod sources;
mod wanted;
mod zone;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;
use xebec_artifact::recording::RUNTIME_IMAGE_TYPE;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{RecordedLayer, Service};
use xebec_kernel::process::give_way;
use xebec_oci::image_config::ImageConfig;
use xebec_prediction::command::OwnCommand;
use xebec_prediction::files::Files;
use xebec_prediction::services::{self, Recorded};
use xebec_store::Store;

pub(crate) use self::layers::read_blob;
use self::layers::{Layers, Read};
use self::sources::{Source, Sources};
pub(crate) use self::wanted::Wanted;
use crate::layer::{LayerError, NICE};
use crate::publish::here;

/// A prediction that takes longer is given up: the next image waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of an image.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It has a recording already.
    Recorded,
    /// No earlier version has one.
    NothingBefore,
    /// The artifact.
    Predicted(Digest),
}

/// Predicts, unless there is a recording.
///
/// # Errors
/// Why nothing can be predicted.
pub(crate) async fn predict(store: &Store, wanted: Wanted) -> Result<Outcome, LayerError> {
    let (store, handle) = (store.clone(), Handle::current());
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = move || {
        if let Err(error) = give_way(NICE) {
            tracing::debug!("predicting goes on with the priority of everything else: {error}");
        }
        let predicted = async {
            tokio::time::timeout(
                PATIENCE,
                Prediction {
                    store: &store,
                    wanted: &wanted,
                }
                .make(),
            )
            .await
        };
        let _ = tell.send(handle.block_on(predicted).unwrap_or_else(|_| {
            Err(LayerError::Never(format!(
                "it takes longer than {} s",
                PATIENCE.as_secs()
            )))
        }));
    };
    let thread = std::thread::Builder::new().name("predict".to_owned()).spawn(work);
    thread.map_err(|error| LayerError::Now(format!("start a thread: {error}")))?;
    told.await
        .unwrap_or_else(|_| Err(LayerError::Never("predicting failed at this image".to_owned())))
}

struct Prediction<'a> {
    store: &'a Store,
    wanted: &'a Wanted,
}

impl Prediction<'_> {
    async fn make(&self) -> Result<Outcome, LayerError> {
        let Wanted {
            repository, image, ..
        } = self.wanted;
        let subject = here(image.descriptor.digest);
        let recorded = self
            .store
            .bare_referrers(repository, &subject, Some(RUNTIME_IMAGE_TYPE), 1, None);
        if !recorded.await?.items.is_empty() {
            return Ok(Outcome::Recorded);
        }
        let order = distinct(&image.order());
        let named = self.named(&order)?;
        let mut sources = Sources::find(self.store, self.wanted).await?;
        let mut problem = None;
        while let Some(source) = sources.next(self.store, self.wanted).await? {
            match self.services((&order, &named), &source).await {
                Ok((_, services)) if services.is_empty() => {
                    let none = "none of the recorded services or pages is in it";
                    problem = Some(LayerError::Never(none.to_owned()));
                }
                Ok((layers, services)) => return self.publish(&source, &layers, services).await,
                Err(passing @ LayerError::Now(_)) => return Err(passing),
                // Another version may have what serves.
                Err(other) => problem = Some(other),
            }
        }
        problem.map_or(Ok(Outcome::NothingBefore), Err)
    }

    /// The index of each layer.
    fn named(&self, order: &[Digest]) -> Result<BTreeMap<Digest, Digest>, LayerError> {
        let named = order.iter().map(|layer| {
            let blobs = self.wanted.indexes.layers.get(layer);
            let blobs =
                blobs.ok_or_else(|| LayerError::Never(format!("layer {layer} has no index beside it")))?;
            Ok((*layer, blobs.index.digest))
        });
        named.collect()
    }

    async fn publish(
        &self,
        source: &Source,
        layers: &[Read],
        services: Vec<Service>,
    ) -> Result<Outcome, LayerError> {
        let repository = &self.wanted.repository;
        let wanted = services.iter().flat_map(services::pages).collect();
        let decoded = decoded::decode(self.store, repository, layers, wanted).await?;
        let services = services::without(services, &decoded.missing);
        if services.is_empty() {
            return Err(LayerError::Never("its layers are not lazy".to_owned()));
        }
        let artifact = zone::publish(self.store, self.wanted, source, layers, services, &decoded).await?;
        Ok(Outcome::Predicted(artifact))
    }

    /// The different layers of the image (`order`, with their indexes), and the services that are predicted.
    async fn services(
        &self,
        (order, named): (&[Digest], &BTreeMap<Digest, Digest>),
        source: &Source,
    ) -> Result<(Vec<Read>, Vec<Service>), LayerError> {
        let Wanted {
            repository, image, ..
        } = self.wanted;
        let mut layers = Layers::new(self.store, repository);
        let new = layers.files(&image.order(), named).await?;
        let old_order = distinct(&source.image.order());
        let mut recorded = Vec::new();
        let mut old_indexes: BTreeMap<Digest, Digest> = BTreeMap::new();
        for recording in &source.recordings {
            // Recordings that go by another index than the newest one name other pages.
            let goes_by = |layer: &RecordedLayer| {
                old_indexes
                    .get(&layer.layer)
                    .is_none_or(|known| *known == layer.index)
            };
            if !recording.layers.iter().all(goes_by) {
                continue;
            }
            old_indexes.extend(recording.layers.iter().map(|layer| (layer.layer, layer.index)));
            let number = |layer: &RecordedLayer| {
                let place = old_order.iter().position(|other| *other == layer.layer);
                place.and_then(|place| u16::try_from(place).ok())
            };
            let numbers: Vec<Option<u16>> = recording.layers.iter().map(number).collect();
            recorded.push((recording, numbers));
        }
        let old = layers.files(&source.image.order(), &old_indexes).await?;
        let services = self.carried(source, &recorded, &old, &new)?;
        drop((old, new));
        Ok((layers.only(order, named)?, services))
    }

    fn carried(
        &self,
        source: &Source,
        recordings: &[(&xebec_format::runtime_image::Recording, Vec<Option<u16>>)],
        old: &Files,
        new: &Files,
    ) -> Result<Vec<Service>, LayerError> {
        let config = ImageConfig::parse(&self.wanted.config)
            .map_err(|error| LayerError::Never(format!("the image's configuration: {error}")))?;
        let own = |config: &ImageConfig| (config.config.entrypoint.clone(), config.config.cmd.clone());
        let (before, now) = (own(&source.config), own(&config));
        let [before, now] = [&before, &now].map(|(entrypoint, command)| OwnCommand { entrypoint, command });
        let recorded: Vec<Recorded<'_>> = recordings
            .iter()
            .flat_map(|(recording, numbers)| {
                recording
                    .services
                    .iter()
                    .map(move |service| Recorded { service, numbers })
            })
            .collect();
        let program = concat!("xebec-registry ", env!("CARGO_PKG_VERSION"));
        Ok(services::predict(&recorded, (old, new), (&before, &now), program))
    }
}

/// Each once, where it stands first.
fn distinct(all: &[Digest]) -> Vec<Digest> {
    let mut distinct: Vec<Digest> = Vec::new();
    for digest in all {
        if !distinct.contains(digest) {
            distinct.push(*digest);
        }
    }
    distinct
}
