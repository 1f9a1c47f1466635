//! The layers of a manifest that are to be indexed. Pure.

use xebec_artifact::own_table::has_table_of_contents;
use xebec_format::digest::Digest;
use xebec_oci::image_config::ImageConfig;
use xebec_oci::media_type::{DOCKER_CONFIG, OCI_CONFIG, layer_encoding};
use xebec_oci::{Descriptor, ImageManifest, Manifest};

/// An image, as far as its manifest says.
pub(crate) struct Image {
    manifest: ImageManifest,
    /// The manifest's descriptor, for what refers to it.
    pub(crate) descriptor: Descriptor,
}

/// A layer that needs an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) digest: Digest,
    pub(crate) diff_id: Digest,
}

/// Whether a manifest may be of an image, by what it is listed as among what refers to something: its artifact type, or the type of its
/// configuration.
pub(crate) fn is_image(listed_as: Option<&str>) -> bool {
    matches!(listed_as, Some(OCI_CONFIG | DOCKER_CONFIG))
}

impl Image {
    /// The image that a manifest is of; `None` if it is of something else: an index, an artifact, an image whose layers all bring a
    /// table of contents.
    ///
    /// # Errors
    /// Why hosts cannot read the manifest.
    pub(crate) fn of(media_type: &str, content: &[u8]) -> Result<Option<Self>, String> {
        let manifest = match Manifest::parse(content, Some(media_type)) {
            Ok(Manifest::Image(manifest)) => *manifest,
            Ok(Manifest::Index(_)) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let is_image = is_image(Some(&manifest.config.media_type))
            && manifest.artifact_type.is_none()
            && manifest
                .layers
                .iter()
                .all(|layer| layer_encoding(&layer.media_type).is_some());
        if !is_image || manifest.layers.iter().all(has_table_of_contents) {
            return Ok(None);
        }
        Ok(Some(Self {
            descriptor: Descriptor::of(media_type, content),
            manifest,
        }))
    }

    /// Its configuration.
    pub(crate) fn config(&self) -> &Descriptor {
        &self.manifest.config
    }

    /// The digests of all layers, bottom to top.
    pub(crate) fn order(&self) -> Vec<Digest> {
        self.manifest.layers.iter().map(|layer| layer.digest).collect()
    }

    /// The layers that need an index, each once.
    ///
    /// # Errors
    /// Why the configuration is not one of this manifest.
    pub(crate) fn layers(&self, config: &[u8]) -> Result<Vec<Layer>, String> {
        let config =
            ImageConfig::parse(config).map_err(|error| format!("the image's configuration: {error}"))?;
        let (descriptors, diff_ids) = (&self.manifest.layers, &config.rootfs.diff_ids);
        if descriptors.len() != diff_ids.len() {
            return Err(format!(
                "the manifest has {} layers and the configuration {} diff IDs",
                descriptors.len(),
                diff_ids.len()
            ));
        }
        let mut layers: Vec<Layer> = Vec::new();
        for (descriptor, diff_id) in descriptors.iter().zip(diff_ids) {
            let layer = Layer {
                digest: descriptor.digest,
                diff_id: *diff_id,
            };
            let is_listed = layers.iter().any(|listed| listed.digest == layer.digest);
            if !is_listed && !has_table_of_contents(descriptor) {
                layers.push(layer);
            }
        }
        Ok(layers)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_testkit::compression::Compression;
    use xebec_testkit::image::ImageBuilder;
    use xebec_testkit::tar::TarBuilder;

    use super::*;

    #[test]
    fn layers_of_an_image_and_of_nothing_else() {
        let mut tar = TarBuilder::new();
        tar.file("file", b"contents");
        let tar = tar.into_bytes();
        let image = ImageBuilder::new()
            .layer(&tar, Compression::Gzip(6))
            .unwrap()
            .layer(&tar, Compression::Gzip(6))
            .unwrap()
            .build();
        let manifest = &image.manifest;
        let read = Image::of(&manifest.media_type, &manifest.bytes).unwrap().unwrap();
        let config = image
            .blobs()
            .find(|blob| Digest::of(&blob.bytes) == read.config().digest)
            .unwrap();
        let layers = read.layers(&config.bytes).unwrap();
        assert_eq!(layers.len(), 1, "the same layer twice");
        assert_eq!(layers[0].diff_id, Digest::of(&tar));
        assert_eq!(read.order().len(), 2);
        assert!(read.layers(b"{}").is_err());
        let artifact = br#"{"schemaVersion": 2, "artifactType": "a/b", "layers": [],
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}}"#;
        assert!(
            Image::of("application/vnd.oci.image.manifest.v1+json", artifact)
                .unwrap()
                .is_none()
        );
        assert!(Image::of("application/vnd.oci.image.manifest.v1+json", b"{").is_err());
    }
}
