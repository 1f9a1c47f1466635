//! The OCI artifact that carries one recording of an image.
//!
//! Its `subject` is the image manifest. It lists the recording, which is small and travels inside the manifest too (the
//! `data` of its descriptor). It lists the zones that hold the pages, so that a registry keeps them: its own first, then those of
//! earlier recordings that it goes on using. The windows of the indexes that zones carry are listed as well.
//! The image's configuration is embedded, too: a start that asks for the artifact first need not ask for that, and can begin to make
//! a container before it has any file of the image.

use std::collections::BTreeMap;

use xebec_format::digest::Digest;
use xebec_format::layer::Section;
use xebec_format::runtime_image::Zone;
use xebec_oci::media_type::{OCI_EMPTY, OCI_MANIFEST};
use xebec_oci::{Descriptor, ImageManifest, Manifest};

use crate::artifact::{self, ArtifactError, BlobRef, EMPTY_CONFIG, LAYER_ANNOTATION, WINDOWS_TYPE};

/// `artifactType` of the manifest.
pub const RUNTIME_IMAGE_TYPE: &str = "application/vnd.xebec.runtime-image.v1";
/// Media type of an encoded recording.
pub const RECORDING_TYPE: &str = "application/vnd.xebec.runtime-image.recording.v1";
/// Media type of a zone.
pub const ZONE_TYPE: &str = "application/vnd.xebec.runtime-image.zone.v1";

/// Annotation of an artifact whose services are predicted: the digest of the image from whose recording they come.
pub const PREDICTED_FROM: &str = "dev.xebec.predicted-from";
/// Largest configuration of an image that travels inside the manifest. Most have a few thousand bytes.
pub const MAX_INLINE_CONFIG: usize = 64 << 10;

/// Largest recording that travels inside the manifest: in base64 a third more, of the 4 MiB that registries take.
const MAX_INLINE: usize = 1 << 20;

/// The manifest of a recording, which refers to the image `subject`. `others` are blobs that belong to it: the windows of
/// the indexes that its zones carry, the image's configuration.
pub fn encode(
    subject: Descriptor,
    recording: &[u8],
    zones: &[Zone],
    others: impl Iterator<Item = Descriptor>,
) -> ImageManifest {
    let descriptor = match recording.len() <= MAX_INLINE {
        true => Descriptor::embedding(RECORDING_TYPE, recording),
        false => Descriptor::of(RECORDING_TYPE, recording),
    };
    let zones = zones.iter().map(|zone| {
        let blob = BlobRef {
            digest: zone.digest,
            size: zone.size,
        };
        blob.descriptor(ZONE_TYPE)
    });
    ImageManifest {
        schema_version: 2,
        media_type: Some(OCI_MANIFEST.to_owned()),
        artifact_type: Some(RUNTIME_IMAGE_TYPE.to_owned()),
        config: Descriptor::of(OCI_EMPTY, EMPTY_CONFIG),
        layers: std::iter::once(descriptor).chain(zones).chain(others).collect(),
        subject: Some(subject),
        annotations: BTreeMap::new(),
    }
}

/// How a recording's artifact lists the windows of a layer whose index its zones carry.
pub fn windows_descriptor(layer: Digest, windows: &Section) -> Descriptor {
    let blob = BlobRef {
        digest: windows.digest,
        size: windows.size,
    };
    let mut descriptor = blob.descriptor(WINDOWS_TYPE);
    descriptor
        .annotations
        .insert(LAYER_ANNOTATION.to_owned(), layer.to_string());
    descriptor
}

/// The descriptor of the recording in a manifest that must belong to the image `subject`.
///
/// # Errors
/// When it is something else.
pub fn decode(manifest: Manifest, subject: Digest) -> Result<Descriptor, ArtifactError> {
    let manifest = artifact::expect(manifest, RUNTIME_IMAGE_TYPE, subject)?;
    manifest
        .layers
        .into_iter()
        .find(|descriptor| descriptor.media_type == RECORDING_TYPE)
        .ok_or(ArtifactError::Lacks("a recording"))
}
