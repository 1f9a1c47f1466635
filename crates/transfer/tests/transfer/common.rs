//! Stores for tests, and what is asked of them.

use futures_util::StreamExt as _;
use xebec_store::{Digest, Store, StoreConfig, TagRecord};
use xebec_transfer::Moved;

pub(crate) struct Here {
    pub(crate) store: Store,
    _directory: tempfile::TempDir,
}

impl Here {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(directory.path().join("store"));
        let store = Store::open(&config).await.unwrap();
        Self {
            store,
            _directory: directory,
        }
    }

    pub(crate) async fn tag(&self, repository: &str, tag: &str) -> Option<Digest> {
        let (repository, tag) = (repository.parse().unwrap(), tag.parse().unwrap());
        let found = self.store.tag(&repository, &tag).await.unwrap();
        found.map(|found| found.digest)
    }

    /// A tag that is here.
    pub(crate) async fn record(&self, repository: &str, tag: &str) -> TagRecord {
        let (repository, tag) = (repository.parse().unwrap(), tag.parse().unwrap());
        self.store.tag(&repository, &tag).await.unwrap().unwrap()
    }

    /// One that is in a directory already.
    pub(crate) async fn at(root: &std::path::Path) -> Self {
        Self {
            store: Store::open(&StoreConfig::new(root)).await.unwrap(),
            _directory: tempfile::tempdir().unwrap(),
        }
    }

    /// The manifests that refer to a manifest.
    pub(crate) async fn referrers(&self, repository: &str, subject: &Digest) -> Vec<Digest> {
        let repository = repository.parse().unwrap();
        let page = self
            .store
            .referrers(&repository, subject, None, 100, None)
            .await
            .unwrap();
        page.items.into_iter().map(|item| item.digest).collect()
    }

    /// The bytes of a blob of a repository.
    pub(crate) async fn blob(&self, repository: &str, digest: &Digest) -> Option<Vec<u8>> {
        let repository = repository.parse().unwrap();
        let blob = self.store.peek_blob(&repository, digest).await.unwrap()?;
        let mut reader = self.store.read(&blob, 0..blob.size).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        Some(bytes)
    }

    /// How many repositories there are.
    pub(crate) async fn repositories(&self) -> usize {
        self.store.repositories(1000, None).await.unwrap().items.len()
    }
}

/// Whether something was skipped for a reason that has these words.
pub(crate) fn skipped(moved: &Moved, what: &str, reason: &str) -> bool {
    let mut all = moved.skipped.iter();
    all.any(|skipped| skipped.what.contains(what) && skipped.reason.contains(reason))
}
