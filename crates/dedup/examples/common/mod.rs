//! A store in a temporary directory, with a deduplicator, for the programs that measure.
#![allow(dead_code, reason = "each program uses a part of it")]

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::Notify;
use xebec_dedup::{Deduplicator, Settings};
use xebec_store::{
    Algorithm, Blob, CollectOptions, Digest, Hasher, NewManifest, Reference, ReferenceKind, RepositoryName,
    Store, StoreConfig,
};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a file that are read at once.
const PIECE: usize = 1 << 20;

/// It is gone with this.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) deduplicator: Deduplicator,
    pub(crate) directory: tempfile::TempDir,
}

impl World {
    /// An empty one.
    pub(crate) async fn new(settings: &Settings) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let mut config = StoreConfig::new(directory.path());
        config.grace = Duration::ZERO;
        let store = Store::open(&config).await?;
        let deduplicator = Deduplicator::new(store.clone(), settings.clone(), Arc::new(Notify::new()));
        Ok(Self {
            store,
            deduplicator,
            directory,
        })
    }

    /// Pushes the bytes of a file, and a manifest that names them.
    pub(crate) async fn push_file(&self, path: &str) -> Result<Blob, Failure> {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        for piece in pieces(path)? {
            hasher.update(&piece?);
        }
        self.push(hasher.finish(), stream::iter(pieces(path)?)).await
    }

    /// The same with bytes in memory.
    pub(crate) async fn push_bytes(&self, bytes: Bytes) -> Result<Blob, Failure> {
        let digest = Digest::of(Algorithm::Sha256, &bytes);
        self.push(digest, stream::iter([Ok(bytes)])).await
    }

    async fn push(
        &self,
        digest: Digest,
        body: impl futures_util::Stream<Item = std::io::Result<Bytes>> + Send + Unpin + 'static,
    ) -> Result<Blob, Failure> {
        let repository: RepositoryName = "team/app".parse()?;
        let id = self.store.begin_upload(&repository).await?;
        self.store.append(&repository, &id, None, body).await?;
        self.store.finish_upload(&repository, &id, &digest).await?;
        let content = Bytes::from(format!("names {digest}"));
        let manifest = NewManifest {
            digest: Digest::of(Algorithm::Sha256, &content),
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            content,
            references: vec![Reference {
                kind: ReferenceKind::Layer,
                digest: digest.clone(),
                required: true,
            }],
            subject: None,
            artifact_type: None,
            annotations: Default::default(),
            immutable: Vec::new(),
            is_pushed: true,
        };
        self.store.put_manifest(&repository, &manifest, &[]).await?;
        self.blob(&digest).await
    }

    /// A blob, as the store has it now.
    pub(crate) async fn blob(&self, digest: &Digest) -> Result<Blob, Failure> {
        let blob = self.store.peek_blob(&"team/app".parse()?, digest).await?;
        Ok(blob.ok_or("the blob is absent")?)
    }

    /// Collects until nothing is left to do.
    pub(crate) async fn collect(&self) -> Result<(), Failure> {
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            self.store.collect(&CollectOptions::default()).await?;
        }
        Ok(())
    }

    /// Tells the system that the pages of all objects need not stay in memory.
    pub(crate) fn forget_pages(&self) {
        for path in files_below(&self.directory.path().join("objects")) {
            if let Ok(file) = std::fs::File::open(path) {
                let _ = rustix::fs::fdatasync(&file);
                let _ = rustix::fs::fadvise(file.as_fd(), 0, None, rustix::fs::Advice::DontNeed);
            }
        }
    }

    /// The bytes of the database and of its log, of which copies are left at `copy` and beside it. The log is as large as it ever was, however little is in
    /// it: so the two are not added up. Nobody may write meanwhile.
    pub(crate) fn records(&self, copy: Option<&str>) -> Result<(u64, u64), Failure> {
        let [database, log] = ["records.db", "records.db-wal"].map(|name| self.directory.path().join(name));
        if let Some(copy) = copy {
            std::fs::copy(&database, copy)?;
            std::fs::copy(&log, format!("{copy}-wal"))?;
        }
        Ok((std::fs::metadata(database)?.len(), std::fs::metadata(log)?.len()))
    }
}

fn files_below(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found
}

fn pieces(
    path: &str,
) -> std::io::Result<impl Iterator<Item = std::io::Result<Bytes>> + Send + Unpin + use<>> {
    use std::io::Read as _;
    let mut file = std::fs::File::open(path)?;
    Ok(std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(PIECE);
        match file.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
            Ok(0) => None,
            Ok(_) => Some(Ok(Bytes::from(piece))),
            Err(error) => Some(Err(error)),
        }
    }))
}

/// The most memory that this process has had, in MiB.
pub(crate) fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}
