//! Reads blobs that are not intact: whole, or a range, each from the middle of its recipe.
//!
//! A range is made of units, each of which one task makes for all clients that want it at the time. While one is sent, the next ones are made. If nobody waits for a unit any more, the next step of making it is not begun. Blobs that were restored before somebody asked
//! ([`Restorer::prefetch`]) are read from their files.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_recipe::ChunkId;
use xebec_store::{Blob, BlobReader, Digest, RecipeRecord, Restore, Store, StoreError};

use crate::busy::Requests;
use crate::cache::{Cache, Hits};
use crate::damage;
use crate::error::DedupError;
use crate::expected::Expected;
use crate::making;
use crate::objects::Objects;
use crate::opened::{self, Indexes, Opened};
use crate::plain::Frames;
use crate::preconstructed::Preconstructed;
use crate::proof::prove;
use crate::sending::{self, Room, counted};
use crate::settings::Settings;
use crate::threads::Threads;

/// Blobs that wait to be restored before somebody asks, at most.
const MOST_EXPECTED: usize = 256;
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
    making: Arc<Semaphore>,
    sending: Arc<Room>,
    most_making: u32,
    recipe_hits: Mutex<Hits>,
    unit_hits: Mutex<Hits>,
    blob_hits: Mutex<Hits>,
    /// Blobs as files, if there is room for any.
    preconstructed: Option<Arc<Preconstructed>>,
    expected: Mutex<Expected>,
    expect: mpsc::Sender<Blob>,
    to_expect: Mutex<Option<mpsc::Receiver<Blob>>>,
    /// The one that is being restored before somebody asks.
    at_work_on: Mutex<Option<Digest>>,
    /// Requests that have something restored.
    busy: Requests,
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
        let most_making = counted(settings.working);
        Self {
            inner: Arc::new(Inner {
                recipes: Cache::new(settings.recipes / 2),
                indexes: Indexes::new(settings.recipes / 2),
                frames: Frames::new(settings.frames),
                units: Cache::new(settings.restored),
                making: Arc::new(Semaphore::new(most_making as usize)),
                sending: Arc::new(Room::new(settings.sending)),
                most_making,
                recipe_hits: Mutex::default(),
                unit_hits: Mutex::default(),
                blob_hits: Mutex::default(),
                preconstructed: preconstructed.map(Arc::new),
                expected: Mutex::new(Expected::new()),
                expect,
                to_expect: Mutex::new(Some(to_expect)),
                at_work_on: Mutex::default(),
                busy: Requests::default(),
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

    /// A client has read the manifest that names these blobs. Returns those that it is about to pull: it has not pulled them lately.
    pub fn lacking(&self, client: &str, blobs: Vec<Digest>) -> Vec<Digest> {
        let mut expected = self.inner.expected.lock();
        expected.lacking(client, blobs, milliseconds_since_1970())
    }

    /// A client is about to pull a blob: if it is not intact, [`Restorer::prefetch`] restores it. This waits for nothing.
    pub fn expect(&self, blob: Blob) {
        let Some(files) = &self.inner.preconstructed else {
            return;
        };
        if blob.object.is_none() && files.expect(&blob) {
            // If too many wait, this one is restored when it is asked for.
            let _ = self.inner.expect.try_send(blob);
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
            if let Err(error) = self.inner.restore_ahead(&store, files, &blob).await {
                tracing::debug!(digest = %blob.digest, "not restored before somebody asks: {error}");
            }
        }
    }

    /// The recipe of a blob, if it was taken apart.
    pub(crate) async fn open_recipe(
        &self,
        store: &Store,
        blob: &Blob,
    ) -> Result<Option<Arc<Opened>>, StoreError> {
        match self.inner.opened(store, blob).await {
            Ok(opened) => Ok(Some(opened)),
            Err(DedupError::NoRecipe(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A content of a blob that was taken apart.
    pub(crate) async fn read_content(
        &self,
        store: &Store,
        opened: &Opened,
        id: &ChunkId,
    ) -> Result<Bytes, StoreError> {
        let threads = Threads::Runtime(None);
        Ok(self.inner.frames.chunk(store, opened, id, &threads).await?)
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
                .map_or(0, |files| files.bytes()),
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
                let proven = prove(&store, &blob, &Objects::from(&record), &Threads::Runtime(None)).await;
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
    let (room, busy) = (inner.sending.clone(), inner.busy.begin());
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

    /// Makes a file of a blob, unless there is one. It leaves the reserve of the disk to pushes.
    async fn restore_ahead(
        &self,
        store: &Store,
        files: &Arc<Preconstructed>,
        blob: &Blob,
    ) -> Result<(), DedupError> {
        if !files.lacks(blob) || store.room().await < blob.size {
            return Ok(());
        }
        *self.at_work_on.lock() = Some(blob.digest.clone());
        let restored = self.restore_whole(store, files, blob).await;
        *self.at_work_on.lock() = None;
        restored
    }

    async fn restore_whole(
        &self,
        store: &Store,
        files: &Arc<Preconstructed>,
        blob: &Blob,
    ) -> Result<(), DedupError> {
        let failed = |source| DedupError::Read {
            key: blob.digest.to_string(),
            source,
        };
        let opened = self.opened(store, blob).await?;
        let mut file = files.begin(blob).map_err(failed)?;
        for number in 0..opened.units.len() {
            self.busy.give_way().await;
            let bytes = self.unit(store, &opened, number, &Mutex::default()).await?;
            let written = tokio::task::spawn_blocking(move || file.write(&bytes).map(|()| file)).await;
            let written = written.map_err(|_| DedupError::Thread(blob.digest.to_string()))?;
            file = written.map_err(failed)?;
        }
        let (files, of) = (files.clone(), blob.clone());
        let finished = tokio::task::spawn_blocking(move || files.finish(&of, file)).await;
        let finished = finished.map_err(|_| DedupError::Thread(blob.digest.to_string()))?;
        finished.map_err(failed)
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
        // The objects of packs are part of the key: they may be others for the same recipe.
        let packs: Vec<&str> = record.packs.iter().map(|pack| pack.object.as_str()).collect();
        let key = (
            blob.digest.clone(),
            format!("{}:{}", record.object, packs.join(",")),
        );
        let threads = Threads::Runtime(None);
        let open = async {
            let opened = opened::open(store, &self.indexes, blob, &Objects::from(record), &threads).await?;
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
            // Its packs may have been put together anew since the recipe was opened, or its objects may be on other places: then the old ones are
            // gone, and the recipe has the same bytes.
            let Some(mut record) = same_recipe(store, &opened).await? else {
                return Err(error);
            };
            if opened.has_objects_of(&record) {
                damage::note(store, &record, &error).await;
                // What was damaged may have come again from another place.
                match same_recipe(store, &opened).await? {
                    Some(again) if !opened.has_objects_of(&again) => record = again,
                    _ => return Err(error),
                }
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
        let unit = &opened.units[number];
        let memory = unit.memory() + self.frames.memory(opened, unit.needs.clone());
        let memory = counted(memory).min(self.most_making);
        let room = self.making.clone().acquire_many_owned(memory).await;
        let room = room.map_err(|_| DedupError::Thread(opened.digest.to_string()))?;
        let threads = Threads::Runtime(Some(Arc::new(room)));
        making::make(store, &self.frames, opened, number, &threads).await
    }
}

async fn record(store: &Store, blob: &Blob) -> Result<RecipeRecord, DedupError> {
    let record = store.recipe(&blob.digest).await?;
    record.ok_or_else(|| DedupError::NoRecipe(blob.digest.clone()))
}

/// The recipe of a blob that was opened, if it is still one with the same bytes.
async fn same_recipe(store: &Store, opened: &Opened) -> Result<Option<RecipeRecord>, DedupError> {
    let record = store.recipe(&opened.digest).await?;
    Ok(record.filter(|record| record.checksum == opened.checksum))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use xebec_recipe::{Piece, RecipeBuilder};
    use xebec_recompress::TakeApart;
    use xebec_store::{Algorithm, StoreConfig};

    use super::*;

    /// A compressed blob whose recipe needs no pack.
    async fn opened_blob(store: &Store) -> Arc<Opened> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(b"a few plain bytes").unwrap();
        let bytes = encoder.finish().unwrap();
        let digest = Digest::of(Algorithm::Sha256, &bytes);
        let (size, object) = (bytes.len() as u64, None);
        let mut plain = Vec::new();
        let mut apart = TakeApart::new(xebec_recompress::Limits { plain: 1 << 20 });
        let mut take = |piece: &[u8]| plain.extend_from_slice(piece);
        apart.write(&bytes, &mut take).unwrap();
        let description = apart.finish(&mut take).unwrap().to_bytes();
        let mut recipe = RecipeBuilder::new(xebec_recipe::Limits::default());
        recipe.add(Piece::Inline(&plain)).unwrap();
        let of = xebec_recipe::Blob {
            digest: digest.to_string(),
            size,
        };
        let recipe = Bytes::from(recipe.finish(of, description).unwrap().to_bytes());
        let objects = Objects {
            checksum: Digest::of(Algorithm::Sha256, &recipe),
            recipe: store.put_draft(vec![recipe]).await.unwrap(),
            packs: Vec::new(),
        };
        let blob = Blob { digest, size, object };
        let (indexes, threads) = (Indexes::new(0), Threads::Runtime(None));
        let opened = opened::open(store, &indexes, &blob, &objects, &threads).await;
        Arc::new(opened.unwrap())
    }

    #[test]
    fn memory_is_held_until_the_thread_has_ended_that_nobody_waits_for() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::open(&StoreConfig::new(directory.path())).await.unwrap();
            let opened = opened_blob(&store).await;
            let inner = Restorer::new(&Settings::default()).inner;
            let most = inner.most_making as usize;
            // The only thread is at work on something else, so the unit is begun and not made.
            let (go_on, wait) = std::sync::mpsc::channel::<()>();
            let other = tokio::task::spawn_blocking(move || wait.recv());
            let asked = inner.make(&store, &opened, 0).now_or_never();
            assert!(asked.is_none());
            assert!(inner.making.available_permits() < most);
            go_on.send(()).unwrap();
            other.await.unwrap().unwrap();
            let all = inner.making.acquire_many(inner.most_making).await;
            drop(all.unwrap());
        });
    }

    #[tokio::test]
    async fn nothing_is_restored_ahead_where_only_the_reserve_is_free() {
        for (reserve, is_tried) in [(0, true), (u64::MAX, false)] {
            let directory = tempfile::tempdir().unwrap();
            let mut config = StoreConfig::new(directory.path());
            config.reserve = 0;
            let blob = opened_blob(&Store::open(&config).await.unwrap()).await.blob();
            config.reserve = reserve;
            let store = Store::open(&config).await.unwrap();
            let files = directory.path().join("restored");
            let restorer = Restorer::with_files(&Settings::default(), &files, 1 << 20).unwrap();
            let inner = restorer.inner;
            let files = inner.preconstructed.as_ref().unwrap();
            // Its recipe is not recorded.
            let tried = inner.restore_ahead(&store, files, &blob).await;
            let is_asked_for = matches!(tried, Err(DedupError::NoRecipe(_)));
            assert_eq!((is_asked_for, tried.is_ok()), (is_tried, !is_tried));
        }
    }
}
