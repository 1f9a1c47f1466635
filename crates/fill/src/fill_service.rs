//! The fill service: from an event (a data file and a range) to pages that are there.
//!
//! It knows the layers that views use, by the identity of their data files. An event whose pages are present is
//! answered at once, in the thread that read it; any other becomes a task that waits for its spans: through outages,
//! for as long as [`Waits`] says. Failures are answered with an error number, never by silence. A layer that becomes
//! complete is silenced: from then on its readers raise no events.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Semaphore, watch};
use tracing::{error, info, warn};
use xebec_cache::fill::{FillError, FillStats, Filler, LocalContents, Memory, Patience};
use xebec_cache::progress::Ticket;
use xebec_cache::store::{LayerKey, Store, StoreError};
use xebec_format::layer::LayerIndex;
use xebec_images::clients::Clients;
use xebec_images::origin::{LayerSource, LayerSourceParts, Readers};
use xebec_kernel::fanotify::{Denial, FanotifyError, Group};
use xebec_kernel::file::FileIdentity;
use xebec_protocol::settings::Settings;

use crate::events::{Answer, Event, EventHandler};
use crate::page_set::PageSet;
use crate::rate_limited_log::RateLimitedLog;
pub use crate::served::ServedLayer;
use crate::usage::Usage;
use crate::waits::{Waiter, Waits};

/// The repositories of the images for which a layer is read.
pub type RepositoriesOf = Box<dyn Fn(LayerKey) -> BTreeSet<String> + Send + Sync>;

/// Groups of spans that a background completion fetches at a time. Two keep the link busy while one decodes;
/// more would take it from waiting readers.
const COMPLETION_GROUPS: usize = 3;

/// The layers that are served, and what serves them.
pub struct FillService {
    pub(crate) store: Arc<Store>,
    clients: Arc<Clients>,
    group: Arc<Group>,
    pub(crate) runtime: tokio::runtime::Handle,
    stats: Arc<FillStats>,
    memory: Arc<Memory>,
    events: AtomicU64,
    waits: Waits,
    completed: UnboundedSender<LayerKey>,
    pub(crate) layers: RwLock<HashMap<FileIdentity, Arc<ServedLayer>>>,
    usage: Arc<Usage>,
    /// Held by the task that looks up an unknown file: one at a time.
    pub(crate) identifying: Arc<Semaphore>,
    /// Readers of files that are no layer's.
    pub(crate) strangers: RateLimitedLog,
    /// Readers that were refused on a full disk.
    no_room: RateLimitedLog,
    /// Layers whose durable bitmap could not be written.
    pub unnoted: RateLimitedLog,
    /// Which process reads which pages.
    repositories: Arc<OnceLock<RepositoriesOf>>,
    /// The daemon is ending: nothing is brought in any more.
    refusing: watch::Sender<bool>,
}

/// The parts that a fill service works with.
pub struct FillParts {
    /// The cache of layers.
    pub store: Arc<Store>,
    /// The way to registries.
    pub clients: Arc<Clients>,
    /// The fanotify group, whose events are reads that wait.
    pub group: Arc<Group>,
    /// Where fetches run.
    pub runtime: tokio::runtime::Handle,
    /// Hears of layers that become complete.
    pub completed: UnboundedSender<LayerKey>,
}

impl FillService {
    /// A service without layers.
    pub fn new(parts: FillParts, settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            store: parts.store,
            clients: parts.clients,
            group: parts.group,
            runtime: parts.runtime,
            stats: Arc::default(),
            memory: Arc::default(),
            events: AtomicU64::new(0),
            waits: Waits::new(settings),
            completed: parts.completed,
            layers: RwLock::default(),
            usage: Arc::default(),
            identifying: Arc::new(Semaphore::new(1)),
            strangers: RateLimitedLog::default(),
            no_room: RateLimitedLog::default(),
            unnoted: RateLimitedLog::default(),
            repositories: Arc::default(),
            refusing: watch::Sender::new(false),
        })
    }

    /// Tells how to find the repositories of the images for which a layer is read.
    pub fn read_by(&self, repositories: RepositoriesOf) {
        // Set once, when the worker starts.
        let _ = self.repositories.set(repositories);
    }

    /// Serves a layer, if it is not served already. `index` is its index, read from the store if absent.
    ///
    /// # Errors
    /// When the layer cannot be opened.
    pub fn serve(&self, key: LayerKey, index: Option<&LayerIndex>) -> Result<Arc<ServedLayer>, StoreError> {
        if let Some(served) = self.find(key) {
            return Ok(served);
        }
        // It must not be evicted between being opened and being known as served.
        let _reservation = self.usage.reserve([key]);
        let layer = match index {
            Some(index) => self.store.open_known(key, index.span_table())?,
            None => self.store.open_layer(key, &self.store.index_bytes(key)?)?,
        };
        let mut layers = self.layers.write();
        // Somebody else may have opened it meanwhile; two fillers of one file would fetch everything twice.
        if let Some(served) = layers.get(&layer.identity()) {
            return Ok(served.clone());
        }
        let identity = layer.identity();
        let source = LayerSource::new(LayerSourceParts {
            clients: self.clients.clone(),
            readers: self.readers_of(key),
            layer: key.layer,
            size: layer.table().layer_size,
            directory: layer.directory(),
            windows: layer.table().windows.clone(),
        });
        let (stats, memory) = (self.stats.clone(), self.memory.clone());
        let filler = Filler::within(Arc::new(layer), Arc::new(source), stats, memory);
        let served = Arc::new(ServedLayer::new(filler));
        layers.insert(identity, served.clone());
        Ok(served)
    }

    fn readers_of(&self, key: LayerKey) -> Readers {
        let repositories = self.repositories.clone();
        Arc::new(move || {
            let repositories = repositories.get();
            repositories.map_or_else(BTreeSet::new, |repositories| repositories(key))
        })
    }

    /// The layer, if it is served.
    pub fn find(&self, key: LayerKey) -> Option<Arc<ServedLayer>> {
        self.all().into_iter().find(|served| served.layer().key() == key)
    }

    /// Whether all of a layer that is served is there.
    pub fn is_complete(&self, key: LayerKey) -> bool {
        self.find(key).is_some_and(|served| served.layer().is_complete())
    }

    /// Whether these pages are all there, in layers that are served.
    pub fn have(&self, pages: &PageSet) -> bool {
        let mut layers = pages.layers();
        layers.all(|(key, runs)| {
            let served = self.find(key);
            served.is_some_and(|served| {
                let presence = served.layer().presence();
                runs.iter().all(|run| presence.missing(run.clone()).is_empty())
            })
        })
    }

    /// Stops serving layers that `keep` does not want and nobody is busy with.
    pub fn retain(&self, keep: impl Fn(LayerKey) -> bool) {
        let mut layers = self.layers.write();
        // One that is being completed or filled stays: a second filler of its file would fetch everything twice. So
        // does one that upkeep has yet to sync; at the end nothing waits for that, the next worker syncs the rest.
        layers.retain(|_, served| {
            let is_due = !served.layer().presence().is_durable() && !self.is_refusing();
            is_due || !served.is_idle() || keep(served.layer().key())
        });
    }

    /// From now on pages that are missing are refused, also to readers that wait already; or not any more. Must run
    /// inside a tokio runtime.
    pub fn refuse(&self, refusing: bool) {
        self.refusing.send_replace(refusing);
        if refusing {
            // They would keep their files open for as long as a registry is away.
            self.abandon();
        }
    }

    /// Gives up every fetch under way. A reader that waits for one has another begun if it still waits.
    pub fn abandon(&self) {
        self.all().iter().for_each(|served| served.filler().abandon());
    }

    /// Whether pages that are missing are refused.
    pub fn is_refusing(&self) -> bool {
        *self.refusing.borrow()
    }

    /// Which layers requests rely on.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Stops serving a layer that is to be evicted; false if the layer is in use.
    pub fn release(&self, key: LayerKey) -> bool {
        let mut layers = self.layers.write();
        let Some((&identity, served)) = layers.iter().find(|(_, served)| served.layer().key() == key) else {
            return true;
        };
        // The table's lock is held, so a task that is not counted here cannot come to hold one.
        let is_idle = served.is_idle();
        if is_idle {
            layers.remove(&identity);
        }
        is_idle
    }

    /// Asks before reads of every file that is opened through a further mount of the cache.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn guard(&self, mount: &std::path::Path) -> Result<(), FanotifyError> {
        self.group.mark_mount(mount)
    }

    /// Asks no more before reads through such a mount; whether that could be done.
    pub fn unguard(&self, mount: &std::path::Path) -> bool {
        let done = self.group.unmark_mount(mount);
        done.inspect_err(|error| warn!("{error}")).is_ok()
    }

    /// Asks for a data file again that was complete and is about to lose pages: takes its ignore mark away.
    ///
    /// # Errors
    /// When the kernel refuses; the file must then stay as it is.
    pub fn ask_again(&self, data: BorrowedFd<'_>) -> Result<(), FanotifyError> {
        match self.group.unignore_file(data) {
            // There was none.
            Err(FanotifyError::Mark { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(())
            }
            other => other,
        }
    }

    /// All layers that are served.
    pub fn all(&self) -> Vec<Arc<ServedLayer>> {
        self.layers.read().values().cloned().collect()
    }

    /// Counters of fills.
    pub fn stats(&self) -> &FillStats {
        &self.stats
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Readers that wait, and readers that waited.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Copies spans of a layer that other layers have. Returns how many bytes of its blob need not be fetched.
    ///
    /// # Errors
    /// When there is no room on the disk, or the daemon ends by force; what came is kept.
    pub async fn copy(
        self: &Arc<Self>,
        served: &Arc<ServedLayer>,
        local: LocalContents,
    ) -> Result<u64, Unfilled> {
        let (local, spared) = (Arc::new(local), AtomicU64::new(0));
        let copied = async {
            spared.store(served.filler().copy(&local).await?, Ordering::Relaxed);
            Ok(())
        };
        self.unless_refusing(copied).await?;
        Ok(spared.into_inner())
    }

    /// Brings all of a layer in. With a deadline the groups are paced so as to end about then. In the background
    /// (nobody waits for the end of it) it sits out outages as readers do.
    ///
    /// # Errors
    /// At the first span that cannot be brought in, or when the daemon ends by force; what came is kept.
    pub async fn complete(
        self: &Arc<Self>,
        served: &Arc<ServedLayer>,
        deadline: Duration,
        in_background: bool,
    ) -> Result<(), Unfilled> {
        self.unless_refusing(self.bring_in(served, deadline, in_background))
            .await?;
        self.silence_if_complete(served);
        Ok(())
    }

    async fn bring_in(
        &self,
        served: &ServedLayer,
        deadline: Duration,
        in_background: bool,
    ) -> Result<(), FillError> {
        let patience = || match in_background {
            true => Patience::lasting(self.waits.fill_wait()),
            false => Patience::Brief,
        };
        if deadline.is_zero() {
            served.filler().complete(COMPLETION_GROUPS, patience).await?;
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
                let ticket = Ticket::default();
                served
                    .filler()
                    .ensure(range.unwrap_or(0..0), patience(), &ticket)
                    .await?;
                tokio::time::sleep(pause).await;
            }
        }
        Ok(())
    }

    /// Has a complete layer proven, and its injected pages compared.
    pub fn tell_complete(&self, key: LayerKey) {
        // Nobody listens any more only when the worker is ending.
        let _ = self.completed.send(key);
    }

    /// Once all of a layer is local: its readers need no events any more.
    pub fn silence_if_complete(&self, served: &Arc<ServedLayer>) {
        if !served.layer().is_complete() || served.silenced.swap(true, Ordering::AcqRel) {
            return;
        }
        let path = served.layer().data_path();
        let key = served.layer().key();
        match self.group.ignore_path(&path) {
            Ok(()) => info!("{key} is complete: its readers do not need the daemon any more"),
            Err(error) => warn!("{key} is complete, but its events could not be turned off: {error}"),
        }
        self.tell_complete(key);
    }

    /// A layer that was complete and is so no more: its readers raise events again.
    pub fn listen_again(&self, served: &Arc<ServedLayer>) {
        if let Some(file) = served.layer().descriptor()
            && !served.layer().is_complete()
            && served.silenced.swap(false, Ordering::AcqRel)
            && let Err(error) = self.group.unignore_file(file)
        {
            error!("{}: {error}", served.layer().key());
        }
    }

    async fn fill(self: Arc<Self>, served: Arc<ServedLayer>, waiter: Arc<Waiter>, answer: Answer) {
        let filled = async {
            served.arrivals().wait(served.layer(), &waiter.range).await;
            let (range, patience) = (waiter.range.clone(), self.waits.patience(&waiter));
            served.filler().ensure(range, patience, &waiter.ticket).await
        };
        let filled = self.unless_refusing(filled).await;
        if filled.is_ok() {
            self.silence_if_complete(&served);
        }
        self.end(&waiter, filled, answer);
    }

    /// The result of filling, unless the daemon ends by force meanwhile.
    async fn unless_refusing(
        &self,
        filled: impl Future<Output = Result<(), FillError>>,
    ) -> Result<(), Unfilled> {
        let mut refusing = self.refusing.subscribe();
        tokio::select! {
            // In this order: otherwise each reader that is refused would begin a fetch.
            biased;
            Ok(_) = refusing.wait_for(|refusing| *refusing) => Err(Unfilled::Ending),
            filled = filled => filled.map_err(Unfilled::Failed),
        }
    }

    /// An event whose file a dead worker took to its grave: its range is filled in every layer that could be it.
    async fn fill_everywhere(self: Arc<Self>, waiter: Arc<Waiter>, answer: Answer) {
        let patience = self.waits.patience(&waiter);
        let mut filled: Result<(), Unfilled> = Ok(());
        let candidates = match self.candidates() {
            Ok(candidates) => candidates,
            Err(failure) => {
                error!("a reader gets EIO: cannot find out which layer it reads: {failure}");
                self.waits.end(&waiter, Some(failure.to_string()));
                return answer.deny(Denial::Io);
            }
        };
        for served in candidates {
            if served.layer().is_complete() {
                continue;
            }
            let end = waiter.range.end.min(served.layer().table().data_size);
            let range = waiter.range.start..end;
            // A reader gets present pages even while the daemon ends.
            if !range.is_empty() && !served.layer().missing_spans(range.clone()).is_empty() {
                let brought = served.filler().ensure(range, patience, &waiter.ticket);
                filled = self.unless_refusing(brought).await;
            }
            if filled.is_err() {
                break;
            }
        }
        self.end(&waiter, filled, answer);
    }

    /// Answers a reader. The notes on its wait are complete before it goes on, so that the reader can ask for them.
    fn end(&self, waiter: &Waiter, filled: Result<(), Unfilled>, answer: Answer) {
        // Known before it goes on: afterwards it may be gone.
        let process = waiter.process();
        let waited_ms = waiter.waited().as_millis() as u64;
        let error = filled.as_ref().err().map(ToString::to_string);
        self.waits.end(waiter, error);
        match filled {
            Ok(()) => answer.allow(),
            // As many are refused as anybody likes to ask; one of them says it.
            Err(Unfilled::Failed(error)) if error.is_full_disk() => {
                if let Some(unsaid) = self.no_room.say() {
                    warn!(
                        pid = process.pid,
                        comm = process.comm,
                        container = process.container,
                        unsaid,
                        "a reader gets ENOSPC: {error}"
                    );
                }
                answer.deny(Denial::NoSpace);
            }
            Err(error) => {
                warn!(
                    pid = process.pid,
                    comm = process.comm,
                    container = process.container,
                    layer = waiter.key.map(|key| key.layer.to_string()),
                    offset = waiter.range.start,
                    waited_ms,
                    "a reader gets EIO: {error}"
                );
                // The kernel takes few error numbers, and a denied page fault is a `SIGBUS` whatever the number is; the
                // log tells the reasons apart.
                answer.deny(Denial::Io);
            }
        }
    }

    /// Answers a reader of a layer's data at once if its pages are there; else a task does when they are.
    pub(crate) fn handle_known(
        self: Arc<Self>,
        served: &Arc<ServedLayer>,
        event: &Event,
        range: Range<u64>,
        answer: Answer,
    ) {
        let range = range.start..range.end.min(served.layer().table().data_size);
        served.touch(&range);
        served.watchers().note(event.pid, &range);
        if served.layer().missing_spans(range.clone()).is_empty() {
            self.stats.hits.fetch_add(1, Ordering::Relaxed);
            self.silence_if_complete(served);
            return answer.allow();
        }
        let runtime = self.runtime.clone();
        let waiter = self.waits.begin(event, Some(served.layer().key()), range);
        runtime.spawn(self.fill(served.clone(), waiter, answer));
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
            let waiter = self.waits.begin(&event, None, range);
            runtime.spawn(self.fill_everywhere(waiter, answer));
            return;
        };
        match self.known(identity) {
            Some(served) => self.handle_known(&served, &event, range, answer),
            None => self.handle_unknown(identity, event, range, answer),
        }
    }

    fn describe(&self, file: FileIdentity) -> Option<String> {
        self.known(file).map(|served| served.layer().key().to_string())
    }
}

/// Why pages are not there.
#[derive(Debug, thiserror::Error)]
pub enum Unfilled {
    /// They could not be brought in.
    #[error(transparent)]
    Failed(FillError),
    /// They are not brought in any more.
    #[error("the daemon was told to stop, and the view is unmounted")]
    Ending,
}
