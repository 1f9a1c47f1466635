//! Makes packs of the chunks that are needed of others, stores them, and reads them again.
//!
//! It works in a thread of its own with a low priority. In memory are the plain bytes of one new pack and the frame of an old one.

use std::collections::HashSet;

use tokio::runtime::Handle;
use xebec_recipe::{ChunkId, Hint};
use xebec_store::{NewPack, Store};

use crate::error::DedupError;
use crate::needed::Candidate;
use crate::objects::PackObject;
use crate::opened::{read, read_index};
use crate::pack_files::{PackFiles, Written, failed};
use crate::stage::Stage;

/// The chunks of old packs on their way into new ones.
pub(crate) struct Joining {
    store: Store,
    handle: Handle,
    files: PackFiles,
    joined: HashSet<ChunkId>,
}

impl Joining {
    /// Begins. `handle` is the runtime of the store; the caller must not be one of its tasks.
    pub(crate) fn new(store: Store, handle: Handle, level: i32, written: Written) -> Self {
        Self {
            files: PackFiles::new(store.clone(), handle.clone(), level, written, Stage::Repacked),
            store,
            handle,
            joined: HashSet::new(),
        }
    }

    /// Joins what is needed of these packs, and compares it with what is stored then. Returns the new packs, which are not recorded yet.
    ///
    /// # Errors
    /// If the store fails, or a pack is damaged.
    pub(crate) fn run(mut self, candidates: &[Candidate]) -> Result<Vec<NewPack>, DedupError> {
        for candidate in candidates {
            self.add(candidate)?;
        }
        let packs = self.files.finish()?;
        compare(&self.store, &self.handle, &packs, candidates)?;
        Ok(packs)
    }

    fn add(&mut self, candidate: &Candidate) -> Result<(), DedupError> {
        let object = PackObject::from(&candidate.pack);
        let mut frame: Option<(u32, Vec<u8>)> = None;
        // Chunks of a frame follow each other, and stay next to each other.
        for (id, place) in candidate.index.chunks() {
            if !candidate.needed.contains(&id) || !self.joined.insert(id) {
                continue;
            }
            let plain = match frame.take() {
                Some((number, plain)) if number == place.frame_number => plain,
                _ => self.frame(&object, candidate, place.frame_number)?,
            };
            let chunk = chunk(&object, &plain, place.within, id)?;
            self.files.add(id, chunk, &Hint::default())?;
            frame = Some((place.frame_number, plain));
        }
        Ok(())
    }

    fn frame(&self, object: &PackObject, candidate: &Candidate, number: u32) -> Result<Vec<u8>, DedupError> {
        decoded(&self.store, &self.handle, object, &candidate.index, number)
    }
}

/// Reads new packs as they are stored. Each chunk that is needed must be there, with the bytes that its id is the SHA-256 of. That is enough: the
/// recipes stay as they are, each was proven with the same chunks, and the id says all of a chunk's bytes.
fn compare(
    store: &Store,
    handle: &Handle,
    packs: &[NewPack],
    candidates: &[Candidate],
) -> Result<(), DedupError> {
    let mut found = HashSet::new();
    for pack in packs {
        let object = PackObject {
            object: pack.draft.object.clone(),
            size: pack.draft.size,
            key: None,
        };
        let index = handle.block_on(read_index(store, &object))?;
        let mut frame = (u32::MAX, Vec::new());
        for (id, place) in index.chunks() {
            if frame.0 != place.frame_number {
                let plain = decoded(store, handle, &object, &index, place.frame_number)?;
                frame = (place.frame_number, plain);
            }
            chunk(&object, &frame.1, place.within, id)?;
            found.insert(id);
        }
    }
    let mut needed = candidates.iter().flat_map(|candidate| &candidate.needed);
    match needed.find(|id| !found.contains(id)) {
        Some(id) => Err(failed(std::io::Error::other(format!("the chunk {id} is not in it"))).into()),
        None => Ok(()),
    }
}

/// The plain bytes of a frame.
fn decoded(
    store: &Store,
    handle: &Handle,
    object: &PackObject,
    index: &xebec_recipe::PackIndex,
    number: u32,
) -> Result<Vec<u8>, DedupError> {
    let damaged = |why: String| damaged(object, why);
    let range = index
        .frame(number)
        .ok_or_else(|| damaged(format!("it has no frame {number}")))?;
    let compressed = handle.block_on(read(store, &object.object, range));
    let compressed = compressed.map_err(|error| error.or_damage(damaged))?;
    index
        .decode(number, &compressed)
        .map_err(|error| damaged(error.to_string()))
}

/// The bytes of a chunk in its frame, which were compared with its id.
fn chunk<'a>(
    object: &PackObject,
    plain: &'a [u8],
    within: std::ops::Range<usize>,
    id: ChunkId,
) -> Result<&'a [u8], DedupError> {
    let bytes = plain.get(within).filter(|bytes| ChunkId::of(bytes) == id);
    bytes.ok_or_else(|| damaged(object, format!("the chunk {id} has other bytes")))
}

fn damaged(pack: &PackObject, why: String) -> DedupError {
    DedupError::Pack {
        pack: pack.clone(),
        why,
    }
}
