//! The simplest deduplicator: a blob's chunks are its pieces of 64 bytes, or of more if it is large. A pack is its chunks, one after the other, each with its length
//! before it; a recipe is the digests of its chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};

use crate::common::*;
use xebec_store::*;

pub(crate) const CHUNK: usize = 64;
const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn chunk_digest(chunk: &[u8]) -> ChunkDigest {
    let hex = digest(chunk).hex().to_owned();
    hex::decode(hex).unwrap().try_into().unwrap()
}

/// Bytes with chunks of these numbers, and a short one at the end, which no others have.
pub(crate) fn of_chunks(numbers: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| [*number; CHUNK]).collect();
    bytes.extend_from_slice(numbers);
    bytes
}

pub(crate) fn pack_of(chunks: &[&[u8]]) -> Vec<u8> {
    let pieces = chunks.iter().map(|chunk| {
        let length = u16::try_from(chunk.len()).unwrap();
        [&length.to_le_bytes(), *chunk].concat()
    });
    pieces.collect::<Vec<_>>().concat()
}

fn chunks_in(mut pack: &[u8]) -> BTreeMap<ChunkDigest, Vec<u8>> {
    let mut chunks = BTreeMap::new();
    while let Some((length, rest)) = pack.split_at_checked(2) {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (chunk, rest) = rest.split_at(length.min(rest.len()));
        chunks.insert(chunk_digest(chunk), chunk.to_vec());
        pack = rest;
    }
    chunks
}

async fn whole(store: &Store, object: &str, size: u64) -> std::io::Result<Vec<u8>> {
    let reader = store.read_object(object, 0..size).await?;
    let pieces: Vec<std::io::Result<Bytes>> = reader.collect().await;
    let pieces: std::io::Result<Vec<Bytes>> = pieces.into_iter().collect();
    Ok(pieces?.concat())
}

/// A blob by a recipe and packs; none if something is not there or not right.
async fn restored(store: &Store, recipe: (&str, u64), packs: &[(String, u64)]) -> Option<Vec<u8>> {
    let recipe = whole(store, recipe.0, recipe.1).await.ok()?;
    let mut chunks = BTreeMap::new();
    for (object, size) in packs {
        chunks.extend(chunks_in(&whole(store, object, *size).await.ok()?));
    }
    let pieces: Option<Vec<_>> = recipe
        .chunks(32)
        .map(|digest| chunks.get(digest).cloned())
        .collect();
    Some(pieces?.concat())
}

pub(crate) struct Toy;

impl Restore for Toy {
    fn read(&self, store: &Store, blob: &Blob, range: Range<u64>) -> BoxFuture<'static, Result<BlobReader>> {
        let (store, blob) = (store.clone(), blob.clone());
        Box::pin(async move {
            let lost = || StoreError::Lost(blob.digest.clone());
            // A pack that was replaced is looked up again.
            for _ in 0..3 {
                let recipe = store.recipe(&blob.digest).await?;
                let recipe = recipe.filter(|recipe| !recipe.is_damaged).ok_or_else(lost)?;
                let packs: Vec<_> = recipe
                    .packs
                    .iter()
                    .map(|pack| (pack.object.clone(), pack.size))
                    .collect();
                let made = restored(&store, (&recipe.object, recipe.size), &packs).await;
                if let Some(bytes) = made.filter(|bytes| digest(bytes) == blob.digest) {
                    let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
                    let piece = Bytes::from(bytes).slice(range);
                    return Ok(BlobReader::new(stream::iter([Ok(piece)])));
                }
            }
            Err(lost())
        })
    }

    fn is_exact(&self, store: &Store, blob: &Blob) -> BoxFuture<'static, Result<bool>> {
        let reading = self.read(store, blob, 0..blob.size);
        Box::pin(async move {
            match reading.await {
                Ok(_) => Ok(true),
                Err(StoreError::Lost(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }
}

/// One whose packs are on a place that answers nothing for now.
pub(crate) struct Waiting;

impl Restore for Waiting {
    fn read(&self, _: &Store, _: &Blob, _: Range<u64>) -> BoxFuture<'static, Result<BlobReader>> {
        Box::pin(async { Err(timed_out()) })
    }

    fn is_exact(&self, _: &Store, _: &Blob) -> BoxFuture<'static, Result<bool>> {
        Box::pin(async { Err(timed_out()) })
    }
}

fn timed_out() -> StoreError {
    StoreError::Object {
        doing: "read",
        key: "a pack".to_owned(),
        source: std::io::ErrorKind::TimedOut.into(),
    }
}

pub(crate) fn with_toy(store: &Store) -> &Store {
    store.set_restorer(Arc::new(Toy));
    store
}

/// A recipe and the packs that it needs, written and not recorded. None if the blob is gone meanwhile, or there is no room.
pub(crate) async fn written(store: &Store, blob: &Blob) -> Option<NewRecipe> {
    let reader = store.read(blob, 0..blob.size).await.ok()?;
    let pieces: Vec<std::io::Result<Bytes>> = reader.collect().await;
    let bytes = pieces
        .into_iter()
        .collect::<std::io::Result<Vec<Bytes>>>()
        .ok()?
        .concat();
    let size = if bytes.len() < 10_000 { CHUNK } else { 8192 };
    let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
    let digests: Vec<ChunkDigest> = chunks.iter().map(|chunk| chunk_digest(chunk)).collect();
    let here = store.chunks_here(&digests).await.unwrap();
    let is_new = |place: &usize| here[*place].is_none();
    let new: BTreeMap<ChunkDigest, &[u8]> = (0..chunks.len())
        .filter(is_new)
        .map(|place| (digests[place], chunks[place]))
        .collect();
    let mut packs = Vec::new();
    if !new.is_empty() {
        let pack = pack_of(&new.values().copied().collect::<Vec<_>>());
        packs.push(NewPack {
            checksum: digest(&pack),
            plain: new.values().map(|chunk| chunk.len() as u64).sum(),
            draft: store.put_draft(vec![pack.into()]).await.unwrap(),
            chunks: new.keys().copied().collect(),
        });
    }
    let recipe = digests.concat();
    Some(NewRecipe {
        blob: blob.clone(),
        checksum: digest(&recipe),
        recipe: store.put_draft(vec![recipe.into()]).await.unwrap(),
        plain: blob.size,
        packs,
        uses: here.into_iter().flatten().collect(),
        form: None,
    })
}

/// Takes the next blob apart, and drops its object if that is wanted; `None` if no blob waits.
pub(crate) async fn take_next(store: &Store, drops: bool) -> Option<Recording> {
    let task = store.take_dedup(LEASE, 1).await.unwrap()?;
    let Some(new) = written(store, &task.blob).await else {
        return Some(Recording::BlobGone);
    };
    let recording = store.record_recipe(&new).await.unwrap();
    match &recording {
        Recording::Recorded(_) if drops => {
            store.drop_intact(&task.blob.digest).await.unwrap();
        }
        Recording::Recorded(_) => {}
        _ => {
            for draft in new.packs.iter().map(|pack| &pack.draft).chain([&new.recipe]) {
                store.drop_draft(draft).await.unwrap();
            }
            store
                .postpone_dedup(&task, Duration::ZERO, "others were in the way")
                .await
                .unwrap();
        }
    }
    Some(recording)
}

/// Takes all apart that waits.
pub(crate) async fn take_all(store: &Store, drops: bool) {
    while let Some(recording) = take_next(store, drops).await {
        assert!(matches!(recording, Recording::Recorded(_)), "{recording:?}");
    }
}

/// A blob that is pushed, taken apart, and kept by its recipe alone.
pub(crate) async fn push_apart(store: &Store, repository: &RepositoryName, bytes: &[u8]) -> Blob {
    push(store, repository, bytes).await.unwrap();
    take_all(store, true).await;
    store.any_blob(&digest(bytes)).await.unwrap().unwrap()
}
