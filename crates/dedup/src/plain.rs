//! Plain bytes of a blob, put together from its recipe and from frames of packs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use xebec_recipe::{ChunkId, Part, PartIn};
use xebec_store::Store;

use crate::cache::{Cache, Hits};
use crate::error::DedupError;
use crate::opened::{Opened, OpenedPack, read};
use crate::threads::Threads;

/// Frames that are read at the same time for one range.
const AT_ONCE: usize = 4;

/// Decompressed frames of packs.
pub(crate) struct Frames {
    /// By the pack's object and the number of the frame.
    cache: Cache<(String, u32), Bytes>,
    pub(crate) hits: Mutex<Hits>,
}

/// A piece of a frame that goes into the plain bytes.
struct Wanted {
    /// Where it goes.
    at: usize,
    /// Where it is in the frame.
    from: Range<usize>,
}

impl Frames {
    pub(crate) fn new(most: u64) -> Self {
        Self {
            cache: Cache::new(most),
            hits: Mutex::default(),
        }
    }

    /// The memory for frames that a range of a blob takes, about: those that are not here are read and decompressed, some at a time.
    pub(crate) fn memory(&self, opened: &Opened, range: Range<u64>) -> u64 {
        let mut frames: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for PartIn { part, .. } in opened.recipe.parts_in(range) {
            let Part::Chunk { id, .. } = part else { continue };
            let Some((number, place)) = opened.chunks.get(&id) else {
                continue;
            };
            let plain = frames.entry((*number, place.frame_number)).or_default();
            *plain = (*plain).max(place.within.end as u64);
        }
        let lacking = frames.into_iter().filter_map(|((number, frame), plain)| {
            let pack = &opened.packs[number];
            let compressed = pack.index.frame(frame).map_or(0, |at| at.end - at.start);
            let is_here = self.cache.has(&(pack.object.object.clone(), frame));
            (!is_here).then_some(compressed + plain)
        });
        let mut lacking: Vec<u64> = lacking.collect();
        lacking.sort_unstable_by(|one, other| other.cmp(one));
        lacking.iter().take(AT_ONCE).sum()
    }

    /// The plain bytes of a range of a blob.
    ///
    /// # Errors
    /// If a pack cannot be read, or has wrong bytes.
    pub(crate) async fn plain(
        &self,
        store: &Store,
        opened: &Opened,
        range: Range<u64>,
        threads: &Threads,
    ) -> Result<Vec<u8>, DedupError> {
        let mut plain = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
        // By the number of the pack and the place of the frame: packs are read forwards.
        let mut wanted: BTreeMap<(usize, u32), Vec<Wanted>> = BTreeMap::new();
        for PartIn { part, within, .. } in opened.recipe.parts_in(range) {
            let length = (within.end - within.start) as usize;
            match part {
                Part::Inline(bytes) => {
                    let bytes = bytes.get(within.start as usize..within.end as usize);
                    plain.extend_from_slice(bytes.unwrap_or_default());
                }
                Part::Zeros(_) => plain.resize(plain.len() + length, 0),
                Part::Chunk { id, .. } => {
                    let (pack, place) = opened.chunks.get(&id).ok_or_else(|| DedupError::Recipe {
                        digest: opened.digest.clone(),
                        why: format!("no pack of it has the chunk {id}"),
                    })?;
                    let start = place.within.start + within.start as usize;
                    let one = Wanted {
                        at: plain.len(),
                        from: start..start + length,
                    };
                    wanted.entry((*pack, place.frame_number)).or_default().push(one);
                    plain.resize(plain.len() + length, 0);
                }
            }
        }
        let frames = wanted.into_iter().map(|((pack, frame), wanted)| async move {
            let pack = &opened.packs[pack];
            Ok::<_, DedupError>((pack, self.frame(store, pack, frame, threads).await?, wanted))
        });
        let mut frames = stream::iter(frames).buffer_unordered(AT_ONCE);
        while let Some((pack, frame, wanted)) = frames.try_next().await? {
            for Wanted { at, from } in wanted {
                let target = plain.get_mut(at..at + from.len());
                let (Some(target), Some(bytes)) = (target, frame.get(from)) else {
                    return Err(too_short(pack));
                };
                target.copy_from_slice(bytes);
            }
        }
        drop(frames);
        Ok(plain)
    }

    /// One chunk of a blob.
    ///
    /// # Errors
    /// If no pack of the blob has it, or the pack cannot be read or has wrong bytes.
    pub(crate) async fn chunk(
        &self,
        store: &Store,
        opened: &Opened,
        id: &ChunkId,
        threads: &Threads,
    ) -> Result<Bytes, DedupError> {
        let (pack, place) = opened.chunks.get(id).ok_or_else(|| DedupError::Recipe {
            digest: opened.digest.clone(),
            why: format!("no pack of it has the chunk {id}"),
        })?;
        let pack = &opened.packs[*pack];
        let frame = self.frame(store, pack, place.frame_number, threads).await?;
        let is_there = place.within.end <= frame.len();
        let bytes = is_there.then(|| frame.slice(place.within.clone()));
        bytes.ok_or_else(|| too_short(pack))
    }

    async fn frame(
        &self,
        store: &Store,
        pack: &OpenedPack,
        frame: u32,
        threads: &Threads,
    ) -> Result<Bytes, DedupError> {
        let key = (pack.object.object.clone(), frame);
        let make = async {
            let range = pack.index.frame(frame).ok_or_else(|| too_short(pack))?;
            let damaged = |why: String| DedupError::Pack {
                pack: pack.object.clone(),
                why,
            };
            let compressed = read(store, &pack.object.object, range).await;
            let compressed = compressed.map_err(|error| error.or_damage(damaged))?;
            let index = Arc::clone(&pack.index);
            let decoded = threads.run(&pack.object.object, move || index.decode(frame, &compressed));
            let decoded = decoded.await?.map_err(|error| damaged(error.to_string()))?;
            let weight = decoded.len() as u64;
            Ok((Bytes::from(decoded), weight))
        };
        self.cache.get(&key, &self.hits, make).await
    }
}

fn too_short(pack: &OpenedPack) -> DedupError {
    DedupError::Pack {
        pack: pack.object.clone(),
        why: "a frame is shorter than its index says".to_owned(),
    }
}
