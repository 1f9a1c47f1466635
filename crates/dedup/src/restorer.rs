//! Reads blobs that are not intact: whole, or a range, each from the middle of its recipe.
//!
//! A range is made of units, each of which one task makes for all clients that want it at the time. While one is sent, the next one is made. If nobody waits for a unit any more, the next step of making it is not begun. Blobs that were restored before somebody asked
//! ([`Restorer::prefetch`]) are read from their files.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_store::{Blob, BlobReader, Digest, RecipeRecord, Restore, Store, StoreError};

use crate::cache::{Cache, Hits};
use crate::damage;
use crate::error::DedupError;
use crate::expected::Expected;
use crate::making;
use crate::objects::{Objects, PackObject};
use crate::opened::{self, Indexes, Opened};
use crate::plain::Frames;
use crate::preconstructed::Preconstructed;
use crate::proof::prove;
use crate::sending::{self, Room};
use crate::settings::Settings;

/// Memory is counted in pieces of this many bytes.
const PIECE: u64 = 4096;
/// Blobs that wait to be restored before somebody asks, at most.
const MOST_EXPECTED: usize = 256;
/// While requests have blobs restored, the next unit of one that nobody has asked for waits so long, so often. No longer: a request may last as long
/// as its client is slow, and a blob that comes too late is restored by one more request, before which the next one waits again.
const GIVE_WAY: Duration = Duration::from_millis(10);
const MOST_WAITS: usize = 3;
/// A recipe whose packs were put together anew while it was used is looked up so often.
const MOST_REPLACED: usize = 3;

/// See the module. It is cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Restorer {
    inner: Arc<Inner>,
}

struct Inner {
    recipes: Cache<(Digest, String), Arc<Opened>>,
    indexes: Indexes,
    frames: Frames,
    /// By the object of the recipe and the number of the unit.
    units: Cache<(String, usize), Bytes>,
    /// Memory for making units, and for those that are sent.
    making: Semaphore,
    sending: Arc<Room>,
    most_making: u32,
    recipe_hits: Mutex<Hits>,
    unit_hits: Mutex<Hits>,
    blob_hits: Mutex<Hits>,
    /// Blobs as files, if there is room for any.
    preconstructed: Option<Preconstructed>,
    expected: Mutex<Expected>,
    expect: mpsc::Sender<Blob>,
    to_expect: Mutex<Option<mpsc::Receiver<Blob>>>,
    /// The one that is being restored before somebody asks.
    at_work_on: Mutex<Option<Digest>>,
    /// Requests that have something restored.
    busy: Arc<AtomicUsize>,
}

/// How often what restoring needs was in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Recipes that were opened.
    pub recipes: Hits,
    /// Frames of packs.
    pub frames: Hits,
    /// Restored parts of blobs.
    pub units: Hits,
    /// Blobs as files: there, being restored when a client asked, or not there.
    pub blobs: Hits,
    /// Bytes of those files.
    pub file_bytes: u64,
}

impl Restorer {
    /// One with empty caches.
    pub fn new(settings: &Settings) -> Self {
        Self::over(settings, None)
    }

    /// The same with a directory for blobs that are restored before somebody asks, which may have so many bytes. It is made, or emptied: no
    /// other process may use it.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn with_files(settings: &Settings, directory: &Path, room: u64) -> io::Result<Self> {
        Ok(Self::over(settings, Some(Preconstructed::open(directory, room)?)))
    }

    fn over(settings: &Settings, preconstructed: Option<Preconstructed>) -> Self {
        let (expect, to_expect) = mpsc::channel(MOST_EXPECTED);
        let most_making = pieces(settings.working);
        Self {
            inner: Arc::new(Inner {
                recipes: Cache::new(settings.recipes),
                indexes: Indexes::new(settings.recipes),
                frames: Frames::new(settings.frames),
                units: Cache::new(settings.restored),
                making: Semaphore::new(most_making as usize),
                sending: Arc::new(Room::new(settings.sending)),
                most_making,
                recipe_hits: Mutex::default(),
                unit_hits: Mutex::default(),
                blob_hits: Mutex::default(),
                preconstructed,
                expected: Mutex::new(Expected::new()),
                expect,
                to_expect: Mutex::new(Some(to_expect)),
                at_work_on: Mutex::default(),
                busy: Arc::default(),
            }),
        }
    }

    /// Whether blobs are restored before somebody asks.
    pub fn works_ahead(&self) -> bool {
        self.inner.preconstructed.is_some()
    }

    /// A client has pulled a blob.
    pub fn note_pull(&self, client: &str, digest: &Digest) {
        self.inner
            .expected
            .lock()
            .pulled(client, digest, milliseconds_since_1970());
    }

    /// A client has read the manifest that names these blobs: those that it has not pulled lately, and that are not intact, are restored by
    /// [`Restorer::prefetch`]. It waits for nothing.
    pub fn expect(&self, client: &str, blobs: Vec<Blob>) {
        let Some(files) = &self.inner.preconstructed else {
            return;
        };
        let digests = blobs.iter().map(|blob| blob.digest.clone()).collect();
        let lacking = self
            .inner
            .expected
            .lock()
            .lacking(client, digests, milliseconds_since_1970());
        for blob in blobs {
            if blob.object.is_none() && lacking.contains(&blob.digest) && files.expect(&blob) {
                // If too many wait, this one is restored when it is asked for.
                let _ = self.inner.expect.try_send(blob);
            }
        }
    }

    /// Restores what is expected, one blob after the other, as long as the program runs.
    pub async fn prefetch(self, store: Store) {
        let Some(mut expected) = self.inner.to_expect.lock().take() else {
            return;
        };
        while let Some(blob) = expected.recv().await {
            let Some(files) = &self.inner.preconstructed else {
                return;
            };
            if !files.lacks(&blob) {
                continue;
            }
            *self.inner.at_work_on.lock() = Some(blob.digest.clone());
            let restored = self.inner.restore_whole(&store, files, &blob).await;
            *self.inner.at_work_on.lock() = None;
            if let Err(error) = restored {
                tracing::debug!(digest = %blob.digest, "not restored before somebody asks: {error}");
            }
        }
    }

    /// How often what was needed was there.
    pub fn figures(&self) -> Figures {
        Figures {
            recipes: *self.inner.recipe_hits.lock(),
            frames: *self.inner.frames.hits.lock(),
            units: *self.inner.unit_hits.lock(),
            blobs: *self.inner.blob_hits.lock(),
            file_bytes: self
                .inner
                .preconstructed
                .as_ref()
                .map_or(0, Preconstructed::bytes),
        }
    }
}

impl Restore for Restorer {
    fn read(
        &self,
        store: &Store,
        blob: &Blob,
        range: Range<u64>,
    ) -> BoxFuture<'static, Result<BlobReader, StoreError>> {
        let (inner, store, blob) = (self.inner.clone(), store.clone(), blob.clone());
        async move {
            if let Some(reader) = inner.read_file(&blob, &range) {
                return Ok(reader);
            }
            let opened = inner
                .opened(&store, &blob)
                .await
                .map_err(|error| match error.is_damage() {
                    true => StoreError::Lost(blob.digest.clone()),
                    false => error.into(),
                })?;
            Ok(BlobReader::new(stream_of(inner, store, opened, range)))
        }
        .boxed()
    }

    fn is_exact(&self, store: &Store, blob: &Blob) -> BoxFuture<'static, Result<bool, StoreError>> {
        let (store, blob) = (store.clone(), blob.clone());
        async move {
            let mut before = None;
            loop {
                let Some(record) = store.recipe(&blob.digest).await? else {
                    return Ok(false);
                };
                let proven = prove(&store, &blob, &Objects::from(&record)).await;
                match proven {
                    Ok(()) => return Ok(true),
                    // Its packs may have been put together anew meanwhile: then it is tried again with the new ones.
                    Err(error) if error.is_damage() && before.as_ref() == Some(&record) => {
                        tracing::error!(digest = %blob.digest, "what is stored does not make the blob: {error}");
                        return Ok(false);
                    }
                    Err(error) if error.is_damage() => before = Some(record),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        .boxed()
    }
}

/// The bytes of a range, in pieces.
fn stream_of(
    inner: Arc<Inner>,
    store: Store,
    opened: Arc<Opened>,
    range: Range<u64>,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (room, busy) = (inner.sending.clone(), Busy::new(&inner.busy));
    let units = opened.units.clone();
    let make = move |number| {
        let (inner, store, opened) = (inner.clone(), store.clone(), opened.clone());
        async move { inner.unit(&store, &opened, number, &inner.unit_hits).await }
    };
    sending::send(room, units, range, make, busy)
}

impl Inner {
    /// A blob that is a file already.
    fn read_file(&self, blob: &Blob, range: &Range<u64>) -> Option<BlobReader> {
        let reader = self.preconstructed.as_ref()?.read(blob, range.clone());
        let mut hits = self.blob_hits.lock();
        match &reader {
            Some(_) => hits.hit += 1,
            None if self.at_work_on.lock().as_ref() == Some(&blob.digest) => hits.waited += 1,
            None => hits.missed += 1,
        }
        reader
    }

    /// Makes a file of a blob.
    async fn restore_whole(
        &self,
        store: &Store,
        files: &Preconstructed,
        blob: &Blob,
    ) -> Result<(), DedupError> {
        let failed = |source| DedupError::Read {
            key: blob.digest.to_string(),
            source,
        };
        let opened = self.opened(store, blob).await?;
        let mut file = files.begin(blob).map_err(failed)?;
        for number in 0..opened.units.len() {
            for _ in 0..MOST_WAITS {
                if self.busy.load(Ordering::Relaxed) == 0 {
                    break;
                }
                tokio::time::sleep(GIVE_WAY).await;
            }
            let bytes = self.unit(store, &opened, number, &Mutex::default()).await?;
            let written = tokio::task::spawn_blocking(move || file.write(&bytes).map(|()| file)).await;
            let written = written.map_err(|_| DedupError::Thread(blob.digest.to_string()))?;
            file = written.map_err(failed)?;
        }
        files.finish(blob, file).map_err(failed)
    }

    /// The recipe of a blob.
    async fn opened(&self, store: &Store, blob: &Blob) -> Result<Arc<Opened>, DedupError> {
        let record = record(store, blob).await?;
        let first = self.open(store, blob, &record).await;
        let Err(error) = first else { return first };
        // Somebody may have put its packs together anew since it was looked up.
        let again = self::record(store, blob).await?;
        if again != record {
            return self.open(store, blob, &again).await;
        }
        damage::note(store, &record, &error).await;
        Err(error)
    }

    async fn open(
        &self,
        store: &Store,
        blob: &Blob,
        record: &RecipeRecord,
    ) -> Result<Arc<Opened>, DedupError> {
        // The packs are part of the key: they may be others for the same recipe.
        let packs: Vec<String> = record.packs.iter().map(|pack| pack.key.to_string()).collect();
        let key = (
            blob.digest.clone(),
            format!("{}:{}", record.object, packs.join(",")),
        );
        let open = async {
            let opened = opened::open(store, &self.indexes, blob, &Objects::from(record)).await?;
            let weight = opened.weight();
            Ok((Arc::new(opened), weight))
        };
        self.recipes.get(&key, &self.recipe_hits, open).await
    }

    async fn unit(
        &self,
        store: &Store,
        opened: &Arc<Opened>,
        number: usize,
        hits: &Mutex<Hits>,
    ) -> Result<Bytes, DedupError> {
        let mut opened = opened.clone();
        for _ in 0..MOST_REPLACED {
            let error = match self.cached(store, &opened, number, hits).await {
                Err(error) if error.is_damage() => error,
                made => return made,
            };
            // Its packs may have been put together anew since the recipe was opened: then the old ones are gone, and the recipe is the same.
            let record = store.recipe(&opened.digest).await?;
            let Some(record) = record.filter(|record| record.object == opened.object) else {
                return Err(error);
            };
            let packs: Vec<PackObject> = record.packs.iter().map(PackObject::from).collect();
            if opened.packs.iter().map(|pack| &pack.object).eq(&packs) {
                damage::note(store, &record, &error).await;
                return Err(error);
            }
            opened = self.open(store, &opened.blob(), &record).await?;
        }
        self.cached(store, &opened, number, hits).await
    }

    async fn cached(
        &self,
        store: &Store,
        opened: &Arc<Opened>,
        number: usize,
        hits: &Mutex<Hits>,
    ) -> Result<Bytes, DedupError> {
        let key = (opened.object.clone(), number);
        let make = async {
            let bytes = self.make(store, opened, number).await?;
            let weight = bytes.len() as u64 + 256;
            Ok((bytes, weight))
        };
        self.units.get(&key, hits, make).await
    }

    async fn make(&self, store: &Store, opened: &Arc<Opened>, number: usize) -> Result<Bytes, DedupError> {
        let memory = pieces(opened.units[number].memory()).min(self.most_making);
        let room = self.making.acquire_many(memory).await;
        let _room = room.map_err(|_| DedupError::Thread(opened.digest.to_string()))?;
        making::make(store, &self.frames, opened, number).await
    }
}

async fn record(store: &Store, blob: &Blob) -> Result<RecipeRecord, DedupError> {
    let record = store.recipe(&blob.digest).await?;
    record.ok_or_else(|| DedupError::NoRecipe(blob.digest.clone()))
}

fn pieces(bytes: u64) -> u32 {
    let pieces = bytes.div_ceil(PIECE).clamp(1, Semaphore::MAX_PERMITS as u64);
    u32::try_from(pieces).unwrap_or(u32::MAX)
}

/// Counts one more request while it lasts.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
