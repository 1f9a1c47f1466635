//! The earlier version from whose recordings a new one is predicted.

use std::cmp::Reverse;

use xebec_artifact::carried::Carried;
use xebec_artifact::recording::RUNTIME_IMAGE_TYPE;
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

/// Images with recordings that are looked at, those with the newest recordings.
const LOOKED_AT: usize = 16;
/// Of them so many, the best ones, are read with their recordings.
const READ: usize = 4;
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

/// The version that shares the most layers, of those that hosts have recorded; of equals the one that was recorded last. If there are
/// none, the best of those that are themselves predicted.
pub(super) async fn find(store: &Store, wanted: &Wanted) -> Result<Option<Source>, LayerError> {
    let repository = &wanted.repository;
    let subjects = store
        .subjects_of_type(repository, RUNTIME_IMAGE_TYPE, LOOKED_AT)
        .await?;
    let layers = wanted.image.order();
    let mut candidates: Vec<(usize, Image)> = Vec::new();
    for subject in subjects {
        let Some(image) = image(store, repository, &subject).await? else {
            continue;
        };
        if image.descriptor.digest != wanted.image.descriptor.digest {
            let shared = image
                .order()
                .iter()
                .filter(|layer| layers.contains(layer))
                .count();
            candidates.push((shared, image));
        }
    }
    // They stay in order where they share as many.
    candidates.sort_by_key(|(shared, _)| Reverse(*shared));
    let (mut read, mut predicted) = (0, None);
    for (_, image) in candidates {
        let Some(config) = same_platform(store, wanted, &image).await? else {
            continue;
        };
        read += 1;
        if read > READ {
            break;
        }
        let recordings = recordings(store, repository, image.descriptor.digest).await?;
        if recordings.is_empty() {
            continue;
        }
        let source = Source {
            image,
            config,
            recordings,
        };
        match source.is_real() {
            true => return Ok(Some(source)),
            false => predicted = predicted.or(Some(source)),
        }
    }
    Ok(predicted)
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

/// The newest recordings of an image that can be read.
async fn recordings(
    store: &Store,
    repository: &RepositoryName,
    subject: Digest,
) -> Result<Vec<Recording>, LayerError> {
    let name = here(subject);
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
        recordings.extend(carried.recording);
    }
    Ok(recordings)
}
