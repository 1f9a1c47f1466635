//! The state that all requests share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use xebec_access::Guard;
use xebec_dedup::{Cutting, Restorer};
use xebec_indexing::Surroundings;
use xebec_policy::immutability::Immutability;
use xebec_policy::quota::Quotas;
use xebec_store::{Digest, RepositoryName, Store, StoreError};
use xebec_upstream::Upstreams;

use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::mode_file::ModeFile;
use crate::page::activity::Activity;
use crate::server::clients::Clients;
use crate::starts::Starts;
use crate::watchers::Watchers;
use xebec_events::{Event, Listener, Reports};

/// Layers that are put together at the same time. Of further ones clients push the blobs.
const ASSEMBLED_AT_ONCE: usize = 8;

/// How requests are carried out.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// The largest manifest that is taken.
    pub max_manifest: u64,
    /// The largest blob that is taken.
    pub max_blob: u64,
    /// Whether a manifest may name what its repository lacks, as copies of a part of an image do.
    pub sparse: bool,
    /// How long the addresses last by which clients read blobs from the object store; without it, they read them here.
    pub redirect: Option<Duration>,
    /// How many names one page of repositories looks at. Names that the caller may not see take time, too.
    pub looked_at: usize,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            max_manifest: 4 << 20,
            max_blob: 1 << 40,
            sparse: false,
            redirect: None,
            looked_at: 20_000,
        }
    }
}

/// A registry: its store, the rights of callers, and those who are told of events.
pub struct Registry {
    /// Blobs and manifests.
    pub store: Store,
    /// Decides what a caller may do.
    pub guard: Guard,
    /// How requests are carried out.
    pub settings: ApiSettings,
    /// Where what is not here may be.
    pub upstreams: Upstreams,
    /// Room in memory for manifests that are sent to clients.
    pub memory: Memory,
    /// Room for those that come in: slow pushes keep no client from pulling.
    pub incoming: Memory,
    /// What starts share that are answered at the same time.
    pub(crate) starts: Starts,
    /// What a start lacks so long after its image's manifest is left out: the host asks for it meanwhile rather than later. Tests set more.
    pub start_patience: Duration,
    /// Figures.
    pub metrics: Metrics,
    /// The tags that stay as they are.
    pub immutability: Immutability,
    /// How much may be stored.
    pub quotas: Quotas,
    /// Held while the stored bytes are added up.
    pub(crate) adding_up: tokio::sync::Mutex<()>,
    /// Whether anything may be written, or served.
    pub mode: ModeFile,
    /// Whether blobs are taken apart.
    pub deduplicates: bool,
    /// How their contents are cut.
    pub cutting: Cutting,
    /// Turns of layers that are put together.
    pub(crate) assembling: Arc<Semaphore>,
    /// How many of them each client has.
    pub(crate) assemblers: Arc<Clients>,
    /// The part of the store that restores blobs: for its figures, and for contents of layers.
    pub restorer: Option<Restorer>,
    /// Requests that failed or were slow lately.
    pub activity: Activity,
    /// Hosts that are told what changes.
    pub watchers: Arc<Watchers>,
    /// The parts that hear what happens.
    pub listeners: Vec<Arc<dyn Listener>>,
    /// Those of them that have queues.
    pub reports: Reports,
    /// Set once the server is about to end.
    ending: AtomicBool,
}

impl Registry {
    /// One over a store, open to everybody, that tells nobody.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            guard: Guard::open(),
            settings: ApiSettings::default(),
            upstreams: Upstreams::default(),
            memory: Memory::default(),
            incoming: Memory::default(),
            starts: Starts::default(),
            start_patience: Duration::from_secs(3),
            metrics: Metrics::new(),
            immutability: Immutability::default(),
            quotas: Quotas::default(),
            adding_up: tokio::sync::Mutex::default(),
            mode: ModeFile::default(),
            deduplicates: false,
            cutting: Cutting::default(),
            assembling: Arc::new(Semaphore::new(ASSEMBLED_AT_ONCE)),
            assemblers: Arc::default(),
            restorer: None,
            activity: Activity::default(),
            watchers: Arc::default(),
            listeners: Vec::new(),
            reports: Reports::default(),
            ending: AtomicBool::new(false),
        }
    }

    /// What an indexer of this registry asks of it.
    pub fn surroundings(&self) -> Arc<dyn Surroundings> {
        Arc::new(OfIndexer {
            mode: self.mode.clone(),
            metrics: self.metrics.clone(),
            watchers: self.watchers.clone(),
        })
    }

    /// Tells all listeners.
    pub fn tell(&self, event: &Event) {
        for listener in &self.listeners {
            listener.happened(event);
        }
    }

    /// Where a list of repositories goes on after a name; see [`Guard::place_after`].
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn place_after(
        &self,
        name: &RepositoryName,
        shows: impl Fn(&str) -> bool,
    ) -> Result<String, StoreError> {
        let place = self.guard.place_after(name.as_str(), shows(name.as_str()));
        place.ok_or_else(|| StoreError::System {
            doing: "make the link to the next page",
            source: io::Error::other("the kernel gives no random bytes"),
        })
    }

    /// From here on [`Registry::is_ending`], so that no more requests are sent here.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.watchers.end();
    }

    /// Whether the server is about to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }
}

struct OfIndexer {
    mode: ModeFile,
    metrics: Metrics,
    watchers: Arc<Watchers>,
}

impl Surroundings for OfIndexer {
    fn may_write(&self) -> bool {
        self.mode.is_normal()
    }

    fn indexed(&self, outcome: &'static str) {
        self.metrics.indexed(outcome);
    }

    fn referred(&self, repository: &RepositoryName, manifest: &Digest) {
        self.watchers.referred(repository, manifest);
    }

    fn predicted(&self, outcome: &'static str) {
        self.metrics.predicted(outcome);
    }
}

/// Clients that are told to come back are told to do so after this time.
pub const RETRY_AFTER: Duration = Duration::from_secs(2);
