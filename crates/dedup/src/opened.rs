//! A recipe that was read, with the indexes of its packs: all that restoring the blob needs to know.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use xebec_recipe::{ChunkId, FromEnd, Limits, PackIndex, Place as ChunkPlace, Recipe};
use xebec_recompress::{Description, Place};
use xebec_store::{Algorithm, Blob, Digest, RecipeRecord, Store};

use crate::cache::{Cache, Hits};
use crate::error::DedupError;
use crate::objects::{Objects, PackObject};
use crate::threads::Threads;
use crate::units::{self, Unit};

/// Bytes at the end of a pack that are read first. Most indexes fit.
const END: usize = 256 << 10;
/// Indexes that are read at the same time for one blob: its packs may be many, and each takes a round trip where objects are far away.
const AT_ONCE: usize = 8;

/// A blob's recipe, opened.
pub(crate) struct Opened {
    pub(crate) digest: Digest,
    /// The object of the recipe: another recipe of the same blob may have other units.
    pub(crate) object: String,
    /// The digest of that object's bytes.
    pub(crate) checksum: Digest,
    pub(crate) recipe: Recipe,
    /// Of a compressed blob.
    pub(crate) description: Option<Description>,
    pub(crate) places: Vec<Place>,
    pub(crate) units: Arc<[Unit]>,
    pub(crate) packs: Vec<OpenedPack>,
    /// Where each chunk is: the number of its pack, and the place in that.
    pub(crate) chunks: HashMap<ChunkId, (usize, ChunkPlace)>,
}

/// A pack with its index.
#[derive(Clone)]
pub(crate) struct OpenedPack {
    pub(crate) object: PackObject,
    pub(crate) index: Arc<PackIndex>,
}

impl Opened {
    /// The blob, which is not intact.
    pub(crate) fn blob(&self) -> Blob {
        Blob {
            digest: self.digest.clone(),
            size: self.recipe.blob().size,
            object: None,
        }
    }

    /// Whether it was opened from the objects that this record names.
    pub(crate) fn has_objects_of(&self, record: &RecipeRecord) -> bool {
        let packs = record.packs.iter().map(|pack| &pack.object);
        self.object == record.object && self.packs.iter().map(|pack| &pack.object.object).eq(packs)
    }

    /// The memory that it takes, about.
    pub(crate) fn weight(&self) -> u64 {
        let chunks = self.chunks.len() as u64 * 128;
        let places = self.places.len() as u64 * 96;
        let recipe = self.recipe.inline_size()
            + self.recipe.description().len() as u64
            + 24 * self.recipe.parts().len() as u64;
        recipe + chunks + places + 4096
    }
}

/// Indexes of packs, by the packs' objects.
pub(crate) struct Indexes {
    cache: Cache<String, Arc<PackIndex>>,
    hits: Mutex<Hits>,
}

impl Indexes {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            cache: Cache::new(most),
            hits: Mutex::default(),
        }
    }

    async fn of(&self, store: &Store, pack: &PackObject) -> Result<Arc<PackIndex>, DedupError> {
        let read = async {
            let index = read_index(store, pack).await?;
            let weight = 128 * index.chunks().count() as u64 + 4096;
            Ok((Arc::new(index), weight))
        };
        self.cache.get(&pack.object, &self.hits, read).await
    }
}

/// Opens the recipe of a blob.
///
/// # Errors
/// If an object cannot be read, or its bytes are not those that were recorded.
pub(crate) async fn open(
    store: &Store,
    indexes: &Indexes,
    blob: &Blob,
    objects: &Objects,
    threads: &Threads,
) -> Result<Opened, DedupError> {
    let recipe = read_recipe(store, &blob.digest, objects).await?;
    let damaged = |why: String| DedupError::Recipe {
        digest: blob.digest.clone(),
        why,
    };
    if recipe.blob().size != blob.size {
        return Err(damaged("it is of another blob".to_owned()));
    }
    let description = match recipe.description().is_empty() {
        true => None,
        false => {
            let description = Description::from_bytes(recipe.description());
            Some(description.map_err(|error| DedupError::of_description(&blob.digest, error))?)
        }
    };
    let places = description.as_ref().map(Description::places).unwrap_or_default();
    let units = match &description {
        Some(_) => units::of_places(&places),
        None => units::of_plain(recipe.plain_size()),
    };
    if units.last().map_or(0, |unit| unit.bytes.end) != blob.size {
        return Err(damaged("it makes another number of bytes".to_owned()));
    }
    let packs = objects.packs.clone().into_iter().map(|object| async move {
        let index = indexes.of(store, &object).await?;
        Ok::<_, DedupError>(OpenedPack { object, index })
    });
    let packs: Vec<OpenedPack> = stream::iter(packs).buffered(AT_ONCE).try_collect().await?;
    let looking = threads.run(&blob.digest, move || {
        let chunks = find_chunks(&recipe, &packs);
        (recipe, packs, chunks)
    });
    let (recipe, packs, chunks) = looking.await?;
    let chunks = chunks.map_err(damaged)?;
    Ok(Opened {
        digest: blob.digest.clone(),
        object: objects.recipe.object.clone(),
        checksum: objects.checksum.clone(),
        recipe,
        description,
        places,
        units: units.into(),
        packs,
        chunks,
    })
}

/// Where the chunks of a recipe are: the number of the pack, and the place in that. Each pack is gone through once, since a large blob has many
/// packs and many chunks. Of packs that have the same chunk, the first counts.
fn find_chunks(
    recipe: &Recipe,
    packs: &[OpenedPack],
) -> Result<HashMap<ChunkId, (usize, ChunkPlace)>, String> {
    let wanted: HashMap<ChunkId, u32> = recipe.chunks().collect();
    let mut found = HashMap::with_capacity(wanted.len());
    for (number, pack) in packs.iter().enumerate() {
        for (id, place) in pack.index.chunks() {
            let Some(length) = wanted.get(&id) else { continue };
            let Entry::Vacant(entry) = found.entry(id) else {
                continue;
            };
            if place.within.len() != *length as usize {
                return Err(format!("the chunk {id} has another length"));
            }
            entry.insert((number, place));
        }
    }
    match wanted.keys().find(|id| !found.contains_key(id)) {
        Some(id) => Err(format!("no pack of it has the chunk {id}")),
        None => Ok(found),
    }
}

/// Reads the recipe of a blob. Takes memory in proportion to its bytes, which are [`xebec_store::LARGEST_PIECE`] at most.
///
/// # Errors
/// If its object cannot be read, or its bytes are not those that were recorded.
pub(crate) async fn read_recipe(
    store: &Store,
    blob: &Digest,
    objects: &Objects,
) -> Result<Recipe, DedupError> {
    let damaged = |why: String| DedupError::Recipe {
        digest: blob.clone(),
        why,
    };
    let bytes = read(store, &objects.recipe.object, 0..objects.recipe.size).await;
    let bytes = bytes.map_err(|error| error.or_damage(damaged))?;
    if Digest::of(Algorithm::Sha256, &bytes) != objects.checksum {
        return Err(damaged(
            "its bytes have another digest than was recorded".to_owned(),
        ));
    }
    let recipe =
        Recipe::from_bytes(&bytes, &Limits::default()).map_err(|error| damaged(error.to_string()))?;
    match recipe.blob().digest == blob.to_string() {
        true => Ok(recipe),
        false => Err(damaged("it is of another blob".to_owned())),
    }
}

/// Reads the index of a pack.
///
/// # Errors
/// If its object cannot be read, or is damaged.
pub(crate) async fn read_index(store: &Store, pack: &PackObject) -> Result<PackIndex, DedupError> {
    let damaged = |why: String| DedupError::Pack {
        pack: pack.clone(),
        why,
    };
    let mut wanted = END;
    loop {
        let from = pack.size.saturating_sub(wanted as u64);
        let bytes = read(store, &pack.object, from..pack.size).await;
        let bytes = bytes.map_err(|error| error.or_damage(damaged))?;
        match PackIndex::from_end(&bytes, pack.size).map_err(|error| damaged(error.to_string()))? {
            FromEnd::Index(index) => return Ok(index),
            FromEnd::NeedsMore(more) if more > wanted && from > 0 => wanted = more,
            FromEnd::NeedsMore(_) => return Err(damaged("its index has no length that can be".to_owned())),
        }
    }
}

/// Reads a range of an object into memory.
pub(crate) async fn read(store: &Store, key: &str, range: Range<u64>) -> Result<Bytes, DedupError> {
    let failed = |source| DedupError::Read {
        key: key.to_owned(),
        source,
    };
    let length = range.end - range.start;
    let mut stream = store.read_object(key, range).await.map_err(failed)?;
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.map_err(failed)?);
    }
    if bytes.len() as u64 != length {
        return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(bytes.into())
}
