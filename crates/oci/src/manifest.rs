//! Manifests and indexes: OCI image spec 1.1 and Docker schema 2, parsed within limits.
//!
//! [`Manifest::parse`] takes the bytes as the registry sent them. It trusts the `mediaType` inside them first,
//! then what the registry called them, and refuses bytes that could be read as both a manifest and an index
//! (the ambiguity that the image spec warns of). Schema 1 is refused by name.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use crate::media_type;
use xebec_format::platform::Platform;

/// Largest manifest or index that is read. The distribution specification asks registries to take at least
/// 4 MiB, and containerd and the CNCF registry set the same limit.
pub const MAX_MANIFEST_SIZE: u64 = 4 << 20;
/// Most layers of one image. Linux stacks fewer in an overlay, but a merged view can take more; real images
/// stay below 128 and the design asks for 500.
pub const MAX_LAYERS: usize = 4096;
/// Most entries of one index.
pub const MAX_INDEX_ENTRIES: usize = 8192;

/// The description of a blob or of another manifest, as it stands in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of the content.
    pub media_type: String,
    /// Digest of the content.
    pub digest: Digest,
    /// Length of the content in bytes.
    pub size: u64,
    /// Other places to download from (layers that registries may not distribute).
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub urls: Vec<String>,
    /// Free-form facts, for example the digest of an eStargz table of contents.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Type of an artifact, in entries of a referrers list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The platform that an image runs on, in entries of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// The content itself in base64, for small content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl Descriptor {
    /// The descriptor of `bytes`.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
            artifact_type: None,
            platform: None,
            data: None,
        }
    }

    /// The descriptor of `bytes`, which it carries itself.
    pub fn embedding(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            data: Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
            ..Self::of(media_type, bytes)
        }
    }

    /// The content that is embedded in the descriptor, if it is there and is what the digest says.
    pub fn embedded(&self) -> Option<Vec<u8>> {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(self.data.as_ref()?)
            .ok()?;
        (Digest::of(&bytes) == self.digest && bytes.len() as u64 == self.size).then_some(bytes)
    }
}

/// The manifest of one image, or of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    /// Always 2.
    pub schema_version: u32,
    /// The manifest's own type; OCI lets it be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Type of an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The image's config, or an artifact's.
    pub config: Descriptor,
    /// Layers, lowest first; blobs of an artifact.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub layers: Vec<Descriptor>,
    /// The manifest that this artifact refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Free-form facts.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

impl ImageManifest {
    /// Whether this is an image that a container can run, rather than an artifact.
    pub fn is_image(&self) -> bool {
        matches!(
            self.config.media_type.as_str(),
            media_type::OCI_CONFIG | media_type::DOCKER_CONFIG
        )
    }
}

/// A list of manifests: one image for several platforms, or a list of referrers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// The index's own type; OCI lets it be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Type of an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The entries.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub manifests: Vec<Descriptor>,
    /// The manifest that this artifact refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Free-form facts.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

impl Index {
    /// An OCI index of `manifests`.
    pub fn of(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media_type::OCI_INDEX.to_owned()),
            artifact_type: None,
            manifests,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// The entry that fits `platform` best; among equals the first. Entries that are artifacts, and
    /// attestations that builders put beside images (`unknown/unknown`), never fit.
    ///
    /// An index with a single entry of no platform means that entry, as in containerd.
    pub fn select(&self, platform: &Platform) -> Option<&Descriptor> {
        let images = || {
            self.manifests.iter().filter(|entry| {
                media_type::ACCEPT_IMAGE.contains(&entry.media_type.as_str()) && entry.artifact_type.is_none()
            })
        };
        let ranked = images()
            .filter_map(|entry| Some((platform.rank(entry.platform.as_ref()?)?, entry)))
            .min_by_key(|(rank, _)| *rank);
        match ranked {
            Some((_, entry)) => Some(entry),
            None if images().count() == 1 => images().find(|entry| entry.platform.is_none()),
            None => None,
        }
    }

    /// The platforms on offer, for messages.
    pub fn platforms(&self) -> Vec<String> {
        let all = self.manifests.iter().filter_map(|entry| entry.platform.as_ref());
        all.filter(|platform| platform.os != "unknown")
            .map(Platform::to_string)
            .collect()
    }
}

/// The manifest that a registry has under a tag or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    /// One image or artifact.
    Image(Box<ImageManifest>),
    /// A list of manifests.
    Index(Box<Index>),
}

/// Why bytes are not a manifest that Xebec can use.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// More than [`MAX_MANIFEST_SIZE`].
    #[error("the manifest has {0} bytes; the limit is 4 MiB")]
    TooLarge(u64),
    /// Not JSON, or not of the right shape.
    #[error("the manifest cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Docker schema 1.
    #[error(
        "the image has a Docker schema 1 manifest, which does not say what its layers contain; push it again \
         with a current docker, skopeo or buildah"
    )]
    Schema1,
    /// `schemaVersion` is not 2.
    #[error("the manifest has schema version {0}; only 2 is known")]
    SchemaVersion(u32),
    /// Neither a manifest nor an index, or both.
    #[error("media type {0:?} is neither an image manifest nor an image index")]
    MediaType(String),
    /// Has both `layers` and `manifests`.
    #[error(
        "the manifest has the fields of both an image and an index; it is refused because it is ambiguous"
    )]
    Ambiguous,
    /// More than [`MAX_LAYERS`].
    #[error("the image has {0} layers; the limit is 4096")]
    Layers(usize),
    /// More than [`MAX_INDEX_ENTRIES`].
    #[error("the index has {0} entries; the limit is 8192")]
    Entries(usize),
}

/// The few fields that tell what kind of document it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
    manifests: Option<serde::de::IgnoredAny>,
    fs_layers: Option<serde::de::IgnoredAny>,
}

impl Manifest {
    /// Reads a manifest or index. `content_type` is what the registry called it, if it said.
    ///
    /// # Errors
    /// [`ManifestError`] says what is wrong with the bytes. Digests other than SHA-256 are errors.
    pub fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, ManifestError> {
        if bytes.len() as u64 > MAX_MANIFEST_SIZE {
            return Err(ManifestError::TooLarge(bytes.len() as u64));
        }
        let outline: Outline = serde_json::from_slice(bytes)?;
        if outline.schema_version == 1 || outline.fs_layers.is_some() {
            return Err(ManifestError::Schema1);
        }
        if outline.schema_version != 2 {
            return Err(ManifestError::SchemaVersion(outline.schema_version));
        }
        if outline.manifests.is_some() && (outline.layers.is_some() || outline.config.is_some()) {
            return Err(ManifestError::Ambiguous);
        }
        let served = content_type.map(media_type::without_parameters);
        let named = outline.media_type.as_deref().or(served);
        match named {
            Some(media_type::OCI_MANIFEST | media_type::DOCKER_MANIFEST) => Self::image(bytes),
            Some(media_type::OCI_INDEX | media_type::DOCKER_LIST) => Self::index(bytes),
            Some(media_type::DOCKER_SCHEMA1 | media_type::DOCKER_SCHEMA1_SIGNED) => {
                Err(ManifestError::Schema1)
            }
            // Plain file servers in front of registries answer with these; the shape then decides.
            None | Some("application/json" | "text/plain" | "application/octet-stream" | "") => {
                if outline.manifests.is_some() {
                    Self::index(bytes)
                } else {
                    Self::image(bytes)
                }
            }
            Some(other) => Err(ManifestError::MediaType(other.to_owned())),
        }
    }

    fn image(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: ImageManifest = serde_json::from_slice(bytes)?;
        if manifest.layers.len() > MAX_LAYERS {
            return Err(ManifestError::Layers(manifest.layers.len()));
        }
        Ok(Self::Image(Box::new(manifest)))
    }

    fn index(bytes: &[u8]) -> Result<Self, ManifestError> {
        let index: Index = serde_json::from_slice(bytes)?;
        if index.manifests.len() > MAX_INDEX_ENTRIES {
            return Err(ManifestError::Entries(index.manifests.len()));
        }
        Ok(Self::Index(Box::new(index)))
    }
}

/// Writers in Go print an empty list as `null`.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
