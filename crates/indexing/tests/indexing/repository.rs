//! A store to which is pushed without a server.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::Value;
use xebec_artifact::artifact::Artifact;
use xebec_format::digest::Digest;
use xebec_indexing::{Indexer, IndexingSettings};
use xebec_store::{NewManifest, RepositoryName, Store, StoreConfig, Tag};
use xebec_testkit::image::Image;
use xebec_upstream::Upstreams;
use xebec_upstream::manifest::Facts;

use crate::referring::listed;

pub(crate) struct Here {
    pub(crate) store: Store,
    _root: tempfile::TempDir,
}

pub(crate) fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

pub(crate) fn stored(digest: Digest) -> xebec_store::Digest {
    digest.to_string().parse().unwrap()
}

impl Here {
    pub(crate) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreConfig::new(root.path().join("store")))
            .await
            .unwrap();
        Self { store, _root: root }
    }

    pub(crate) async fn push_blob(&self, repository: &str, bytes: &[u8]) {
        let repository = name(repository);
        let id = self.store.begin_upload(&repository).await.unwrap();
        let body = futures_util::stream::iter([Ok(bytes.to_vec().into())]);
        self.store.append(&repository, &id, None, body).await.unwrap();
        let digest = stored(Digest::of(bytes));
        self.store.finish_upload(&repository, &id, &digest).await.unwrap();
    }

    pub(crate) async fn push_manifest(&self, repository: &str, tag: &str, content: Vec<u8>) {
        let facts = Facts::read(&content, None).unwrap();
        let manifest = NewManifest {
            digest: stored(Digest::of(&content)),
            media_type: facts.media_type,
            content: content.into(),
            references: facts.references,
            subject: facts.subject,
            artifact_type: facts.artifact_type,
            annotations: facts.annotations,
            immutable: Vec::new(),
            is_pushed: true,
        };
        let tag: Tag = tag.parse().unwrap();
        self.store
            .put_manifest(&name(repository), &manifest, &[tag])
            .await
            .unwrap();
    }

    pub(crate) async fn push_json(&self, repository: &str, tag: &str, manifest: &Value) {
        self.push_manifest(repository, tag, manifest.to_string().into_bytes())
            .await;
    }

    pub(crate) async fn push(&self, repository: &str, tag: &str, image: &Image) {
        for blob in image.blobs() {
            self.push_blob(repository, &blob.bytes).await;
        }
        self.push_manifest(repository, tag, image.manifest.bytes.to_vec())
            .await;
    }

    /// The bytes of a blob that the repository has.
    pub(crate) async fn blob(&self, repository: &str, digest: Digest) -> Vec<u8> {
        let blob = self
            .store
            .peek_blob(&name(repository), &stored(digest))
            .await
            .unwrap()
            .unwrap();
        let mut stream = self.store.read(&blob, 0..blob.size).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(part) = stream.next().await {
            bytes.extend_from_slice(&part.unwrap());
        }
        bytes
    }

    /// Does all that is due; how many manifests that were.
    pub(crate) async fn finish(&self, settings: &IndexingSettings) -> usize {
        let indexer = Indexer::new(settings, self.store.clone(), Upstreams::default(), Arc::default());
        let (indexer, mut done) = (indexer.unwrap(), 0);
        while indexer.work_once().await.unwrap() {
            done += 1;
        }
        done
    }

    /// The artifacts that list indexes of an image.
    pub(crate) async fn listed(&self, repository: &str, image: &Image) -> Vec<Artifact> {
        listed(&self.store, repository, image).await
    }
}
