//! Images put together from tar files, in memory or as OCI layout directories (OCI image layout 1.1).

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use xebec_format::digest::Digest;

use crate::compression::Compression;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

/// A blob with the descriptor fields that name it.
#[derive(Clone, Debug)]
pub struct Blob {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their digest, or a lie where a test wants one.
    pub digest: Digest,
    /// Its media type.
    pub media_type: String,
    /// Annotations of its descriptor.
    pub annotations: Vec<(String, String)>,
}

impl Blob {
    /// A blob that is what it says it is.
    pub fn new(bytes: Vec<u8>, media_type: &str) -> Self {
        let digest = Digest::of(&bytes);
        Self {
            bytes,
            digest,
            media_type: media_type.to_owned(),
            annotations: Vec::new(),
        }
    }

    fn descriptor(&self) -> Value {
        let mut descriptor = json!({
            "mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len(),
        });
        if !self.annotations.is_empty() {
            let map = self
                .annotations
                .iter()
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect();
            descriptor["annotations"] = Value::Object(map);
        }
        descriptor
    }
}

/// A complete image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The manifest, with its media type and digest.
    pub manifest: Blob,
    /// The image's configuration.
    pub config: Blob,
    /// The layers, lowest first.
    pub layers: Vec<Blob>,
}

impl Image {
    /// All blobs but the manifest.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        std::iter::once(&self.config).chain(&self.layers)
    }

    /// Writes an OCI layout directory whose one image has the name `tag`.
    ///
    /// # Errors
    /// When a directory or file cannot be written.
    pub fn write_layout(&self, directory: &Path, tag: &str) -> io::Result<()> {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        for blob in self.blobs().chain([&self.manifest]) {
            fs::write(blobs.join(blob.digest.hex()), &blob.bytes)?;
        }
        let mut descriptor = self.manifest.descriptor();
        descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "manifests": [descriptor]});
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        fs::write(directory.join("index.json"), index.to_string())
    }
}

/// Puts an image together, lowest layer first.
#[derive(Clone, Debug, Default)]
pub struct ImageBuilder {
    layers: Vec<Blob>,
    diff_ids: Vec<Digest>,
    config: serde_json::Map<String, Value>,
    docker: bool,
}

impl ImageBuilder {
    /// An image without layers, for Linux on this machine's architecture.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes Docker's media types (schema 2) instead of OCI's. Layers must then be gzip.
    pub fn docker(mut self) -> Self {
        self.docker = true;
        self
    }

    /// Adds a layer that holds the tar file `plain`.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn layer(self, plain: &[u8], compression: Compression) -> io::Result<Self> {
        let blob = Blob::new(compression.encode(plain)?, compression.media_type());
        Ok(self.blob(blob, Digest::of(plain)))
    }

    /// Adds a layer as it is; `diff_id` is the digest of its tar file, or a lie.
    pub fn blob(mut self, blob: Blob, diff_id: Digest) -> Self {
        self.layers.push(blob);
        self.diff_ids.push(diff_id);
        self
    }

    /// Sets a field of the configuration's `config`: `Entrypoint`, `Cmd`, `Env`, `User`, `WorkingDir`, …
    pub fn config(mut self, field: &str, value: Value) -> Self {
        self.config.insert(field.to_owned(), value);
        self
    }

    /// The finished image.
    pub fn build(mut self) -> Image {
        let config = json!({
            "created": "2023-11-14T22:13:20Z", "architecture": architecture(), "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
            "history": self.diff_ids.iter().map(|_| json!({"created_by": "testkit"})).collect::<Vec<_>>(),
        });
        let (manifest_type, config_type) = if self.docker {
            (DOCKER_MANIFEST, DOCKER_CONFIG)
        } else {
            (MANIFEST, CONFIG)
        };
        if self.docker {
            self.layers
                .iter_mut()
                .for_each(|layer| layer.media_type = DOCKER_LAYER.to_owned());
        }
        let config = Blob::new(config.to_string().into_bytes(), config_type);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": manifest_type, "config": config.descriptor(),
            "layers": self.layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
        });
        let manifest = Blob::new(manifest.to_string().into_bytes(), manifest_type);
        Image {
            manifest,
            config,
            layers: self.layers,
        }
    }
}

/// This machine's architecture as Go, and so OCI, names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::tar::TarBuilder;

    #[test]
    fn skopeo_reads_a_layout_in_every_encoding() {
        if Command::new("skopeo").arg("--version").output().is_err() {
            println!("SKIPPED: skopeo is not installed (make setup)");
            return;
        }
        let mut tar = TarBuilder::new();
        tar.directory("etc").file("etc/x", vec![b'x'; 100_000]);
        let tar = tar.into_bytes();
        let image = [
            Compression::Tar,
            Compression::Gzip(0),
            Compression::Gzip(9),
            Compression::GzipMembers(10_000),
            Compression::Zstd,
            Compression::ZstdFrames(10_000),
        ]
        .into_iter()
        .try_fold(ImageBuilder::new(), |image, compression| {
            image.layer(&tar, compression)
        })
        .unwrap()
        .config("Cmd", json!(["/bin/true"]))
        .build();
        let directory = tempfile::tempdir().unwrap();
        image.write_layout(directory.path(), "latest").unwrap();
        let name = format!("oci:{}:latest", directory.path().display());
        let target = directory.path().join("copy");
        let copied = Command::new("skopeo")
            .args([
                "copy",
                "--quiet",
                &name,
                &format!("oci:{}:latest", target.display()),
            ])
            .output()
            .unwrap();
        assert!(
            copied.status.success(),
            "{}",
            String::from_utf8_lossy(&copied.stderr)
        );
        assert_eq!(image.layers.len(), 6);
    }
}
