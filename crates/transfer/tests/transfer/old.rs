//! A directory as CNCF distribution keeps it, made by hand.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use xebec_store::{Algorithm, Digest};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

pub(crate) struct Old(tempfile::TempDir);

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, bytes)
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

impl Old {
    pub(crate) fn new() -> Self {
        let old = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(old.top().join("blobs")).unwrap();
        fs::create_dir_all(old.top().join("repositories")).unwrap();
        old
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn top(&self) -> PathBuf {
        self.0.path().join("docker/registry/v2")
    }

    pub(crate) fn repository(&self, name: &str) -> PathBuf {
        self.top().join("repositories").join(name)
    }

    pub(crate) fn data(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.top().join(format!("blobs/sha256/{}/{hex}/data", &hex[..2]))
    }

    pub(crate) fn layer_link(&self, name: &str, digest: &Digest) -> PathBuf {
        self.repository(name)
            .join(format!("_layers/sha256/{}/link", digest.hex()))
    }

    pub(crate) fn revision_link(&self, name: &str, digest: &Digest) -> PathBuf {
        self.repository(name)
            .join(format!("_manifests/revisions/sha256/{}/link", digest.hex()))
    }

    pub(crate) fn tag_link(&self, name: &str, tag: &str) -> PathBuf {
        self.repository(name)
            .join(format!("_manifests/tags/{tag}/current/link"))
    }

    /// A blob of a repository.
    pub(crate) fn blob(&self, name: &str, bytes: &[u8]) -> Digest {
        let digest = digest(bytes);
        write(&self.data(&digest), bytes);
        write(&self.layer_link(name, &digest), digest.to_string().as_bytes());
        digest
    }

    /// A manifest of a repository, whatever its bytes are.
    pub(crate) fn manifest(&self, name: &str, bytes: &[u8]) -> Digest {
        let digest = digest(bytes);
        write(&self.data(&digest), bytes);
        write(&self.revision_link(name, &digest), digest.to_string().as_bytes());
        digest
    }

    pub(crate) fn tag(&self, name: &str, tag: &str, digest: &Digest) {
        write(&self.tag_link(name, tag), digest.to_string().as_bytes());
    }

    /// An image of one layer.
    pub(crate) fn image(&self, name: &str, layer: &[u8]) -> Digest {
        let config = self.blob(name, b"{}");
        let pushed = self.blob(name, layer);
        self.manifest(name, image(&config, &pushed, layer.len()).to_string().as_bytes())
    }

    /// An artifact that refers to a manifest.
    pub(crate) fn artifact(&self, name: &str, subject: &Digest, artifact_type: &str) -> Digest {
        let config = self.blob(name, b"{}");
        let artifact = artifact(&config, subject, artifact_type);
        self.manifest(name, artifact.to_string().as_bytes())
    }

    /// An index of manifests.
    pub(crate) fn index(&self, name: &str, children: &[&Digest]) -> Digest {
        self.manifest(name, index(children).to_string().as_bytes())
    }
}

pub(crate) fn image(config: &Digest, layer: &Digest, size: usize) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config.to_string(), "size": 2},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.to_string(), "size": size}],
    })
}

pub(crate) fn artifact(config: &Digest, subject: &Digest, artifact_type: &str) -> Value {
    let mut manifest = image(config, config, 2);
    manifest["artifactType"] = json!(artifact_type);
    manifest["subject"] = json!({"mediaType": MANIFEST, "digest": subject.to_string(), "size": 1});
    manifest
}

pub(crate) fn index(children: &[&Digest]) -> Value {
    let entries: Vec<Value> = children
        .iter()
        .map(|digest| json!({"mediaType": MANIFEST, "digest": digest.to_string(), "size": 1}))
        .collect();
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
}
