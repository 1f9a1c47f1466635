//! The fill service: from an event (a data file and a range) to pages that are there.
//!
//! It knows the layers that views use, by the identity of their data files. An event whose pages are present is
//! answered at once, in the thread that read it; any other becomes a task that waits for its spans. Failures are
//! answered with an error number, never by silence. A layer that becomes complete is made durable and silenced:
//! from then on its readers raise no events.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::mpsc::UnboundedSender;
use tracing::{error, info, warn};
use xebec_cache::fill::{FillError, FillStats, Filler};
use xebec_cache::layer::{CachedLayer, FileIdentity};
use xebec_cache::store::{LayerKey, Store, StoreError};
use xebec_format::PAGE_SIZE;
use xebec_kernel::fanotify::{Denial, Group};

use crate::clients::Clients;
use crate::events::{Answer, Event, EventHandler, FileId};
use crate::origin::LayerSource;

/// Groups of spans that a background completion fetches at a time. Two keep the link busy while one decodes;
/// more would take it from readers who wait.
const COMPLETION_GROUPS: usize = 3;

/// A layer that is served.
pub struct ServedLayer {
    filler: Arc<Filler>,
    touched: Mutex<Vec<u64>>,
    silenced: AtomicBool,
}

impl ServedLayer {
    /// The cached layer.
    pub fn layer(&self) -> &Arc<CachedLayer> {
        self.filler.layer()
    }

    /// What brings its spans in.
    pub fn filler(&self) -> &Arc<Filler> {
        &self.filler
    }

    /// Whether readers asked for the page since the layer is served.
    pub fn is_touched(&self, page: u64) -> bool {
        let touched = self
            .touched
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        touched
            .get((page / 64) as usize)
            .is_some_and(|word| word & (1 << (page % 64)) != 0)
    }

    /// How many pages readers asked for.
    pub fn touched_pages(&self) -> u64 {
        let touched = self
            .touched
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        touched.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn touch(&self, range: &Range<u64>) {
        let mut touched = self
            .touched
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for page in range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE) {
            if let Some(word) = touched.get_mut((page / 64) as usize) {
                *word |= 1 << (page % 64);
            }
        }
    }
}

/// The layers that are served, and what serves them.
pub struct FillService {
    store: Arc<Store>,
    clients: Arc<Clients>,
    group: Arc<Group>,
    runtime: tokio::runtime::Handle,
    stats: Arc<FillStats>,
    events: AtomicU64,
    completed: UnboundedSender<LayerKey>,
    layers: RwLock<HashMap<FileIdentity, Arc<ServedLayer>>>,
}

impl FillService {
    /// A service without layers. Layers that become complete are told to `completed`.
    pub fn new(
        store: Arc<Store>,
        clients: Arc<Clients>,
        group: Arc<Group>,
        runtime: tokio::runtime::Handle,
        completed: UnboundedSender<LayerKey>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            clients,
            group,
            runtime,
            stats: Arc::default(),
            events: AtomicU64::new(0),
            completed,
            layers: RwLock::default(),
        })
    }

    /// Serves a layer, if it is not served already. `index` is its encoded index, read from the store if absent.
    ///
    /// # Errors
    /// When the layer cannot be opened.
    pub fn serve(&self, key: LayerKey, index: Option<&[u8]>) -> Result<Arc<ServedLayer>, StoreError> {
        if let Some(served) = self.find(key) {
            return Ok(served);
        }
        let layer = match index {
            Some(index) => self.store.open_layer(key, index)?,
            None => self.store.open_layer(key, &self.store.index_bytes(key)?)?,
        };
        let mut layers = self
            .layers
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // Somebody else may have opened it meanwhile; two fillers of one file would fetch everything twice.
        if let Some(served) = layers.get(&layer.identity()) {
            return Ok(served.clone());
        }
        let identity = layer.identity();
        let source = LayerSource::new(
            self.clients.clone(),
            key.layer,
            layer.table().layer_size,
            layer.directory(),
        );
        let words = layer.presence().pages().div_ceil(64) as usize;
        let filler = Filler::new(Arc::new(layer), Arc::new(source), self.stats.clone());
        let touched = Mutex::new(vec![0; words]);
        let served = Arc::new(ServedLayer {
            filler,
            touched,
            silenced: AtomicBool::new(false),
        });
        layers.insert(identity, served.clone());
        Ok(served)
    }

    /// The layer, if it is served.
    pub fn find(&self, key: LayerKey) -> Option<Arc<ServedLayer>> {
        self.all().into_iter().find(|served| served.layer().key() == key)
    }

    /// Stops serving layers that `keep` does not want and nobody is busy with.
    pub fn retain(&self, keep: impl Fn(LayerKey) -> bool) {
        let mut layers = self
            .layers
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // One that is being completed or filled stays: a second filler of its file would fetch everything twice.
        layers.retain(|_, served| keep(served.layer().key()) || Arc::strong_count(served) > 1);
    }

    /// All layers that are served.
    pub fn all(&self) -> Vec<Arc<ServedLayer>> {
        self.layers
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Counters of fills.
    pub fn stats(&self) -> &FillStats {
        &self.stats
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Brings all of a layer in. With a deadline the groups are paced so as to end about then.
    ///
    /// # Errors
    /// At the first span that cannot be brought in; those that came are kept.
    pub async fn complete(
        self: &Arc<Self>,
        served: &Arc<ServedLayer>,
        deadline: std::time::Duration,
    ) -> Result<(), xebec_cache::fill::FillError> {
        if deadline.is_zero() {
            served.filler.complete(COMPLETION_GROUPS).await?;
        } else {
            let missing = served.layer().missing_spans(0..served.layer().table().data_size);
            let pause = deadline / u32::try_from(missing.len().max(1)).unwrap_or(u32::MAX);
            for index in missing {
                let range = served
                    .layer()
                    .table()
                    .spans
                    .get(index)
                    .map(|span| span.data.clone());
                served.filler.ensure(range.unwrap_or(0..0)).await?;
                tokio::time::sleep(pause).await;
            }
        }
        self.silence_if_complete(served);
        Ok(())
    }

    /// Once all of a layer is local: its readers need no events any more.
    pub fn silence_if_complete(&self, served: &Arc<ServedLayer>) {
        if !served.layer().is_complete() || served.silenced.swap(true, Ordering::AcqRel) {
            return;
        }
        let path = served.layer().directory().join("data");
        let key = served.layer().key();
        match self.group.ignore_path(&path) {
            Ok(()) => info!("{key} is complete: reading it needs this daemon no more"),
            Err(error) => warn!("{key} is complete, but its events could not be turned off: {error}"),
        }
        let (served, completed) = (served.clone(), self.completed.clone());
        self.runtime.spawn_blocking(move || {
            let durable = served.layer().make_durable();
            // Nobody listens any more only when the worker is ending.
            let _ = completed.send(key);
            if let Err(error) = durable {
                warn!(
                    "cannot sync {}: {error}; it is fetched again after a reboot",
                    served.layer().key()
                );
            }
        });
    }

    fn lookup(&self, identity: FileIdentity) -> Option<Arc<ServedLayer>> {
        let served = {
            let layers = self
                .layers
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            layers.get(&identity).cloned()
        };
        served.or_else(|| self.adopt(identity))
    }

    /// A data file that no view is known to use: a view whose record was lost, or somebody who reads the guarded
    /// directory by hand. It is served all the same.
    fn adopt(&self, identity: FileIdentity) -> Option<Arc<ServedLayer>> {
        let keys = self.store.list().unwrap_or_default();
        let is_it = |key: &LayerKey| {
            let path = self.store.directory().join(key.folder()).join("data");
            file_identity(&path) == Some(identity)
        };
        let key = keys.into_iter().find(is_it)?;
        self.serve(key, None).inspect_err(|error| error!("{error}")).ok()
    }

    async fn fill(self: Arc<Self>, served: Arc<ServedLayer>, range: Range<u64>, answer: Answer) {
        match served.filler.ensure(range).await {
            Ok(()) => {
                self.silence_if_complete(&served);
                answer.allow();
            }
            Err(error) => answer.deny(denial(&error)),
        }
    }

    /// An event whose file a dead worker took to its grave: its range is filled in every layer that could be it.
    async fn fill_everywhere(self: Arc<Self>, range: Range<u64>, answer: Answer) {
        for served in self.all() {
            if served.layer().is_complete() {
                continue;
            }
            let end = range.end.min(served.layer().table().data_size);
            if range.start < end
                && let Err(error) = served.filler.ensure(range.start..end).await
            {
                return answer.deny(denial(&error));
            }
        }
        answer.allow();
    }
}

impl EventHandler for FillService {
    fn handle(self: Arc<Self>, event: Event, answer: Answer) {
        self.events.fetch_add(1, Ordering::Relaxed);
        let range = match event.count {
            // The kernel's way to say "all of it".
            0 => 0..u64::MAX,
            count => event.offset..event.offset.saturating_add(count),
        };
        let Some(identity) = event.file else {
            let runtime = self.runtime.clone();
            runtime.spawn(self.fill_everywhere(range, answer));
            return;
        };
        let identity = FileIdentity {
            device: identity.device,
            inode: identity.inode,
        };
        let Some(served) = self.lookup(identity) else {
            // Other files of the cache (`index`, `present`) are never lazy.
            return answer.allow();
        };
        let range = range.start..range.end.min(served.layer().table().data_size);
        served.touch(&range);
        if served.layer().missing_spans(range.clone()).is_empty() {
            self.stats.hits.fetch_add(1, Ordering::Relaxed);
            self.silence_if_complete(&served);
            return answer.allow();
        }
        let runtime = self.runtime.clone();
        runtime.spawn(self.fill(served, range, answer));
    }

    fn describe(&self, file: FileId) -> Option<String> {
        let identity = FileIdentity {
            device: file.device,
            inode: file.inode,
        };
        self.lookup(identity)
            .map(|served| served.layer().key().to_string())
    }
}

/// The one map from failures to what a reader gets. The kernel takes few error numbers for a denial, and a denied
/// page fault is a `SIGBUS` whatever the number is; the log tells the reasons apart.
fn denial(error: &FillError) -> Denial {
    match error {
        FillError::Fetch { .. }
        | FillError::Wrong { .. }
        | FillError::Disk { .. }
        | FillError::Abandoned { .. } => Denial::Io,
    }
}

fn file_identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}
