//! The contents of the registry, in memory.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use xebec_format::digest::Digest;

/// Type of an OCI index, which lists of referrers are.
pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

#[derive(Debug, Clone)]
pub(super) struct StoredManifest {
    pub(super) media_type: String,
    pub(super) bytes: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Repository {
    pub(super) blobs: HashMap<Digest, Bytes>,
    pub(super) manifests: HashMap<Digest, StoredManifest>,
    pub(super) tags: HashMap<String, Digest>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) repositories: HashMap<String, Repository>,
    pub(super) uploads: HashMap<u64, BytesMut>,
    next_upload: u64,
}

impl Store {
    pub(super) fn repository(&mut self, name: &str) -> &mut Repository {
        self.repositories.entry(name.to_owned()).or_default()
    }

    pub(super) fn start_upload(&mut self) -> u64 {
        self.next_upload += 1;
        self.uploads.insert(self.next_upload, BytesMut::new());
        self.next_upload
    }

    /// A blob, whichever repository has it.
    pub(super) fn any_blob(&self, digest: &Digest) -> Option<Bytes> {
        self.repositories
            .values()
            .find_map(|repository| repository.blobs.get(digest).cloned())
    }
}

impl Repository {
    pub(super) fn put_manifest(&mut self, name: &str, media_type: &str, bytes: Bytes) -> Digest {
        let digest = Digest::of(&bytes);
        self.manifests.insert(
            digest,
            StoredManifest {
                media_type: media_type.to_owned(),
                bytes,
            },
        );
        if !name.contains(':') {
            self.tags.insert(name.to_owned(), digest);
        }
        digest
    }

    pub(super) fn manifest(&self, name: &str) -> Option<(Digest, &StoredManifest)> {
        let digest = name.parse().ok().or_else(|| self.tags.get(name).copied())?;
        Some((digest, self.manifests.get(&digest)?))
    }

    /// Descriptors of the manifests whose `subject` is `subject`, in the order of their digests.
    pub(super) fn referrers(&self, subject: &str) -> Vec<Value> {
        let mut found: Vec<(Digest, Value)> = Vec::new();
        for (digest, manifest) in &self.manifests {
            let Ok(value) = serde_json::from_slice::<Value>(&manifest.bytes) else {
                continue;
            };
            if value["subject"]["digest"] != subject {
                continue;
            }
            let config_type = &value["config"]["mediaType"];
            let artifact_type = value.get("artifactType").unwrap_or(config_type);
            let mut entry = json!({
                "mediaType": manifest.media_type,
                "digest": digest.to_string(),
                "size": manifest.bytes.len(),
                "artifactType": artifact_type,
            });
            if value["annotations"].is_object() {
                entry["annotations"] = value["annotations"].clone();
            }
            found.push((*digest, entry));
        }
        found.sort_by_key(|(digest, _)| *digest);
        found.into_iter().map(|(_, entry)| entry).collect()
    }
}
