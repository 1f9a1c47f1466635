//! What is known and cached: for `xebec inspect`, `images` and `cache stat`.

use std::os::unix::fs::MetadataExt;

use serde::Serialize;
use xebec_cache::store::LayerKey;
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;

use crate::check::known_image;
use crate::facts;
use crate::failure::{Failure, FailureKind};
use crate::image::{Images, Report};
use crate::lazy::{self, has_table_of_contents};
use crate::protocol::ImageRequest;

/// A layer in the cache.
#[derive(Clone, Debug, Serialize)]
pub struct CachedLayerInfo {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
    /// Pages of the data space.
    pub pages: u64,
    /// Pages that are present.
    pub present_pages: u64,
    /// What it takes on the file system, in bytes.
    pub disk_bytes: u64,
    /// Whether this host proved the index.
    pub proven: bool,
}

impl CachedLayerInfo {
    /// The layer's key in the store.
    pub fn key(&self) -> LayerKey {
        LayerKey {
            layer: self.layer,
            index: self.index,
        }
    }
}

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
    /// By what it is lazy: its table of contents, an index; or why it is not.
    pub lazy_by: String,
    /// Whether it can be lazy.
    pub lazy: bool,
    /// The root of trust that its index rests on.
    pub trust: String,
    /// Spans, if an index is on this host.
    pub spans: Option<u64>,
    /// Pages of the data space, 0 if unknown.
    pub pages: u64,
    /// Pages that are present.
    pub present_pages: u64,
}

/// All layers in the cache.
///
/// # Errors
/// When the cache cannot be read. Damaged layers are left out.
pub fn cached_layers(images: &Images) -> Result<Vec<CachedLayerInfo>, Failure> {
    let keys = images.store().list()?;
    Ok(keys
        .into_iter()
        .filter_map(|key| cached_layer(images, key))
        .collect())
}

fn cached_layer(images: &Images, key: LayerKey) -> Option<CachedLayerInfo> {
    let store = images.store();
    let cached = store.look(key).ok()?;
    let data = std::fs::metadata(cached.directory().join("data")).ok()?;
    Some(CachedLayerInfo {
        layer: key.layer,
        index: key.index,
        pages: cached.presence().pages(),
        present_pages: cached.presence().present(),
        // `st_blocks` counts units of 512 bytes whatever the file system's block size is.
        disk_bytes: data.blocks() * 512,
        proven: facts::is_proven(store, key),
    })
}

/// What is to be known of an image, from the registry and from the cache; nothing is fetched but its manifest,
/// configuration and indexes.
///
/// # Errors
/// When it cannot be resolved.
pub async fn inspect_image(
    images: &Images,
    request: &ImageRequest,
    report: &Report,
) -> Result<ImageInfo, Failure> {
    let request = match request.reference.parse::<Digest>() {
        Ok(_) => {
            let record = known_image(images, request)?;
            let reference = record.references.first().cloned().ok_or_else(|| {
                Failure::new(
                    FailureKind::NotFound,
                    "that image has no name on this host any more",
                )
            })?;
            ImageRequest {
                reference,
                ..request.clone()
            }
        }
        Err(_) => request.clone(),
    };
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
    let layers = found.layers.iter().zip(chosen).map(|(descriptor, chosen)| {
        let toc = has_table_of_contents(descriptor);
        let mut info = LayerInfo {
            layer: descriptor.digest,
            size: descriptor.size,
            codec: descriptor
                .media_type
                .rsplit(['.', '+'])
                .next()
                .unwrap_or_default()
                .to_owned(),
            lazy_by: String::new(),
            lazy: false,
            trust: "-".to_owned(),
            spans: None,
            pages: 0,
            present_pages: 0,
        };
        match chosen {
            Ok(layer) => {
                let why_not = lazy::why_not(&layer.index);
                info.codec = format!("{:?}", layer.index.codec).to_lowercase();
                info.lazy = why_not.is_none();
                info.lazy_by = why_not
                    .unwrap_or_else(|| if toc { "its own contents table" } else { "index" }.to_owned());
                info.trust = layer.root.to_string();
                info.spans = Some(layer.index.spans.len() as u64);
                info.pages = layer.index.data_size / PAGE_SIZE;
                info.present_pages = cached_layer(images, layer.key).map_or(0, |cached| cached.present_pages);
            }
            Err(reason) => info.lazy_by = format!("not lazy: {reason}"),
        }
        info
    });
    let layers: Vec<LayerInfo> = layers.collect();
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
