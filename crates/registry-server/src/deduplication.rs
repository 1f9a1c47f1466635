//! Each file is kept once: `[deduplication]` of the configuration, and the work in the background.
//!
//! Blobs that are not intact are restored whether this is enabled or not: what was taken apart once stays readable.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use xebec_access::client_of;
use xebec_dedup::{Cutting, Deduplicator, Done, Repacked, Restorer, Settings};
use xebec_events::{Event, EventKind, Listener};
use xebec_kernel::size::Bytes;
use xebec_replication::Rules;
use xebec_settings::size::Size;
use xebec_store::{DatabaseConfig, ReferenceKind, Store, StoreConfig, StoreError};

use crate::copies::ByRules;
use crate::metrics::Metrics;
use crate::mode_file::ModeFile;
use crate::state::Registry;

/// While nothing may be written, it is looked this often whether that has changed.
const LOOK_AT_MODE: Duration = Duration::from_secs(1);
/// After the store has failed.
const PAUSE: Duration = Duration::from_secs(30);

/// How files are kept once.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeduplicationSettings {
    /// Whether blobs are taken apart.
    pub enabled: bool,
    /// Blobs that are taken apart at the same time.
    pub jobs: usize,
    /// Smaller blobs stay as they are.
    pub least_size: Size,
    /// How files are cut.
    pub chunks: Cutting,
    /// The level of zstd for packs, from 1 to 22.
    #[serde(deserialize_with = "level")]
    pub level: i32,
    /// Whether the bytes that were pushed stay beside what they were taken apart to.
    pub keep_intact: bool,
    /// Memory for restoring, of all requests together.
    pub memory: Size,
    /// Room on the disk for layers that are restored when their manifest is pulled, before they are asked for. Zero is none.
    #[serde(deserialize_with = "room")]
    pub ahead: Size,
}

/// A size that may be "0".
fn room<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    let text = String::deserialize(deserializer)?;
    let size = Bytes::or_zero(&text).map_err(D::Error::custom)?;
    Ok(Size(size.0))
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let level = i32::deserialize(deserializer)?;
    match level {
        1..=22 => Ok(level),
        _ => Err(D::Error::custom(format!(
            "{level} is no level of zstd; write one from 1 to 22"
        ))),
    }
}

impl Default for DeduplicationSettings {
    fn default() -> Self {
        let usual = Settings::default();
        Self {
            enabled: false,
            jobs: usual.jobs,
            least_size: Size(usual.least_size),
            chunks: usual.cutting,
            level: usual.level,
            keep_intact: usual.keep_intact,
            memory: Size(512 << 20),
            ahead: Size(10 << 30),
        }
    }
}

impl DeduplicationSettings {
    /// The same as those that carry it out take it.
    fn settings(&self) -> Settings {
        let memory = self.memory.0;
        Settings {
            jobs: self.jobs.max(1),
            least_size: self.least_size.0,
            cutting: self.chunks,
            level: self.level,
            keep_intact: self.keep_intact,
            frames: memory / 4,
            restored: memory / 8,
            sending: memory / 8,
            recipes: memory / 8,
            working: memory * 3 / 8,
            ..Settings::default()
        }
    }
}

/// Opens a store that restores what is not intact.
///
/// # Errors
/// As of [`Store::open`].
pub async fn open(config: &StoreConfig, settings: &DeduplicationSettings) -> Result<Store, StoreError> {
    let store = Store::open(config).await?;
    restore_from(&store, Restorer::new(&settings.settings()));
    Ok(store)
}

/// The same for the program that serves, with a restorer that works ahead if anything is taken apart or was. Only one process may do that in a root
/// directory.
///
/// # Errors
/// As of [`Store::open`], or if the directory for what is restored ahead cannot be used.
pub async fn open_to_serve(
    config: &StoreConfig,
    settings: &DeduplicationSettings,
) -> Result<(Store, Restorer), StoreError> {
    let store = Store::open(config).await?;
    // A registry that never took anything apart does nothing more at a pull than before.
    let is_used = settings.enabled || !store.packs(1, None).await?.items.is_empty();
    let restorer = match settings.ahead.0 {
        0 => Restorer::new(&settings.settings()),
        _ if !is_used => Restorer::new(&settings.settings()),
        room => {
            let directory = config.root.join("restored");
            let restorer = Restorer::with_files(&settings.settings(), &directory, room);
            restorer.map_err(|source| StoreError::File {
                doing: "use",
                path: directory,
                source,
            })?
        }
    };
    restore_from(&store, restorer.clone());
    Ok((store, restorer))
}

fn restore_from(store: &Store, restorer: Restorer) {
    store.set_restorer(Arc::new(restorer));
}

/// Has layers restored when their manifest is pulled.
pub struct Ahead {
    restorer: Restorer,
    store: Store,
    runtime: Handle,
}

impl Ahead {
    /// A part of a registry.
    pub fn new(store: Store, restorer: Restorer) -> Arc<Self> {
        let runtime = Handle::current();
        runtime.spawn(restorer.clone().prefetch(store.clone()));
        Arc::new(Self {
            restorer,
            store,
            runtime,
        })
    }

    async fn expect(
        restorer: Restorer,
        store: Store,
        client: String,
        event: Event,
    ) -> Result<(), StoreError> {
        let (Ok(repository), Some(Ok(manifest))) = (
            event.repository.parse(),
            event.digest.map(|digest| digest.parse()),
        ) else {
            return Ok(());
        };
        let references = store.references(&repository, &manifest).await?;
        let layers = references
            .into_iter()
            .filter(|(kind, _)| *kind == ReferenceKind::Layer);
        let layers = layers.map(|(_, digest)| digest).collect();
        // A client that comes again and again has pulled them all: then the store is asked for none.
        for digest in restorer.lacking(&client, layers) {
            if let Some(blob) = store.peek_blob(&repository, &digest).await? {
                restorer.expect(blob);
            }
        }
        Ok(())
    }
}

impl Listener for Ahead {
    fn happened(&self, event: &Event) {
        let Some(client) = client(event) else { return };
        match event.kind {
            EventKind::PullBlob => {
                if let Some(Ok(digest)) = event.digest.as_ref().map(|digest| digest.parse()) {
                    self.restorer.note_pull(&client, &digest);
                }
            }
            EventKind::PullManifest if self.restorer.works_ahead() => {
                let expect = Self::expect(self.restorer.clone(), self.store.clone(), client, event.clone());
                self.runtime.spawn(async move {
                    if let Err(error) = expect.await {
                        tracing::debug!("nothing is restored ahead: {error}");
                    }
                });
            }
            _ => {}
        }
    }
}

/// The user, or the address of somebody who did not log in.
fn client(event: &Event) -> Option<String> {
    let user = event.origin.user.as_ref().map(|user| format!("user {user}"));
    user.or_else(|| event.origin.peer.map(|peer| client_of(peer.ip()).to_string()))
}

/// Takes blobs apart while the registry serves.
pub struct Background {
    deduplicator: Deduplicator,
    arrived: Arc<Notify>,
    is_alone: bool,
    /// Nothing is begun while it says that nothing may be written.
    mode: ModeFile,
    metrics: Metrics,
}

impl Background {
    /// A part of a registry that works once [`Background::run`] is called. With rules for copies, these say how each blob is taken apart.
    pub fn within(registry: &Registry, settings: &DeduplicationSettings, rules: Option<Rules>) -> Arc<Self> {
        let arrived = Arc::new(Notify::new());
        let store = registry.store.clone();
        let mut deduplicator = Deduplicator::new(store.clone(), settings.settings(), arrived.clone());
        if let Some(rules) = rules {
            deduplicator = deduplicator.with_forms(Arc::new(ByRules::new(rules)));
        }
        Arc::new(Self {
            is_alone: matches!(store.config().database, DatabaseConfig::Embedded),
            deduplicator,
            arrived,
            mode: registry.mode.clone(),
            metrics: registry.metrics.clone(),
        })
    }

    /// Works until the program ends.
    pub async fn run(self: Arc<Self>) {
        // A single node begins anew what it had begun; of several, another one may be at work on it.
        if self.is_alone {
            let this = self.clone();
            again_and_again(PAUSE, move || Box::pin(this.clone().release())).await;
        }
        let this = self.clone();
        match again_and_again(PAUSE, move || Box::pin(this.clone().drop_leftovers())).await {
            0 => {}
            dropped => tracing::info!(dropped, "blobs that were taken apart are no longer intact"),
        }
        let this = self.clone();
        match again_and_again(PAUSE, move || Box::pin(this.clone().retry())).await {
            0 => {}
            retried => tracing::info!(
                retried,
                "blobs that stayed intact are tried again by this version"
            ),
        }
        let jobs = (0..self.deduplicator.settings().jobs).map(|_| self.clone().work());
        futures_util::future::join_all(jobs).await;
    }

    async fn release(self: Arc<Self>) -> Result<u64, StoreError> {
        self.until_normal().await;
        self.deduplicator.release().await
    }

    async fn retry(self: Arc<Self>) -> Result<u64, StoreError> {
        self.until_normal().await;
        self.deduplicator.retry().await
    }

    async fn drop_leftovers(self: Arc<Self>) -> Result<u64, StoreError> {
        self.until_normal().await;
        self.deduplicator.drop_leftovers().await
    }

    async fn work(self: Arc<Self>) {
        loop {
            self.until_normal().await;
            match self.deduplicator.work_once().await {
                Ok(Some((blob, done))) => {
                    let digest = &blob.digest;
                    self.metrics.deduplicated(outcome(&done));
                    match &done {
                        Done::Recorded | Done::Gone => tracing::debug!(%digest, ?done, "took a blob apart"),
                        Done::Kept(why) => tracing::info!(%digest, "a blob stays intact: {why}"),
                        Done::Later(why) => tracing::warn!(%digest, "a blob is taken apart later: {why}"),
                    }
                }
                Ok(None) => {
                    self.repack().await;
                    self.deduplicator.arrival().await;
                }
                Err(error) => {
                    tracing::warn!("taking blobs apart waits for the store: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// While no blob waits, packs are put together anew of which little is needed.
    async fn repack(&self) {
        match self.deduplicator.repack_if_due().await {
            Ok(None) => {}
            Ok(Some(Repacked {
                old,
                old_bytes,
                new,
                new_bytes,
            })) => {
                tracing::info!(old, old_bytes, new, new_bytes, "put packs together anew");
            }
            Err(error) => tracing::warn!("putting packs together waits for the store: {error}"),
        }
    }

    async fn until_normal(&self) {
        while !self.mode.is_normal() {
            tokio::time::sleep(LOOK_AT_MODE).await;
        }
    }
}

impl Listener for Background {
    fn happened(&self, event: &Event) {
        if event.kind == EventKind::PushManifest {
            self.arrived.notify_one();
        }
    }
}

/// Tries again with this pause until it is done. It is boxed: the compiler cannot tell whether a task may hold a closure like this else.
async fn again_and_again<T>(
    pause: Duration,
    mut attempt: impl FnMut() -> BoxFuture<'static, Result<T, StoreError>>,
) -> T {
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) => {
                tracing::warn!("taking blobs apart waits for the store: {error}");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

fn outcome(done: &Done) -> &'static str {
    match done {
        Done::Recorded => "done",
        Done::Kept(_) => "kept",
        Done::Later(_) => "failed_for_now",
        Done::Gone => "gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_store_does_not_do_at_the_start_it_does_later() {
        let mut tries = 0;
        let done = again_and_again(Duration::ZERO, || {
            tries += 1;
            let attempt = match tries {
                3 => Ok("done"),
                _ => Err(StoreError::System {
                    doing: "read the records",
                    source: std::io::Error::other("a disk that is away"),
                }),
            };
            Box::pin(std::future::ready(attempt))
        });
        assert_eq!(done.await, "done");
        assert_eq!(tries, 3);
    }
}
