//! Bindings: an image index that names an image manifest *and* the artifact with its indexes, so that a user who
//! names the image index (by digest, or by a tag that leads to it) has named the indexes, too.
//!
//! For each bound image manifest, the image index has two descriptors. One is the manifest's own, unchanged, with its platform.
//! The other one is the artifact's, with `artifactType` [`ARTIFACT_TYPE`], the annotation [`IMAGE_MANIFEST_ANNOTATION`] that holds
//! the digest of the image manifest, and the platform `unknown/unknown`. Every client passes that platform over when it looks
//! for an image to run (as with the attestations of BuildKit). Other entries of a multi-platform index are kept.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use xebec_format::digest::Digest;

use super::roots::Binding;

/// `artifactType` of an artifact that holds the indexes of an image's layers.
pub const ARTIFACT_TYPE: &str = "application/vnd.xebec.index.v1";
/// The annotation that says to which image manifest an artifact is bound.
pub const IMAGE_MANIFEST_ANNOTATION: &str = "dev.xebec.image.manifest";
/// Media type of an OCI image index.
pub const IMAGE_INDEX_MEDIA_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// Largest image index that is read, in bytes: what registries take at least (OCI distribution spec, "Pushing
/// Manifests").
pub const MAX_IMAGE_INDEX: usize = 4 * 1024 * 1024;

const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_LIST_MEDIA_TYPE: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The platform of an image, from its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `amd64`, `arm64`, …
    pub architecture: String,
    /// `linux`, …
    pub os: String,
    /// `v8`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// The document that an image's reference leads to now.
#[derive(Clone, Debug)]
pub enum Original<'a> {
    /// One image manifest.
    Manifest {
        /// Its media type: OCI's or Docker's.
        media_type: &'a str,
        /// Its bytes.
        bytes: &'a [u8],
        /// Its platform.
        platform: Platform,
    },
    /// The bytes of an image index or of a Docker manifest list.
    ImageIndex(&'a [u8]),
}

/// An artifact bound to an image manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundArtifact {
    /// The image manifest.
    pub manifest: Digest,
    /// The manifest of the artifact.
    pub artifact: Digest,
    /// The size of that manifest in bytes.
    pub artifact_size: u64,
}

/// Why an image index cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Larger than [`MAX_IMAGE_INDEX`].
    #[error("an image index of {0} bytes is more than the {MAX_IMAGE_INDEX} allowed")]
    TooLarge(usize),
    /// Not the JSON of an image index.
    #[error("this is no image index: {0}")]
    Json(#[from] serde_json::Error),
    /// A field says something else than it must.
    #[error("the image index has {0}")]
    Field(String),
    /// The artifact's image is not in the index.
    #[error("the image index does not name the image manifest {0}, so nothing can be bound to it there")]
    NoSuchManifest(Digest),
    /// Two artifacts claim one manifest.
    #[error("the image index binds both {first} and {second} to {manifest}; only one can be right")]
    Ambiguous {
        /// The image manifest.
        manifest: Digest,
        /// One artifact.
        first: Digest,
        /// The other.
        second: Digest,
    },
}

#[derive(Serialize, Deserialize)]
struct RawIndex {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
    #[serde(rename = "mediaType", default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    manifests: Vec<RawDescriptor>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct RawDescriptor {
    #[serde(rename = "mediaType")]
    media_type: String,
    // Text, because entries that do not concern us may use other algorithms.
    digest: String,
    size: u64,
    #[serde(rename = "artifactType", default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<Map<String, Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl RawDescriptor {
    /// The image manifest that this descriptor of an artifact is bound to.
    fn bound_to(&self) -> Option<&str> {
        if self.artifact_type.as_deref() != Some(ARTIFACT_TYPE) {
            return None;
        }
        self.annotations
            .as_ref()?
            .get(IMAGE_MANIFEST_ANNOTATION)?
            .as_str()
    }
}

impl RawIndex {
    fn parse(bytes: &[u8]) -> Result<Self, BindError> {
        if bytes.len() > MAX_IMAGE_INDEX {
            return Err(BindError::TooLarge(bytes.len()));
        }
        let index: Self = serde_json::from_slice(bytes)?;
        let field = |text: String| Err(BindError::Field(text));
        if index.schema_version != 2 {
            return field(format!("schemaVersion {}, not 2", index.schema_version));
        }
        if index.rest.contains_key("layers") || index.rest.contains_key("config") {
            return field("manifests and layers, so it could be read as two things".to_owned());
        }
        match index.media_type.as_deref() {
            None | Some(IMAGE_INDEX_MEDIA_TYPE | DOCKER_LIST_MEDIA_TYPE) => Ok(index),
            Some(other) => field(format!("media type {other:?}")),
        }
    }

    fn names_image(&self, manifest: &str) -> bool {
        self.manifests
            .iter()
            .any(|entry| entry.digest == manifest && entry.bound_to().is_none())
    }
}

/// Makes the image index that names what `original` names, and binds `artifacts`.
///
/// Artifacts that were bound to the same manifests before are replaced. The same input gives the same bytes.
///
/// # Errors
/// The original is no image index, or lacks a manifest that an artifact is to be bound to.
pub fn bind(original: &Original<'_>, artifacts: &[BoundArtifact]) -> Result<Vec<u8>, BindError> {
    let mut index = match original {
        Original::ImageIndex(bytes) => RawIndex::parse(bytes)?,
        Original::Manifest {
            media_type,
            bytes,
            platform,
        } => RawIndex {
            schema_version: 2,
            media_type: None,
            manifests: vec![RawDescriptor {
                media_type: (*media_type).to_owned(),
                digest: Digest::of(bytes).to_string(),
                size: bytes.len() as u64,
                artifact_type: None,
                annotations: None,
                rest: Map::from_iter([("platform".to_owned(), serde_json::to_value(platform)?)]),
            }],
            rest: Map::new(),
        },
    };
    // A Docker manifest list has no artifact types and no annotations; its entries stay what they are in an
    // OCI index.
    index.media_type = Some(IMAGE_INDEX_MEDIA_TYPE.to_owned());
    for bound in artifacts {
        let manifest = bound.manifest.to_string();
        if !index.names_image(&manifest) {
            return Err(BindError::NoSuchManifest(bound.manifest));
        }
        index
            .manifests
            .retain(|entry| entry.bound_to() != Some(&manifest));
        index.manifests.push(artifact_descriptor(bound, &manifest));
    }
    let bytes = serde_json::to_vec(&index)?;
    if bytes.len() > MAX_IMAGE_INDEX {
        return Err(BindError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

fn artifact_descriptor(bound: &BoundArtifact, manifest: &str) -> RawDescriptor {
    RawDescriptor {
        media_type: MANIFEST_MEDIA_TYPE.to_owned(),
        digest: bound.artifact.to_string(),
        size: bound.artifact_size,
        artifact_type: Some(ARTIFACT_TYPE.to_owned()),
        annotations: Some(Map::from_iter([(
            IMAGE_MANIFEST_ANNOTATION.to_owned(),
            manifest.into(),
        )])),
        rest: Map::from_iter([(
            "platform".to_owned(),
            json!({ "architecture": "unknown", "os": "unknown" }),
        )]),
    }
}

/// Finds the artifact that the image index `image_index` binds to `manifest`, and what that proves; `None` if
/// it binds none.
///
/// The binding is between exactly these bytes and the artifact, so the digest in it is computed here. The
/// contents of the artifact must still be checked: that its `subject` is the manifest, and its indexes are of its
/// layers.
///
/// # Errors
/// The bytes are no image index, or bind two artifacts to the manifest.
pub fn bound_artifact(
    image_index: &[u8],
    manifest: Digest,
) -> Result<Option<(BoundArtifact, Binding)>, BindError> {
    let index = RawIndex::parse(image_index)?;
    let text = manifest.to_string();
    let mut found: Option<BoundArtifact> = None;
    for entry in index
        .manifests
        .iter()
        .filter(|entry| entry.bound_to() == Some(&text))
    {
        let artifact: Digest = entry
            .digest
            .parse()
            .map_err(|_| BindError::Field(format!("digest {:?}", entry.digest)))?;
        match found {
            Some(first) if first.artifact != artifact => {
                return Err(BindError::Ambiguous {
                    manifest,
                    first: first.artifact,
                    second: artifact,
                });
            }
            _ => {
                found = Some(BoundArtifact {
                    manifest,
                    artifact,
                    artifact_size: entry.size,
                })
            }
        }
    }
    let found = found.filter(|_| index.names_image(&text));
    Ok(found.map(|bound| {
        let image_index = Digest::of(image_index);
        (
            bound,
            Binding::ImageIndex {
                image_index,
                manifest,
                artifact: bound.artifact,
            },
        )
    }))
}
