//! Stores for tests, and short ways to use them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use xebec_store::*;

/// A store of its own, gone with this.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) engine: &'static str,
    pub(crate) directory: tempfile::TempDir,
}

/// One store over each engine that is here.
pub(crate) async fn engines(change: impl Fn(&mut StoreConfig)) -> Vec<TestStore> {
    let directory = tempfile::tempdir().unwrap();
    let mut config = StoreConfig::new(directory.path());
    change(&mut config);
    vec![TestStore {
        store: Store::open(&config).await.unwrap(),
        engine: "SQLite and directory",
        directory,
    }]
}

pub(crate) fn no_grace(config: &mut StoreConfig) {
    config.grace = Duration::ZERO;
}

pub(crate) fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

pub(crate) fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::of(Algorithm::Sha256, bytes)
}

pub(crate) fn body(
    pieces: &[&[u8]],
) -> impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    stream::iter(pieces)
}

pub(crate) async fn push(store: &Store, repository: &RepositoryName, bytes: &[u8]) -> Result<Blob> {
    let id = store.begin_upload(repository).await?;
    match store.append(repository, &id, None, body(&[bytes])).await {
        Ok(_) => {}
        Err(AppendError::Store(error)) => return Err(error),
        Err(error) => panic!("{error}"),
    }
    store.finish_upload(repository, &id, &digest(bytes)).await
}

pub(crate) async fn contents(store: &Store, blob: &Blob) -> Vec<u8> {
    range(store, blob, 0..blob.size).await
}

pub(crate) async fn range(store: &Store, blob: &Blob, range: std::ops::Range<u64>) -> Vec<u8> {
    let pieces: Vec<Bytes> = store
        .read(blob, range)
        .await
        .unwrap()
        .map(Result::unwrap)
        .collect()
        .await;
    pieces.concat()
}

pub(crate) fn layer(bytes: &[u8]) -> Reference {
    Reference {
        kind: ReferenceKind::Layer,
        digest: digest(bytes),
        required: true,
    }
}

pub(crate) fn child(manifest: &NewManifest) -> Reference {
    Reference {
        kind: ReferenceKind::Manifest,
        digest: manifest.digest.clone(),
        required: true,
    }
}

pub(crate) fn manifest(text: &str, references: Vec<Reference>) -> NewManifest {
    NewManifest {
        digest: digest(text.as_bytes()),
        media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        content: Bytes::copy_from_slice(text.as_bytes()),
        references,
        subject: None,
        artifact_type: None,
        annotations: BTreeMap::new(),
        immutable: Vec::new(),
    }
}

pub(crate) fn referring(text: &str, subject: &Digest, artifact_type: &str) -> NewManifest {
    NewManifest {
        subject: Some(subject.clone()),
        artifact_type: Some(artifact_type.to_owned()),
        annotations: [("org.example.made-by".to_owned(), text.to_owned())].into(),
        ..manifest(text, Vec::new())
    }
}

/// The files of objects that are there.
pub(crate) fn files(store: &TestStore) -> usize {
    let shards = std::fs::read_dir(store.directory.path().join("objects")).unwrap();
    shards
        .map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count())
        .sum()
}

/// Waits until what is done in the background has left so many files.
pub(crate) async fn files_become(store: &TestStore, wanted: usize) {
    for _ in 0..500 {
        if files(store) == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} files, {wanted} wanted", files(store));
}
