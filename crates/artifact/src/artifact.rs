//! The OCI artifact that carries the indexes of an image's layers.
//!
//! Its `subject` is the image manifest, so the referrers API finds it. For each indexed layer it lists up to four
//! blobs, each annotated with the layer's digest: the index proper (tree and spans), the windows, the frame and
//! the content digests. A start reads the first; the others are fetched in part, or when asked for. The manifest
//! is built from digests only, in the order of the image's layers, so the same indexes give the same artifact.

use std::collections::BTreeMap;

use xebec_format::digest::Digest;
use xebec_oci::media_type::{OCI_EMPTY, OCI_MANIFEST};
use xebec_oci::{Descriptor, ImageManifest, Manifest};

/// `artifactType` of the manifest.
pub use xebec_trust::ARTIFACT_TYPE;
/// Media type of an encoded index: tree, pieces and spans.
pub const INDEX_TYPE: &str = "application/vnd.xebec.layer.index.v1";
/// Media type of the windows section.
pub const WINDOWS_TYPE: &str = "application/vnd.xebec.layer.windows.v1";
/// Media type of the frame section.
pub const FRAME_TYPE: &str = "application/vnd.xebec.layer.frame.v1";
/// Media type of the content digests.
pub const CONTENTS_TYPE: &str = "application/vnd.xebec.layer.contents.v1";
/// Annotation that names the layer that a blob belongs to.
pub const LAYER_ANNOTATION: &str = "dev.xebec.layer";
/// The configuration of an artifact that needs none (OCI image spec, "Guidance for an Empty Descriptor").
pub const EMPTY_CONFIG: &[u8] = b"{}";

/// Largest encoded index that is accepted: a layer of some ten million files.
pub const MAX_INDEX: u64 = 256 << 20;

/// A blob that an artifact lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRef {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

impl BlobRef {
    /// Its descriptor.
    pub fn descriptor(&self, media_type: &str) -> Descriptor {
        Descriptor {
            digest: self.digest,
            size: self.size,
            ..Descriptor::of(media_type, b"")
        }
    }
}

/// The blobs of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerBlobs {
    /// The encoded index.
    pub index: BlobRef,
    /// Windows, for gzip.
    pub windows: Option<BlobRef>,
    /// Frame.
    pub frame: Option<BlobRef>,
    /// Content digests.
    pub contents: Option<BlobRef>,
}

impl LayerBlobs {
    /// The blobs with the names of the files that hold them in a layer's folder.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &BlobRef)> {
        let optional = [
            ("windows", &self.windows),
            ("frame", &self.frame),
            ("contents", &self.contents),
        ];
        let optional = optional
            .into_iter()
            .filter_map(|(name, blob)| Some((name, blob.as_ref()?)));
        [("index", &self.index)].into_iter().chain(optional)
    }
}

/// The contents of an artifact manifest.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Artifact {
    /// By layer digest.
    pub layers: BTreeMap<Digest, LayerBlobs>,
}

/// Why a manifest is not an artifact of ours.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// An index, or an image.
    #[error("the artifact is not an OCI image manifest")]
    Manifest,
    /// Some other artifact.
    #[error("artifact type {found:?} is not {wanted:?}")]
    Type {
        /// The artifact type of the manifest.
        found: String,
        /// The artifact type that it should have.
        wanted: &'static str,
    },
    /// It belongs to another image.
    #[error("the artifact's subject is {found}, not the image {wanted}")]
    Subject {
        /// The subject of the manifest.
        found: String,
        /// The image that it should refer to.
        wanted: Digest,
    },
    /// It has not what makes it one.
    #[error("the artifact lists no blob that is {0}")]
    Lacks(&'static str),
}

/// The manifest of an artifact of type `wanted` that belongs to the image `subject`.
///
/// # Errors
/// When it is something else.
pub fn expect(
    manifest: Manifest,
    wanted: &'static str,
    subject: Digest,
) -> Result<ImageManifest, ArtifactError> {
    let Manifest::Image(manifest) = manifest else {
        return Err(ArtifactError::Manifest);
    };
    if manifest.artifact_type.as_deref() != Some(wanted) {
        let found = manifest.artifact_type.unwrap_or_default();
        return Err(ArtifactError::Type { found, wanted });
    }
    let found = manifest.subject.as_ref().map(|subject| subject.digest);
    if found != Some(subject) {
        let found = found.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
        return Err(ArtifactError::Subject {
            found,
            wanted: subject,
        });
    }
    Ok(*manifest)
}

impl Artifact {
    /// The manifest, which refers to the image `subject`. `order` is the image's layers, bottom to top.
    pub fn encode(&self, subject: Descriptor, order: &[Digest]) -> ImageManifest {
        let mut layers: Vec<Descriptor> = Vec::new();
        let mut listed = std::collections::BTreeSet::new();
        for layer in order.iter().filter(|&&layer| listed.insert(layer)) {
            let Some(blobs) = self.layers.get(layer) else {
                continue;
            };
            let types = [
                ("index", INDEX_TYPE),
                ("windows", WINDOWS_TYPE),
                ("frame", FRAME_TYPE),
            ];
            layers.extend(blobs.parts().map(|(part, blob)| {
                let known = types.iter().find(|(name, _)| *name == part);
                let mut descriptor =
                    blob.descriptor(known.map_or(CONTENTS_TYPE, |(_, media_type)| media_type));
                descriptor
                    .annotations
                    .insert(LAYER_ANNOTATION.to_owned(), layer.to_string());
                descriptor
            }));
        }
        ImageManifest {
            schema_version: 2,
            media_type: Some(OCI_MANIFEST.to_owned()),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config: Descriptor::of(OCI_EMPTY, EMPTY_CONFIG),
            layers,
            subject: Some(subject),
            annotations: BTreeMap::new(),
        }
    }

    /// Reads a manifest that must belong to the image `subject`. Blobs of unknown types are passed over.
    ///
    /// # Errors
    /// When it is something else.
    pub fn decode(manifest: Manifest, subject: Digest) -> Result<Self, ArtifactError> {
        let manifest = expect(manifest, ARTIFACT_TYPE, subject)?;
        let mut layers: BTreeMap<Digest, LayerBlobs> = BTreeMap::new();
        let of_layer = |descriptor: &Descriptor| -> Option<Digest> {
            descriptor.annotations.get(LAYER_ANNOTATION)?.parse().ok()
        };
        for descriptor in manifest
            .layers
            .iter()
            .filter(|descriptor| descriptor.media_type == INDEX_TYPE)
        {
            let Some(layer) = of_layer(descriptor) else {
                continue;
            };
            let index = BlobRef {
                digest: descriptor.digest,
                size: descriptor.size,
            };
            layers.entry(layer).or_insert(LayerBlobs {
                index,
                windows: None,
                frame: None,
                contents: None,
            });
        }
        for descriptor in &manifest.layers {
            let Some(blobs) = of_layer(descriptor).and_then(|layer| layers.get_mut(&layer)) else {
                continue;
            };
            let slot = match descriptor.media_type.as_str() {
                WINDOWS_TYPE => &mut blobs.windows,
                FRAME_TYPE => &mut blobs.frame,
                CONTENTS_TYPE => &mut blobs.contents,
                _ => continue,
            };
            *slot = Some(BlobRef {
                digest: descriptor.digest,
                size: descriptor.size,
            });
        }
        Ok(Self { layers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(text: &str) -> BlobRef {
        BlobRef {
            digest: Digest::of(text.as_bytes()),
            size: text.len() as u64,
        }
    }

    #[test]
    fn round_trip() {
        let layer = Digest::of(b"layer");
        let subject = Descriptor::of(OCI_MANIFEST, b"image");
        let blobs = LayerBlobs {
            index: blob("index"),
            windows: Some(blob("w")),
            frame: None,
            contents: Some(blob("c")),
        };
        let artifact = Artifact {
            layers: BTreeMap::from([(layer, blobs)]),
        };
        let manifest = artifact.encode(subject.clone(), &[layer, layer]);
        let bytes = serde_json::to_vec(&manifest).unwrap();
        let parsed = || Manifest::parse(&bytes, None).unwrap();
        assert_eq!(Artifact::decode(parsed(), subject.digest).unwrap(), artifact);
        let other = Artifact::decode(parsed(), Digest::of(b"other"));
        assert!(matches!(other, Err(ArtifactError::Subject { .. })));
    }
}
