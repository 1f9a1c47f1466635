//! The earlier version from whose recordings a new one is predicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

use xebec_artifact::carried::Carried;
use xebec_artifact::recording::{PREDICTED_FROM, RUNTIME_IMAGE_TYPE};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::Recording;
use xebec_oci::Manifest;
use xebec_oci::image_config::{ImageConfig, MAX_CONFIG_SIZE};
use xebec_store::{ManifestWithin, RepositoryName, Store};

use super::layers::read_blob;
use super::wanted::Wanted;
use crate::image::Image;
use crate::layer::LayerError;
use crate::publish::here;

/// Images with recordings that are looked at, those with the newest recordings. One that has only predictions stands for the image from
/// whose recordings those come, so that many new versions do not hide the one that was recorded.
const LOOKED_AT: usize = 16;
/// Of them so many, the best ones, are read with their recordings.
const READ: usize = 4;
/// So many of those that have only predictions are read after them.
const READ_PREDICTED: usize = 2;
/// The newest recordings of an image.
const RECORDINGS: usize = 8;
/// What refers to an image is looked at up to this many.
const LISTED: usize = 64;
/// A larger manifest, or recording outside of its manifest, is not read, in bytes.
const MOST_READ: u64 = 4 << 20;
/// Recordings of one image take no more memory, in bytes.
const MOST_DECODED: u64 = 24 << 20;

/// An earlier version with recordings.
pub(super) struct Source {
    pub(super) image: Image,
    pub(super) config: ImageConfig,
    /// The newest first; at least one.
    pub(super) recordings: Vec<Recording>,
}

impl Source {
    /// Whether a host has recorded one of its services.
    fn is_real(&self) -> bool {
        let mut services = self.recordings.iter().flat_map(|recording| &recording.services);
        services.any(|service| !service.is_predicted())
    }
}

/// The earlier versions with recordings, the best ones first: those that hosts have recorded, then those that are themselves predicted. Of
/// either, the one that shares the most layers comes first, of equals the one that was recorded last.
pub(super) struct Sources {
    recorded: VecDeque<Image>,
    predicted: VecDeque<Image>,
    /// How many may still be read, of each.
    left: (usize, usize),
}

impl Sources {
    /// Looks for them.
    pub(super) async fn find(store: &Store, wanted: &Wanted) -> Result<Self, LayerError> {
        let repository = &wanted.repository;
        let subjects = store
            .subjects_of_type(repository, RUNTIME_IMAGE_TYPE, LOOKED_AT)
            .await?;
        let (mut recorded, mut predicted, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for subject in subjects {
            match origin(store, repository, &subject).await? {
                Some(origin) => {
                    origins.push(origin);
                    predicted.push(subject);
                }
                None => recorded.push(subject),
            }
        }
        recorded.extend(origins);
        Ok(Self {
            recorded: images(store, wanted, recorded).await?,
            predicted: images(store, wanted, predicted).await?,
            left: (READ, READ_PREDICTED),
        })
    }

    /// The next one that is for the same platform and has a recording that can be used.
    pub(super) async fn next(
        &mut self,
        store: &Store,
        wanted: &Wanted,
    ) -> Result<Option<Source>, LayerError> {
        loop {
            let recorded = (self.left.0 > 0).then(|| self.recorded.pop_front()).flatten();
            let is_recorded = recorded.is_some();
            let predicted = || (self.left.1 > 0).then(|| self.predicted.pop_front()).flatten();
            let Some(image) = recorded.or_else(predicted) else {
                return Ok(None);
            };
            let Some(config) = same_platform(store, wanted, &image).await? else {
                continue;
            };
            match is_recorded {
                true => self.left.0 -= 1,
                false => self.left.1 -= 1,
            }
            let source = Source {
                recordings: recordings(store, &wanted.repository, &image).await?,
                image,
                config,
            };
            match source.is_real() || !is_recorded {
                _ if source.recordings.is_empty() => {}
                true => return Ok(Some(source)),
                // Its artifact does not say that it is predicted.
                false => self.predicted.push_back(source.image),
            }
        }
    }
}

/// The image from whose recordings the newest prediction for an image comes, if it has nothing but predictions. An annotation is anybody's
/// word; it leads to an image of the same repository, which is looked at as any other.
async fn origin(
    store: &Store,
    repository: &RepositoryName,
    subject: &xebec_store::Digest,
) -> Result<Option<xebec_store::Digest>, LayerError> {
    let listed = store.referrers(repository, subject, Some(RUNTIME_IMAGE_TYPE), LISTED, None);
    let listed = listed.await?;
    let is_predicted = |item: &xebec_store::Referrer| item.annotations.contains_key(PREDICTED_FROM);
    if listed.next || !listed.items.iter().all(is_predicted) {
        return Ok(None);
    }
    let newest = listed.items.iter().max_by_key(|item| item.created);
    let origin = newest.and_then(|item| item.annotations.get(PREDICTED_FROM));
    Ok(origin.and_then(|origin| origin.parse().ok()))
}

/// The images among these manifests, each once, without the new version itself. The one that shares the most layers with that comes first;
/// they stay in order where they share as many.
async fn images(
    store: &Store,
    wanted: &Wanted,
    subjects: Vec<xebec_store::Digest>,
) -> Result<VecDeque<Image>, LayerError> {
    let layers = wanted.image.order();
    let mut known = vec![wanted.image.descriptor.digest];
    let mut candidates: Vec<(usize, Image)> = Vec::new();
    for subject in subjects {
        let Some(image) = image(store, &wanted.repository, &subject).await? else {
            continue;
        };
        if known.contains(&image.descriptor.digest) {
            continue;
        }
        known.push(image.descriptor.digest);
        let order = image.order();
        let shared = order.iter().filter(|layer| layers.contains(layer)).count();
        candidates.push((shared, image));
    }
    candidates.sort_by_key(|(shared, _)| Reverse(*shared));
    Ok(candidates.into_iter().map(|(_, image)| image).collect())
}

async fn image(
    store: &Store,
    repository: &RepositoryName,
    digest: &xebec_store::Digest,
) -> Result<Option<Image>, LayerError> {
    match store.manifest_within(repository, digest, MOST_READ).await? {
        Some(ManifestWithin::Whole(manifest)) => {
            Ok(Image::of(&manifest.media_type, &manifest.content).ok().flatten())
        }
        _ => Ok(None),
    }
}

/// Its configuration, if it is for the same platform.
async fn same_platform(
    store: &Store,
    wanted: &Wanted,
    image: &Image,
) -> Result<Option<ImageConfig>, LayerError> {
    let own = ImageConfig::parse(&wanted.config).ok();
    let bytes = read_blob(store, &wanted.repository, image.config().digest, MAX_CONFIG_SIZE).await?;
    let other = bytes.and_then(|bytes| ImageConfig::parse(&bytes).ok());
    let platform = |config: &ImageConfig| {
        (
            config.os.clone(),
            config.architecture.clone(),
            config.variant.clone(),
        )
    };
    Ok(other.filter(|other| own.as_ref().is_some_and(|own| platform(own) == platform(other))))
}

/// The newest recordings of an image that can be read, and whose indexes the repository has: one that names others, of a user who pushed
/// anything, must not stand in the way of the others.
async fn recordings(
    store: &Store,
    repository: &RepositoryName,
    image: &Image,
) -> Result<Vec<Recording>, LayerError> {
    let (subject, order) = (image.descriptor.digest, image.order());
    let name = here(subject);
    let mut indexes = HashMap::new();
    let listed = store.bare_referrers(repository, &name, Some(RUNTIME_IMAGE_TYPE), LISTED, None);
    let mut listed = listed.await?.items;
    listed.sort_by_key(|item| Reverse(item.created));
    let (mut recordings, mut memory) = (Vec::new(), 0);
    for item in listed.into_iter().take(RECORDINGS) {
        let found = store.manifest_within(repository, &item.digest, MOST_READ).await?;
        let Some(ManifestWithin::Whole(manifest)) = found else {
            continue;
        };
        let Ok(parsed) = Manifest::parse(&manifest.content, Some(&manifest.media_type)) else {
            continue;
        };
        let mut carried = Carried::read(parsed, subject);
        if let Some(apart) = carried.apart.take()
            && let Some(bytes) = read_blob(store, repository, apart.digest, MOST_READ).await?
        {
            carried.take_recording(&bytes, subject);
        }
        memory += carried.memory();
        if memory > MOST_DECODED {
            break;
        }
        if let Some(recording) = carried.recording
            && has_indexes(store, repository, (&order, &recording), &mut indexes).await?
        {
            recordings.push(recording);
        }
    }
    Ok(recordings)
}

/// Whether a recording names an index of each layer of its image, and the repository has all of them. `known`: which of them it has.
async fn has_indexes(
    store: &Store,
    repository: &RepositoryName,
    (order, recording): (&[Digest], &Recording),
    known: &mut HashMap<Digest, bool>,
) -> Result<bool, LayerError> {
    let named = recording.layers.iter().map(|layer| (layer.layer, layer.index));
    let named: BTreeMap<Digest, Digest> = named.collect();
    for layer in order {
        let Some(index) = named.get(layer) else {
            return Ok(false);
        };
        let is_here = match known.get(index) {
            Some(is_here) => *is_here,
            None => store.peek_blob(repository, &here(*index)).await?.is_some(),
        };
        known.insert(*index, is_here);
        if !is_here {
            return Ok(false);
        }
    }
    Ok(true)
}
