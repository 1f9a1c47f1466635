//! Media types of manifests, configs and layers, and what a layer's type says of its encoding.

/// OCI image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI image config.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The two bytes `{}`, config of artifacts that have none (image spec, "Guidance for an Empty Descriptor").
pub const OCI_EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Docker schema 2 manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker manifest list.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker image config.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker schema 1, which has no digests of what a layer contains; refused.
pub const DOCKER_SCHEMA1: &str = "application/vnd.docker.distribution.manifest.v1+json";
/// Docker schema 1 with signature; refused.
pub const DOCKER_SCHEMA1_SIGNED: &str = "application/vnd.docker.distribution.manifest.v1+prettyjws";

/// The `Accept` list with which an image is asked for.
pub const ACCEPT_IMAGE: &[&str] = &[OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST];

/// How a layer is compressed, as its media type claims. Only a hint: the blob's first bytes decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerEncoding {
    /// Plain tar.
    Tar,
    /// Gzip, which includes eStargz.
    Gzip,
    /// Zstandard, which includes zstd:chunked.
    Zstd,
}

/// The encoding that a layer's media type claims, distributable or not; `None`: not a layer of an image.
pub fn layer_encoding(media_type: &str) -> Option<LayerEncoding> {
    match media_type {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar" => Some(LayerEncoding::Tar),
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Some(LayerEncoding::Gzip),
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar.zstd" => Some(LayerEncoding::Zstd),
        _ => None,
    }
}

/// Whether a layer may be missing from the registry and be meant to come from its `urls`.
pub fn is_nondistributable(media_type: &str) -> bool {
    media_type.contains(".nondistributable.") || media_type.contains(".foreign.")
}

/// A media type without parameters, as `Content-Type` may carry them.
pub fn without_parameters(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        assert_eq!(
            layer_encoding("application/vnd.oci.image.layer.v1.tar+zstd"),
            Some(LayerEncoding::Zstd)
        );
        let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
        assert_eq!(layer_encoding(foreign), Some(LayerEncoding::Gzip));
        assert!(is_nondistributable(foreign));
        assert_eq!(layer_encoding("application/vnd.in-toto+json"), None);
        assert_eq!(
            without_parameters("application/json; charset=utf-8"),
            "application/json"
        );
    }
}
