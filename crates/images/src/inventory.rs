//! The images and layers that are known and cached: for `xebec inspect`, `images` and `cache stat`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use xebec_artifact::own_table::has_table_of_contents;
use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_kernel::disk_usage;
use xebec_oci::{Descriptor, Reference};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{CacheReport, CachedLayerInfo, ImageRequest};

use crate::check::known_image;
use crate::choose::NotChosen;
use crate::facts;
use crate::images::{Images, Report};
use crate::lazy;
use crate::prepared_layer::PreparedLayer;

/// The value of [`LayerInfo::lazy_by`] for a layer that is not lazy.
const NOT_LAZY: &str = "not lazy";

/// An image, as `xebec inspect` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ImageInfo {
    /// The reference, in full.
    pub reference: String,
    /// The image index on the way.
    pub image_index: Option<Digest>,
    /// The manifest.
    pub manifest: Digest,
    /// Operating system and architecture.
    pub platform: String,
    /// Size of all layer blobs, in bytes.
    pub size: u64,
    /// Whether every layer can be lazy now.
    pub lazy: bool,
    /// The layers, bottom to top.
    pub layers: Vec<LayerInfo>,
}

/// A layer, as `xebec inspect` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct LayerInfo {
    /// The layer blob.
    pub layer: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Its media type's codec.
    pub codec: String,
    /// The reason that it is lazy: its table of contents or an index; or the words that it is not.
    pub lazy_by: String,
    /// Why it is not lazy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Whether it can be lazy.
    pub lazy: bool,
    /// The root of trust that its index rests on; `refused` when there is one that may not be used, and `-` without one.
    pub trust: String,
    /// Spans, if an index is on this host.
    pub spans: Option<u64>,
    /// Pages of the data space, 0 if unknown.
    pub pages: u64,
    /// Pages that are present.
    pub present_pages: u64,
}

/// All layers in the cache, as the files show: their users are not looked at.
///
/// # Errors
/// When the cache cannot be read.
pub fn cached_layers(images: &Images) -> Result<Vec<CachedLayerInfo>, Failure> {
    let keys = images.store().list()?;
    Ok(keys.into_iter().map(|key| cached_layer(images, key)).collect())
}

/// The cached layers, their users (by `user_of`), and the layers that may be evicted.
pub fn survey(
    images: &Images,
    limit: Option<u64>,
    user_of: impl Fn(LayerKey) -> Option<String>,
) -> CacheReport {
    let records = images.records().list();
    let pinned: Vec<_> = records.iter().filter(|record| record.pinned).collect();
    let keys = images.store().list().unwrap_or_default();
    let layers = keys.into_iter().map(|key| {
        let pin = pinned
            .iter()
            .find(|record| record.layers.iter().any(|layer| layer.key() == key));
        CachedLayerInfo {
            pinned_by: pin.map(|record| match record.references.first() {
                Some(reference) => reference.clone(),
                None => record.manifest_digest.to_string(),
            }),
            in_use_by: user_of(key),
            ..cached_layer(images, key)
        }
    });
    let layers: Vec<CachedLayerInfo> = layers.collect();
    let evictable = layers.iter().filter(|layer| layer.is_evictable());
    CacheReport {
        limit,
        used_bytes: used_bytes(images),
        evictable_bytes: evictable.map(|layer| layer.disk_bytes).sum(),
        layers,
    }
}

/// Disk space of the cache on its file system, in bytes.
pub fn used_bytes(images: &Images) -> u64 {
    let paths = &images.paths;
    let named = [paths.layers(), paths.images(), paths.views()];
    let named = disk_usage::of_all(named.iter().map(|path| &**path));
    named.bytes + arriving_bytes(&paths.layers())
}

/// Disk space of a directory with all that is in it, in bytes. A directory that cannot be read counts nothing.
pub fn disk_bytes(directory: &Path) -> u64 {
    disk_usage::of_all([directory]).bytes
}

/// Disk space of this process's files without a name (see `whole_blob_download`), in bytes.
fn arriving_bytes(layers: &Path) -> u64 {
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let arriving = descriptors.filter(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        target.starts_with(layers) && target.to_string_lossy().ends_with("/arriving (deleted)")
    });
    let bytes = arriving.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.blocks() * 512));
    bytes.sum()
}

/// A layer that is damaged has no pages.
fn cached_layer(images: &Images, key: LayerKey) -> CachedLayerInfo {
    let store = images.store();
    let (pages, present_pages) = store.look(key).map_or((0, 0), |layer| {
        (layer.presence().pages(), layer.presence().present())
    });
    let last_used = store.last_used(key).duration_since(SystemTime::UNIX_EPOCH);
    CachedLayerInfo {
        layer: key.layer,
        index: key.index,
        pages,
        present_pages,
        disk_bytes: disk_bytes(&store.folder(key)),
        proven: facts::is_proven(store, key),
        last_used: last_used.map_or(0, |elapsed| elapsed.as_secs()),
        pinned_by: None,
        in_use_by: None,
    }
}

/// A request by a name of the image, if it was made by the digest of one that this host knows, or the first digits of that.
fn by_name(images: &Images, request: &ImageRequest) -> Result<ImageRequest, Failure> {
    let record = match request.reference.parse::<Digest>() {
        Ok(_) => known_image(images, request)?,
        Err(_) => match images.records().named(&request.reference)? {
            Some(record) => record,
            None => return Ok(request.clone()),
        },
    };
    let reference = request.reference.parse::<Reference>().ok();
    let is_its_name = |reference: &Reference| {
        reference.digest() == Some(record.manifest_digest)
            || record.references.contains(&reference.to_string())
    };
    if reference.as_ref().is_some_and(is_its_name) {
        return Ok(request.clone());
    }
    let reference = record.references.first().cloned().ok_or_else(|| {
        let message = format!(
            "the image {} has no name on this host any more, so that no registry can be asked for it; name it as \
             REPOSITORY@{}",
            request.reference, record.manifest_digest
        );
        Failure::new(FailureKind::NotFound, message)
    })?;
    Ok(ImageRequest {
        reference,
        // Its name may lead elsewhere by now.
        manifest: Some(record.manifest_digest),
        ..request.clone()
    })
}

fn without_index(descriptor: &Descriptor, not_chosen: &NotChosen) -> LayerInfo {
    let codec = descriptor.media_type.rsplit(['.', '+']).next();
    LayerInfo {
        layer: descriptor.digest,
        size: descriptor.size,
        codec: codec.unwrap_or_default().to_owned(),
        lazy_by: NOT_LAZY.to_owned(),
        why_not: Some(not_chosen.reason.clone()),
        lazy: false,
        trust: match not_chosen.is_refused {
            true => "refused".to_owned(),
            false => "-".to_owned(),
        },
        spans: None,
        pages: 0,
        present_pages: 0,
    }
}

fn with_index(images: &Images, descriptor: &Descriptor, layer: &PreparedLayer) -> LayerInfo {
    let why_not = lazy::why_not(&layer.index);
    let by = match has_table_of_contents(descriptor) {
        _ if why_not.is_some() => NOT_LAZY,
        true => "its own contents table",
        false => "index",
    };
    LayerInfo {
        layer: descriptor.digest,
        size: descriptor.size,
        codec: format!("{:?}", layer.index.codec).to_lowercase(),
        lazy: why_not.is_none(),
        lazy_by: by.to_owned(),
        why_not,
        trust: layer.root.to_string(),
        spans: Some(layer.index.spans.len() as u64),
        pages: layer.index.data_size / PAGE_SIZE,
        present_pages: cached_layer(images, layer.key).present_pages,
    }
}

/// The facts about an image that the registry and the cache have. Only its manifest, configuration and indexes are
/// fetched for them.
///
/// # Errors
/// When it cannot be resolved.
pub async fn inspect_image(
    images: &Images,
    request: &ImageRequest,
    report: &Report,
) -> Result<ImageInfo, Failure> {
    let request = by_name(images, request)?;
    let found = images.resolve(&request, report).await?;
    let chosen = images.find_indexes(&request, &found).await?;
    let config: serde_json::Value = serde_json::from_slice(&found.config_bytes)
        .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let text = |name: &str| {
        config
            .get(name)
            .and_then(|value| value.as_str())
            .unwrap_or("?")
            .to_owned()
    };
    let layers = found.layers.iter().zip(&chosen);
    let layers: Vec<LayerInfo> = layers
        .map(|(descriptor, chosen)| match chosen {
            Ok(layer) => with_index(images, descriptor, layer),
            Err(not_chosen) => without_index(descriptor, not_chosen),
        })
        .collect();
    Ok(ImageInfo {
        reference: found.reference.to_string(),
        image_index: found.image_index.as_ref().map(|(digest, _)| *digest),
        manifest: found.manifest_digest,
        platform: format!("{}/{}", text("os"), text("architecture")),
        size: found.layers.iter().map(|layer| layer.size).sum(),
        lazy: layers.iter().all(|layer| layer.lazy),
        layers,
    })
}
