//! A store with a deduplicator, and layers to push.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Notify;
use xebec_dedup::{Deduplicator, Done, Restorer, Settings};
use xebec_store::{
    Algorithm, Blob, CollectOptions, Digest, NewManifest, Reference, ReferenceKind, RepositoryName, Store,
    StoreConfig,
};

/// A store of its own, gone with this.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) restorer: Restorer,
    pub(crate) deduplicator: Deduplicator,
    pub(crate) directory: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl Fn(&mut Settings)) -> Self {
        Self::with_files(16 << 20, change).await
    }

    /// With so much room for blobs that are restored before somebody asks.
    pub(crate) async fn with_files(files: u64, change: impl Fn(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = StoreConfig::new(directory.path());
        config.grace = Duration::ZERO;
        let store = Store::open(&config).await.unwrap();
        let mut settings = Settings {
            least_size: 1,
            level: 1,
            gives_way: false,
            ..Settings::default()
        };
        change(&mut settings);
        let restorer = Restorer::with_files(&settings, &directory.path().join("restored"), files).unwrap();
        store.set_restorer(Arc::new(restorer.clone()));
        Self {
            deduplicator: Deduplicator::new(store.clone(), settings, Arc::new(Notify::new())),
            store,
            restorer,
            directory,
        }
    }

    /// Pushes a blob.
    pub(crate) async fn push(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(Algorithm::Sha256, bytes);
        let id = self.store.begin_upload(&repository()).await.unwrap();
        let body = stream::iter([Ok::<_, std::io::Error>(Bytes::copy_from_slice(bytes))]);
        self.store.append(&repository(), &id, None, body).await.unwrap();
        self.store
            .finish_upload(&repository(), &id, &digest)
            .await
            .unwrap();
        let manifest = manifest_of(&digest);
        self.store
            .put_manifest(&repository(), &manifest, &[])
            .await
            .unwrap();
        digest
    }

    /// Deletes the manifest that names a blob.
    pub(crate) async fn delete(&self, digest: &Digest) {
        let manifest = manifest_of(digest).digest;
        assert!(
            self.store
                .delete_manifest(&repository(), &manifest)
                .await
                .unwrap()
        );
    }

    /// Collects until nothing is left to do.
    pub(crate) async fn collect(&self) {
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            let collected = self.store.collect(&CollectOptions::default()).await.unwrap();
            assert_eq!(collected.failed, 0);
        }
    }

    /// Works until nothing is due, and says what came of each blob.
    pub(crate) async fn work(&self) -> Vec<(Digest, Done)> {
        let mut all = Vec::new();
        while let Some((blob, done)) = self.deduplicator.work_once().await.unwrap() {
            all.push((blob.digest, done));
        }
        all
    }

    /// Pushes a blob, which is taken apart and is not intact any more.
    pub(crate) async fn take_apart(&self, bytes: &[u8]) -> Digest {
        let digest = self.push(bytes).await;
        assert_eq!(self.work().await, [(digest.clone(), Done::Recorded)]);
        assert_eq!(self.blob(&digest).await.unwrap().object, None);
        // The intact bytes are gone after this.
        self.collect().await;
        digest
    }

    pub(crate) async fn blob(&self, digest: &Digest) -> Option<Blob> {
        self.store.peek_blob(&repository(), digest).await.unwrap()
    }

    pub(crate) async fn read(&self, digest: &Digest) -> Vec<u8> {
        let size = self.blob(digest).await.unwrap().size;
        self.read_range(digest, 0..size).await.unwrap()
    }

    pub(crate) async fn read_range(&self, digest: &Digest, range: Range<u64>) -> Result<Vec<u8>, String> {
        let blob = self.blob(digest).await.ok_or("the blob is absent")?;
        let reading = self.store.read(&blob, range).await;
        let mut stream = reading.map_err(|error| error.to_string())?;
        let mut all = Vec::new();
        while let Some(piece) = stream.next().await {
            all.extend_from_slice(&piece.map_err(|error| error.to_string())?);
        }
        Ok(all)
    }

    /// The files of all objects, and their bytes.
    pub(crate) fn objects(&self) -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        for directory in std::fs::read_dir(self.directory.path().join("objects")).unwrap() {
            let directory = directory.unwrap().path();
            if directory.is_dir() {
                for file in std::fs::read_dir(directory).unwrap() {
                    let path = file.unwrap().path();
                    all.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        all.sort();
        all
    }

    pub(crate) fn stored(&self) -> u64 {
        self.objects().iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

pub(crate) fn repository() -> RepositoryName {
    "team/app".parse().unwrap()
}

fn manifest_of(blob: &Digest) -> NewManifest {
    let content = Bytes::from(format!("names {blob}"));
    NewManifest {
        digest: Digest::of(Algorithm::Sha256, &content),
        media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        content,
        references: vec![Reference {
            kind: ReferenceKind::Layer,
            digest: blob.clone(),
            required: true,
        }],
        subject: None,
        artifact_type: None,
        annotations: Default::default(),
        immutable: Vec::new(),
        is_pushed: true,
    }
}

/// A tar of files with these names and contents.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *contents).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Text that compresses as programs and documents do, another one for each seed.
pub(crate) fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut numbers = xebec_testkit::corpus::Numbers(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
    let words: Vec<String> = (0..400).map(|_| format!("{:x} ", numbers.next() >> 40)).collect();
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        text.extend_from_slice(words[numbers.below(words.len())].as_bytes());
    }
    text.truncate(length);
    text
}

pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, 3).unwrap()
}

/// A layer of so many files, of which those from `same` on are in every other layer, too.
pub(crate) fn layer(own: u64, count: usize, same: usize) -> Vec<u8> {
    let files: Vec<(String, Vec<u8>)> = (0..count)
        .map(|number| {
            let seed = if number >= same {
                1000 + number as u64
            } else {
                own * 100 + number as u64
            };
            (
                format!("usr/lib/file-{number}.txt"),
                text(seed, 3000 + 977 * (number % 40)),
            )
        })
        .collect();
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_slice()))
        .collect();
    tar(&files)
}
