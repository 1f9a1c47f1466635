//! Asks the origins of a layer for its bytes.
//!
//! The first is asked. As soon as it meets a fault the next is asked as well, if it is in another registry, while the
//! first goes on trying: the first origin that has the bytes wins. So an outage of one registry costs little where another
//! has the layer, and a reader whose registries are all away is served by the first that comes back.

mod error;
mod watcher;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use xebec_cache::fill::{Ask, Blob, BoxFuture, FaultKind, Fetched, Patience, Source, SourceError};
use xebec_cache::progress::Phase;
use xebec_format::digest::Digest;
use xebec_format::layer::Section;
use xebec_kernel::file::write_for_this_boot;
use xebec_oci::{BlobStream, Client, ClientError, RangeAnswer};

use self::error::{all_of, local, of_client, passing};
use self::watcher::Watcher;
use super::{Origin, read};
use crate::clients::Clients;
use crate::whole_blob_download::{SpoolReader, WholeBlobDownload};

/// A windows section up to this size is fetched whole at its first use and kept: one request instead of one for
/// each span. At 100 Mbit/s the limit takes 20 ms, as long as two or three round trips to a remote registry.
const WHOLE_WINDOWS: u64 = 256 << 10;

/// The repositories of the images that read a layer just now, as in references without tag.
pub type Readers = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

/// The source of one layer: its origins in turn, and local files for what was kept.
pub struct LayerSource {
    inner: Arc<Inner>,
}

struct Inner {
    clients: Arc<Clients>,
    readers: Readers,
    layer: Digest,
    /// Size of the layer blob in bytes.
    size: u64,
    directory: PathBuf,
    /// Blobs that come whole, of registries that ignore ranges.
    spools: Mutex<HashMap<Digest, WholeBlobDownload>>,
    whole_windows: tokio::sync::Mutex<()>,
    /// The section of windows, as the index describes it.
    windows_section: Option<Section>,
    windows: Mutex<Option<Arc<File>>>,
}

/// The parts of a [`LayerSource`].
pub struct LayerSourceParts<'a> {
    /// Clients of the registries.
    pub clients: Arc<Clients>,
    /// Names the repositories of the images that read it just now.
    pub readers: Readers,
    /// Digest of the layer blob.
    pub layer: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Where the layer is kept.
    pub directory: &'a Path,
    /// The windows of its index.
    pub windows: Option<Section>,
}

impl LayerSource {
    /// The source of a layer.
    pub fn new(parts: LayerSourceParts<'_>) -> Self {
        Self {
            inner: Arc::new(Inner {
                clients: parts.clients,
                readers: parts.readers,
                layer: parts.layer,
                size: parts.size,
                directory: parts.directory.to_owned(),
                spools: Mutex::default(),
                whole_windows: tokio::sync::Mutex::new(()),
                windows_section: parts.windows,
                windows: Mutex::new(None),
            }),
        }
    }
}

/// Named as the source of bytes that were kept on this host: the windows of an index.
pub const KEPT: &str = "cache";
/// Named as the source of bytes of a blob that came whole because its registry ignores ranges.
pub const SPOOLED: &str = "spool";

impl Source for LayerSource {
    fn read(&self, ask: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            match ask.blob {
                Blob::Layer => {
                    let blob = Some((inner.layer, inner.size));
                    inner.ask_origins(|_| blob, &ask).await
                }
                Blob::Windows => inner.window_bytes(ask).await,
            }
        })
    }
}

impl Inner {
    async fn window_bytes(&self, ask: Ask) -> Result<Fetched, SourceError> {
        if let Some(file) = self.local_windows().await {
            return self.kept_windows(&file, &ask);
        }
        let Some((digest, size)) = self.small_windows() else {
            return self.ask_origins(Origin::windows_blob, &ask).await;
        };
        // One reader fetches the section, the others wait for it.
        let _one = self.whole_windows.lock().await;
        if self.windows.lock().is_none() {
            let all = Ask {
                range: 0..size,
                ..ask.clone()
            };
            let fetched = self.ask_origins(Origin::windows_blob, &all).await?;
            let whole = fetched.bytes;
            if Digest::of(&whole) != digest {
                return Err(SourceError {
                    kind: FaultKind::Wrong,
                    reason: format!("the windows section is not {digest} but {}", Digest::of(&whole)),
                });
            }
            let path = self.directory.join("windows");
            write_for_this_boot(&path, &whole)
                .map_err(|error| local(format!("write {}: {error}", path.display())))?;
            let file =
                File::open(&path).map_err(|error| local(format!("open {}: {error}", path.display())))?;
            *self.windows.lock() = Some(Arc::new(file));
            // Bytes from the network are reported once; later readers take them from here.
            for (source, bytes) in fetched.sources {
                ask.progress.received(&source, bytes);
            }
        }
        let file = self
            .windows
            .lock()
            .clone()
            .ok_or_else(|| local("the windows section vanished"))?;
        self.kept_windows(&file, &ask)
    }

    fn kept_windows(&self, file: &File, ask: &Ask) -> Result<Fetched, SourceError> {
        let bytes = read_range(file, &ask.range)
            .map_err(|error| local(format!("the windows kept in the cache: {error}")))?;
        Ok(from(KEPT, bytes))
    }

    fn small_windows(&self) -> Option<(Digest, u64)> {
        let origins = read(&self.directory);
        let origin = origins.iter().find(|origin| origin.windows.is_some())?;
        (origin.windows_size <= WHOLE_WINDOWS).then_some((origin.windows?, origin.windows_size))
    }

    async fn ask_origins(
        &self,
        blob: impl Fn(&Origin) -> Option<(Digest, u64)>,
        ask: &Ask,
    ) -> Result<Fetched, SourceError> {
        let registry = |origin: &Origin| origin.repository.split('/').next().unwrap_or_default().to_owned();
        let mut origins = for_readers(read(&self.directory), &(self.readers)(), ask.blob);
        origins.retain(|origin| blob(origin).is_some());
        if origins.is_empty() {
            return Err(local(
                "no registry is known to have it; mount or pull the image again",
            ));
        }
        origins.sort_by_key(|origin| ask.avoid.contains(&registry(origin)));
        let mut waiting = VecDeque::from(origins);
        let mut asked: Vec<String> = Vec::new();
        let mut running = FuturesUnordered::new();
        let mut errors = Vec::new();
        let (sender, mut faults) = unbounded_channel();
        loop {
            let next = waiting
                .iter()
                .position(|origin| !asked.contains(&registry(origin)));
            if let Some(origin) = next.and_then(|next| waiting.remove(next))
                && let Some((digest, size)) = blob(&origin)
            {
                let host = registry(&origin);
                asked.push(host.clone());
                let faults = sender.clone();
                running.push(async move {
                    let answer = self.ask_origin(&origin, digest, size, ask, faults).await;
                    (host, answer)
                });
            }
            // Until somebody has the bytes, has none, or meets its first fault.
            let ended = tokio::select! {
                ended = running.next() => ended,
                _ = faults.recv() => continue,
            };
            match ended {
                Some((_, Ok(bytes))) => return Ok(bytes),
                Some((host, Err(error))) => {
                    errors.push(error);
                    asked.retain(|other| *other != host);
                }
                None => return Err(all_of(errors)),
            }
        }
    }

    async fn ask_origin(
        &self,
        origin: &Origin,
        blob: Digest,
        size: u64,
        ask: &Ask,
        faults: UnboundedSender<()>,
    ) -> Result<Fetched, SourceError> {
        if let Some(reader) = self.arriving(&blob) {
            return read_spool(reader, ask).await;
        }
        let client = self
            .clients
            .get(origin.docker_config.as_deref())
            .map_err(|error| local(&error))?;
        let repository = origin
            .parse_repository()
            .ok_or_else(|| local("a damaged origins.json"))?;
        let watcher = Arc::new(Watcher {
            progress: ask.progress.clone(),
            faults,
            received: Mutex::default(),
        });
        let watched = |client: &Client| client.avoiding(&ask.avoid).observed(watcher.clone());
        let read = async |client: Client| {
            let range = ask.range.clone();
            client.blob_range_or_whole(&repository, &blob, size, range).await
        };
        let patiently = async |client: Client| match ask.patience {
            Patience::Brief => read(client).await,
            Patience::Until(deadline) => read(client.patient_until(deadline)).await,
        };
        let client = watched(&client);
        let answer = match self.clients.tried() {
            None => patiently(client).await,
            // A pull reads the layers that it unpacks onto, and its login is everybody's only when it has ended.
            Some(tried) => match read(client.clone()).await {
                Err(ClientError::Unauthorized { .. } | ClientError::Denied { .. }) => {
                    let client = tried.get(origin.docker_config.as_deref());
                    patiently(watched(&client.map_err(|error| local(&error))?)).await
                }
                Err(error) if error.may_heal() => patiently(client).await,
                answer => answer,
            },
        };
        match answer.map_err(|error| of_client(&error))? {
            RangeAnswer::Part(bytes) => Ok(Fetched {
                bytes,
                sources: watcher.sources(),
            }),
            RangeAnswer::Whole(stream) => {
                let reader = self
                    .spool(blob, stream)
                    .map_err(|error| local(format!("keep a blob that comes whole: {error}")))?;
                read_spool(reader, ask).await
            }
        }
    }

    /// A reader of a blob that is coming whole.
    fn arriving(&self, blob: &Digest) -> Option<SpoolReader> {
        let spools = self.spools.lock();
        let spool = spools.get(blob).filter(|spool| !spool.has_failed());
        spool.map(WholeBlobDownload::reader)
    }

    /// Takes a blob in that comes whole, unless another reader's request brought it already.
    fn spool(&self, blob: Digest, stream: BlobStream) -> io::Result<SpoolReader> {
        let mut spools = self.spools.lock();
        if let Some(spool) = spools.get(&blob).filter(|spool| !spool.has_failed()) {
            return Ok(spool.reader());
        }
        let spool = WholeBlobDownload::start(&self.directory, blob, stream)?;
        let reader = spool.reader();
        spools.insert(blob, spool);
        Ok(reader)
    }

    /// The windows section that is kept, looked at when it is first wanted: one that is not what the index says was
    /// damaged, and is fetched again.
    async fn local_windows(&self) -> Option<Arc<File>> {
        if let Some(file) = self.windows.lock().clone() {
            return Some(file);
        }
        let section = self.windows_section.clone()?;
        let path = self.directory.join("windows");
        let checked = tokio::task::spawn_blocking(move || open_checked(&path, &section));
        let file = Arc::new(checked.await.ok()??);
        *self.windows.lock() = Some(file.clone());
        Some(file)
    }
}

/// The origins of repositories that have readers: no login fetches bytes that only images of other repositories read. A reader whose
/// repository has fallen out of the list is asked for with what is known about the others' windows. Without readers, all: what reads then
/// is this host's own doing. Windows are an index's, which may have come from one repository and count for a reader of another that has
/// none, so the others are asked for them, too, but last.
fn for_readers(mut origins: Vec<Origin>, readers: &BTreeSet<String>, blob: Blob) -> Vec<Origin> {
    let Some(known) = origins.first().filter(|_| !readers.is_empty()).cloned() else {
        return origins;
    };
    let (mut own, others): (Vec<_>, Vec<_>) = origins
        .drain(..)
        .partition(|origin| readers.contains(&origin.repository));
    if own.is_empty() {
        own.extend(readers.iter().map(|repository| Origin {
            repository: repository.clone(),
            docker_config: None,
            ..known.clone()
        }));
    }
    if let Blob::Windows = blob {
        own.extend(others);
    }
    own
}

async fn read_spool(reader: SpoolReader, ask: &Ask) -> Result<Fetched, SourceError> {
    ask.progress.enter(Phase::Body);
    let bytes = reader.read(ask.range.clone()).await.map_err(passing)?;
    Ok(from(SPOOLED, bytes))
}

fn from(source: &str, bytes: Bytes) -> Fetched {
    Fetched {
        sources: vec![(source.to_owned(), bytes.len() as u64)],
        bytes,
    }
}

/// Opens a file that holds a section of an index; `None` when there is none, or it is not that section.
fn open_checked(path: &Path, section: &Section) -> Option<File> {
    let bytes = fs::read(path).ok()?;
    if bytes.len() as u64 == section.size && Digest::of(&bytes) == section.digest {
        return File::open(path).ok();
    }
    tracing::warn!("{} is damaged; it is fetched again", path.display());
    let _ = fs::remove_file(path);
    None
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use xebec_protocol::paths::Paths;
    use xebec_testkit::registry::{Access, FaultyRegistry, Options};

    use super::*;
    use crate::origin::remember;

    /// Ten bytes of a layer in a registry with a login, read with these passwords: of a pull under way, and of one that ended.
    async fn read(tried: Option<&str>, kept: Option<&str>) -> Result<Bytes, SourceError> {
        let registry = FaultyRegistry::with(Options {
            access: Access::Basic {
                username: "pod".to_owned(),
                password: "right".to_owned(),
            },
            ..Options::default()
        });
        let registry = registry.unwrap();
        let layer = registry.put_blob("app", vec![7; 5000]);
        let repository = format!("{}/app", registry.host());
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        for (file, password) in [(paths.tried_logins(), tried), (paths.logins(), kept)] {
            let Some(password) = password else { continue };
            let entry = json!({"username": "pod", "password": password});
            fs::write(file, json!({"auths": {&repository: entry}}).to_string()).unwrap();
        }
        let origin = Origin {
            repository,
            docker_config: None,
            windows: None,
            windows_size: 0,
        };
        remember(directory.path(), origin).unwrap();
        let clients = Arc::new(Clients::new(&paths));
        let source = LayerSource::new(LayerSourceParts {
            clients,
            readers: Arc::new(BTreeSet::new),
            layer,
            size: 5000,
            directory: directory.path(),
            windows: None,
        });
        let ask = Ask {
            blob: Blob::Layer,
            range: 0..10,
            patience: Patience::Brief,
            avoid: Vec::new(),
            progress: Arc::default(),
        };
        source.read(ask).await.map(|fetched| fetched.bytes)
    }

    #[test]
    fn only_origins_of_readers_are_asked() {
        let origin = |repository: &str| Origin {
            repository: repository.to_owned(),
            docker_config: Some(PathBuf::from(repository)),
            windows: None,
            windows_size: 7,
        };
        let asked = |readers: &[&str]| {
            let readers = readers.iter().map(|&reader| reader.to_owned()).collect();
            for_readers(vec![origin("r/a"), origin("r/b")], &readers, Blob::Layer)
        };
        assert_eq!(asked(&["r/b", "r/c"]), [origin("r/b")]);
        assert_eq!(asked(&[]), [origin("r/a"), origin("r/b")]);
        let own = Origin {
            docker_config: None,
            ..origin("r/c")
        };
        assert_eq!(asked(&["r/c"]), [own], "its own, without anybody's login");
        let readers = ["r/b".to_owned()].into();
        let windows = for_readers(vec![origin("r/a"), origin("r/b")], &readers, Blob::Windows);
        assert_eq!(windows, [origin("r/b"), origin("r/a")]);
    }

    #[tokio::test]
    async fn a_login_that_is_tried_is_the_last_resort() {
        let ten = [7; 10];
        assert!(read(None, None).await.is_err());
        assert_eq!(read(None, Some("right")).await.unwrap(), ten[..]);
        assert_eq!(read(Some("right"), None).await.unwrap(), ten[..]);
        assert_eq!(read(Some("right"), Some("wrong")).await.unwrap(), ten[..]);
        assert_eq!(read(Some("wrong"), Some("right")).await.unwrap(), ten[..]);
        assert!(read(Some("wrong"), None).await.is_err());
    }
}
