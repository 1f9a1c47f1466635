//! The store itself: its engines, opened, and what every operation needs of them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use xebec_kernel::clock::milliseconds_since_1970;

use crate::config::StoreConfig;
use crate::database::{Database, DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::model::Blob;
use crate::model::figures::{Sums, Transactions, Waiting};
use crate::places::Places;
use crate::records::garbage;
use crate::records::garbage::Garbage;
use crate::records::intact::main_key;
use crate::schema::MIGRATIONS;
use crate::space::Space;
use crate::watched::{Lately, Remembered};
use xebec_objects::{BlobReader, Objects, within};
use xebec_placement::PlaceName;
use xebec_sessions::{Pulls, Sessions, UploadCounts};

/// The blobs, manifests, tags and uploads that a registry keeps. It is cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// Whether a read ends with an error when no place gives anything for long, although one that is left may only be slow.
    pub(crate) gives_up: bool,
}

/// Makes the bytes of blobs that are not intact, by their recipes.
pub trait Restore: Send + Sync {
    /// Reads a range of such a blob, which has these bytes. It is asked for anew with each request; it keeps no clone of the store, which
    /// would never be closed.
    ///
    /// # Errors
    /// [`StoreError::Lost`] if the blob has no sound recipe any more, or an object is gone that it needs: then the store looks again. Other
    /// errors as they are. An error after the first byte is one of the reader's.
    fn read(&self, store: &Store, blob: &Blob, range: Range<u64>) -> BoxFuture<'static, Result<BlobReader>>;

    /// Whether such a blob comes out of its recipe and packs as they are stored, all of it and with its digest. A restorer that remembers what
    /// it has made leaves that aside here.
    ///
    /// # Errors
    /// If something cannot be read now: that says nothing of the blob.
    fn is_exact(&self, store: &Store, blob: &Blob) -> BoxFuture<'static, Result<bool>>;
}

pub(crate) struct Inner {
    pub(crate) config: StoreConfig,
    pub(crate) database: Database,
    /// The main place: all that comes is written there first.
    pub(crate) objects: Objects,
    /// The others.
    pub(crate) places: Places,
    pub(crate) sessions: Sessions,
    pub(crate) upload_counts: UploadCounts,
    pub(crate) pulls: Pulls,
    pub(crate) sums: Remembered<Sums>,
    pub(crate) waiting: Remembered<Waiting>,
    pub(crate) last_space: Remembered<Arc<Space>>,
    pub(crate) space: Lately<Arc<Space>>,
    pub(crate) answered: Lately<Result<(), String>>,
    pub(crate) restorer: OnceLock<Arc<dyn Restore>>,
    pub(crate) reads: Mutex<Transactions>,
    pub(crate) writes: Mutex<Transactions>,
    /// The names of objects of which a copy was found cut short or gone, while somebody looks into it.
    pub(crate) looked_into: Mutex<BTreeSet<String>>,
}

impl Store {
    /// Opens what `config` names, makes what is missing, and brings the database's schema up to date.
    ///
    /// # Errors
    /// If the root directory cannot be made, or an engine does not answer.
    pub async fn open(config: &StoreConfig) -> Result<Self> {
        let config = config.clone();
        let opening = tokio::task::spawn_blocking(move || Self::open_blocking(config));
        opening.await.map_err(|error| StoreError::System {
            doing: "open the store",
            source: std::io::Error::other(error),
        })?
    }

    fn open_blocking(config: StoreConfig) -> Result<Self> {
        let root = config.root.display().to_string();
        let opened = |what: String| move |source| StoreError::Open { what, source };
        make_root(&config.root).map_err(opened(root.clone()))?;
        let objects = Objects::open(&config.objects, &config.root)
            .map_err(opened(format!("the objects ({:?}, root {root})", config.objects)))?;
        let places = Places::open(&config.places)
            .map_err(|(place, source)| opened(format!("the place {place}"))(source))?;
        let database = Database::open(&config.database, &config.root, MIGRATIONS).map_err(|source| {
            StoreError::Database {
                doing: "bring the schema up to date",
                source,
            }
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                database,
                objects,
                places,
                sessions: Sessions::default(),
                upload_counts: UploadCounts::default(),
                pulls: Pulls::default(),
                sums: Remembered::default(),
                waiting: Remembered::default(),
                last_space: Remembered::default(),
                space: Lately::default(),
                answered: Lately::default(),
                restorer: OnceLock::new(),
                reads: Mutex::default(),
                writes: Mutex::default(),
                looked_into: Mutex::default(),
            }),
            gives_up: false,
        })
    }

    /// The configuration that it was opened with.
    pub fn config(&self) -> &StoreConfig {
        &self.inner.config
    }

    /// Has blobs that are not intact read by this from now on; `false` if there is a restorer already, which stays.
    pub fn set_restorer(&self, restorer: Arc<dyn Restore>) -> bool {
        self.inner.restorer.set(restorer).is_ok()
    }

    /// The same store for work in the background: nobody waits for what it reads, and it can be done later.
    pub(crate) fn giving_up(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            gives_up: true,
        }
    }

    pub(crate) async fn read_records<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut dyn Transaction) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let result = self.inner.database.read(work).await;
        self.inner.reads.lock().count(begun.elapsed(), result.is_ok());
        result.map_err(|source| StoreError::Database { doing, source })
    }

    pub(crate) async fn write_records<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnMut(&mut dyn Transaction) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let result = self.inner.database.write(work).await;
        self.inner.writes.lock().count(begun.elapsed(), result.is_ok());
        result.map_err(|source| StoreError::Database { doing, source })
    }

    /// Deletes an object that the records call garbage, then its record; says whether both are gone. Where a write may still be on its way
    /// whose sender has died, the record stays for the grace time, and the object is deleted once more. Garbage of a later time stays.
    pub(crate) async fn sweep(&self, garbage: Garbage) -> Result<bool> {
        let Garbage {
            object,
            progress,
            since,
            place,
            ..
        } = garbage;
        // Clients may be reading it elsewhere until then.
        if since > now() {
            return Ok(false);
        }
        // Before it is deleted: what comes from now on comes before the next time.
        let objects = self
            .objects_of(&place)
            .await
            .map_err(|source| StoreError::Place {
                place: place.clone(),
                source,
            })?;
        let is_last = !objects.writes_late() || since.saturating_add(self.grace()) < now();
        let delete = objects.delete(&object, progress.as_deref());
        let deleted = match within(self.place_patience(), delete).await {
            Err(error) if error.kind() == ErrorKind::TimedOut => self.noted(&place, Err(error)),
            // One that refuses has answered.
            answer => answer,
        };
        deleted.map_err(|source| match source.kind() {
            // Its directory or server hangs: nothing else there is deleted either.
            ErrorKind::TimedOut => StoreError::Place { place, source },
            _ => StoreError::Object {
                doing: "delete what no blob has",
                key: object.clone(),
                source,
            },
        })?;
        if is_last {
            self.write_records("forget a deleted object", move |tx| garbage::forget(tx, &object))
                .await?;
        }
        Ok(is_last)
    }

    /// The same in the background. If it fails, the next collection does it.
    pub(crate) fn sweep_soon(&self, garbage: Garbage) {
        let store = self.clone();
        tokio::spawn(async move {
            if let Err(error) = store.sweep(garbage).await {
                tracing::warn!("{error}; the next collection tries again");
            }
        });
    }

    /// The same of an object that is garbage since then, if it was on the main place.
    pub(crate) fn sweep_main_soon(&self, name: &str, size: u64, since: u64) {
        if let Some(key) = main_key(name) {
            self.sweep_soon(Garbage {
                object: key.to_owned(),
                size,
                progress: None,
                since,
                place: PlaceName::main(),
            });
        }
    }

    /// The milliseconds of grace.
    pub(crate) fn grace(&self) -> u64 {
        milliseconds(self.inner.config.grace)
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time, as records have it.
pub(crate) fn now() -> u64 {
    milliseconds_since_1970()
}

fn make_root(root: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
}
