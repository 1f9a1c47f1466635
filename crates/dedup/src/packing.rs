//! Puts chunks that the store lacks into packs.

use std::collections::{HashMap, HashSet};

use tokio::runtime::Handle;
use xebec_recipe::{ChunkId, Hint};
use xebec_store::{NewPack, PackKey, Store, StoreError};

use crate::pack_files::{PackFiles, Written};
use crate::stage::Stage;

/// Chunks that are looked up together, and their bytes.
const TOGETHER: usize = 1024;
const TOGETHER_BYTES: u64 = 8 << 20;

/// The chunks of one blob on their way into packs.
pub(crate) struct Packing {
    store: Store,
    handle: Handle,
    files: PackFiles,
    /// Chunks that were not looked up yet.
    pending: Vec<(ChunkId, Vec<u8>, Hint)>,
    pending_bytes: u64,
    /// The ids of those.
    is_pending: HashSet<ChunkId>,
    /// Chunks that were looked up, and the packs of others that have them.
    known: HashMap<ChunkId, Option<PackKey>>,
}

/// The packs of a blob.
pub(crate) struct Packed {
    /// New ones, which are stored and not recorded yet.
    pub(crate) packs: Vec<NewPack>,
    /// Those of others that have some of the chunks.
    pub(crate) uses: Vec<PackKey>,
}

impl Packing {
    /// Begins. `handle` is the runtime of the store; the caller must not be one of its tasks.
    pub(crate) fn new(store: Store, handle: Handle, level: i32, written: Written) -> Self {
        Self {
            files: PackFiles::new(store.clone(), handle.clone(), level, written, Stage::PackPut),
            store,
            handle,
            pending: Vec::new(),
            pending_bytes: 0,
            is_pending: HashSet::new(),
            known: HashMap::new(),
        }
    }

    /// Takes a chunk.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn add(&mut self, id: ChunkId, bytes: &[u8], hint: &Hint) -> Result<(), StoreError> {
        if self.known.contains_key(&id) || !self.is_pending.insert(id) {
            return Ok(());
        }
        self.pending.push((id, bytes.to_vec(), hint.clone()));
        self.pending_bytes += bytes.len() as u64;
        if self.pending.len() >= TOGETHER || self.pending_bytes >= TOGETHER_BYTES {
            self.look_up()?;
        }
        Ok(())
    }

    /// Looks up which of the pending chunks the store has, and puts the others into a pack.
    fn look_up(&mut self) -> Result<(), StoreError> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        self.is_pending.clear();
        let ids: Vec<[u8; 32]> = pending.iter().map(|(id, ..)| id.0).collect();
        let found = self.handle.block_on(self.store.chunks_here(&ids))?;
        for ((id, bytes, hint), found) in pending.into_iter().zip(found) {
            if found.is_none() {
                self.files.add(id, &bytes, &hint)?;
            }
            self.known.insert(id, found);
        }
        Ok(())
    }

    /// All chunks are there.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn finish(mut self) -> Result<Packed, StoreError> {
        self.look_up()?;
        let mut uses: Vec<PackKey> = self.known.into_values().flatten().collect();
        uses.sort_unstable();
        uses.dedup();
        Ok(Packed {
            packs: self.files.finish()?,
            uses,
        })
    }
}
