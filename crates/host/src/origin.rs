//! Where the bytes of a cached layer come from: the repositories that were seen to have its blob, kept in the
//! file `origins.json` of the layer's folder so that a new worker can go on filling.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xebec_cache::fill::{Blob, BoxFuture, Source};
use xebec_format::digest::Digest;
use xebec_oci::{BlobStream, RangeAnswer, Reference, Repository};

use crate::clients::Clients;
use crate::file::write_atomically;
use crate::spool::{Spool, SpoolReader};

const FILE: &str = "origins.json";
/// Repositories remembered for a layer. A base layer is in many; the latest few are the likeliest to be up.
const MAX_ORIGINS: usize = 8;
/// A windows section up to this size is fetched whole at its first use and kept: one request instead of one for
/// each span. At 100 Mbit/s the limit takes 20 ms, as long as two or three round trips to a remote registry.
const WHOLE_WINDOWS: u64 = 256 << 10;

/// A repository that has a layer's blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The repository with its registry, as in a reference without tag.
    pub repository: String,
    /// The docker configuration of the user through whom it was reached.
    pub docker_config: Option<PathBuf>,
    /// The blob with the index's windows, in the same repository.
    pub windows: Option<Digest>,
    /// Size of that blob in bytes.
    pub windows_size: u64,
}

impl Origin {
    /// The blob with the windows, and its size.
    fn windows_blob(&self) -> Option<(Digest, u64)> {
        self.windows.map(|digest| (digest, self.windows_size))
    }

    /// The repository; `None` when the file was damaged.
    pub fn parse_repository(&self) -> Option<Repository> {
        self.repository
            .parse::<Reference>()
            .ok()
            .map(|reference| reference.repository().clone())
    }
}

/// Reads a layer's origins; a missing or damaged file has none.
pub fn read(directory: &Path) -> Vec<Origin> {
    let bytes = fs::read(directory.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Puts `origin` first among a layer's origins.
///
/// # Errors
/// When the file cannot be written.
pub fn remember(directory: &Path, origin: Origin) -> io::Result<()> {
    let mut origins = read(directory);
    if origins.first() == Some(&origin) {
        return Ok(());
    }
    origins.retain(|other| *other != origin);
    origins.insert(0, origin);
    origins.truncate(MAX_ORIGINS);
    write_atomically(&directory.join(FILE), &serde_json::to_vec(&origins)?)
}

/// The source of one layer: its origins in turn, and local files for what was kept.
pub struct LayerSource {
    inner: Arc<Inner>,
}

struct Inner {
    clients: Arc<Clients>,
    layer: Digest,
    /// Size of the layer blob in bytes.
    size: u64,
    directory: PathBuf,
    /// Blobs that come whole, of registries that ignore ranges.
    spools: Mutex<HashMap<Digest, Spool>>,
    whole_windows: tokio::sync::Mutex<()>,
    windows: Mutex<Option<Arc<File>>>,
}

impl LayerSource {
    /// The source of the layer of `size` bytes that is kept in `directory`.
    pub fn new(clients: Arc<Clients>, layer: Digest, size: u64, directory: &Path) -> Self {
        let windows = File::open(directory.join("windows")).ok().map(Arc::new);
        Self {
            inner: Arc::new(Inner {
                clients,
                layer,
                size,
                directory: directory.to_owned(),
                spools: Mutex::default(),
                whole_windows: tokio::sync::Mutex::new(()),
                windows: Mutex::new(windows),
            }),
        }
    }
}

impl Source for LayerSource {
    fn read(&self, blob: Blob, range: Range<u64>) -> BoxFuture<Result<Bytes, String>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            match blob {
                Blob::Layer => inner.layer_bytes(range).await,
                Blob::Windows => inner.window_bytes(range).await,
            }
        })
    }
}

impl Inner {
    async fn layer_bytes(&self, range: Range<u64>) -> Result<Bytes, String> {
        self.ask_origins(|_| Some((self.layer, self.size)), range).await
    }

    async fn window_bytes(&self, range: Range<u64>) -> Result<Bytes, String> {
        if let Some(file) = self.local_windows() {
            return read_range(&file, &range)
                .map_err(|error| format!("the windows kept in the cache: {error}"));
        }
        let Some((digest, size)) = self.small_windows() else {
            return self.ask_origins(Origin::windows_blob, range).await;
        };
        // One reader fetches the section, the others wait for it.
        let _one = self.whole_windows.lock().await;
        if self.local_windows().is_none() {
            let whole = self.ask_origins(Origin::windows_blob, 0..size).await?;
            if Digest::of(&whole) != digest {
                return Err(format!(
                    "the windows section is not {digest} but {}",
                    Digest::of(&whole)
                ));
            }
            let path = self.directory.join("windows");
            write_atomically(&path, &whole).map_err(|error| format!("write {}: {error}", path.display()))?;
            let file = File::open(&path).map_err(|error| format!("open {}: {error}", path.display()))?;
            *self.lock() = Some(Arc::new(file));
        }
        let file = self.local_windows().ok_or("the windows section vanished")?;
        read_range(&file, &range).map_err(|error| format!("the windows kept in the cache: {error}"))
    }

    fn small_windows(&self) -> Option<(Digest, u64)> {
        let origins = read(&self.directory);
        let origin = origins.iter().find(|origin| origin.windows.is_some())?;
        (origin.windows_size <= WHOLE_WINDOWS).then_some((origin.windows?, origin.windows_size))
    }

    async fn ask_origins(
        &self,
        blob: impl Fn(&Origin) -> Option<(Digest, u64)>,
        range: Range<u64>,
    ) -> Result<Bytes, String> {
        let mut reasons = Vec::new();
        for origin in read(&self.directory) {
            let Some((digest, size)) = blob(&origin) else {
                continue;
            };
            let attempt = self.ask_origin(&origin, digest, size, range.clone());
            match attempt.await {
                Ok(bytes) => return Ok(bytes),
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() {
            reasons.push("no registry is known to have it; mount or pull the image again".to_owned());
        }
        Err(reasons.join("; "))
    }

    async fn ask_origin(
        &self,
        origin: &Origin,
        blob: Digest,
        size: u64,
        range: Range<u64>,
    ) -> Result<Bytes, String> {
        if let Some(reader) = self.arriving(&blob) {
            return reader.read(range).await;
        }
        let client = self
            .clients
            .get(origin.docker_config.as_deref())
            .map_err(|error| error.to_string())?;
        let repository = origin.parse_repository().ok_or("a damaged origins.json")?;
        let answer = client.blob_range_or_whole(&repository, &blob, size, range.clone());
        match answer.await.map_err(|error| error.to_string())? {
            RangeAnswer::Part(bytes) => Ok(bytes),
            RangeAnswer::Whole(stream) => {
                let reader = self
                    .spool(blob, stream)
                    .map_err(|error| format!("keep a blob that comes whole: {error}"))?;
                reader.read(range).await
            }
        }
    }

    /// A reader of a blob that is coming whole.
    fn arriving(&self, blob: &Digest) -> Option<SpoolReader> {
        let spools = self
            .spools
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let spool = spools.get(blob).filter(|spool| !spool.has_failed());
        spool.map(Spool::reader)
    }

    /// Takes a blob in that comes whole, unless another reader's request brought it already.
    fn spool(&self, blob: Digest, stream: BlobStream) -> io::Result<SpoolReader> {
        let mut spools = self
            .spools
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(spool) = spools.get(&blob).filter(|spool| !spool.has_failed()) {
            return Ok(spool.reader());
        }
        let spool = Spool::start(&self.directory, blob, stream)?;
        let reader = spool.reader();
        spools.insert(blob, spool);
        Ok(reader)
    }

    fn local_windows(&self) -> Option<Arc<File>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<File>>> {
        self.windows
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn read_range(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    if range.end > file.metadata()?.len() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the range is beyond the end of the file",
        ));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}
