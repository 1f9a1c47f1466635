//! Puts chunks that the store lacks into packs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use xebec_recipe::{ChunkId, Hint, Options, PackWriter};
use xebec_store::{Algorithm, Digest, Draft, NewPack, PackKey, Store, StoreError};

use crate::stage::{Stage, reached};

/// Plain bytes of a pack, about: so many frames stay in memory while a blob is restored from one pack after the other.
pub(crate) const PACK: u64 = 32 << 20;
/// Chunks that are looked up together, and their bytes.
const TOGETHER: usize = 1024;
const TOGETHER_BYTES: u64 = 8 << 20;

/// The chunks of one blob on their way into packs.
pub(crate) struct Packing {
    store: Store,
    handle: Handle,
    options: Options,
    writer: PackWriter,
    /// Chunks that were not looked up yet.
    pending: Vec<(ChunkId, Vec<u8>, Hint)>,
    pending_bytes: u64,
    /// The ids of those.
    is_pending: HashSet<ChunkId>,
    /// Chunks that were looked up, and the packs of others that have them.
    known: HashMap<ChunkId, Option<PackKey>>,
    packs: Vec<NewPack>,
    written: Written,
}

/// The drafts that were stored for a blob: if it is not taken apart in the end, they go.
pub(crate) type Written = Arc<Mutex<Vec<Draft>>>;

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
        let options = Options {
            level,
            ..Options::default()
        };
        Self {
            store,
            handle,
            options,
            writer: PackWriter::new(options),
            pending: Vec::new(),
            pending_bytes: 0,
            is_pending: HashSet::new(),
            known: HashMap::new(),
            packs: Vec::new(),
            written,
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
                self.writer.add(id, &bytes, &hint).map_err(failed)?;
            }
            self.known.insert(id, found);
            if self.writer.plain_bytes() >= PACK {
                self.put()?;
            }
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), StoreError> {
        let writer = std::mem::replace(&mut self.writer, PackWriter::new(self.options));
        if writer.plain_bytes() == 0 {
            return Ok(());
        }
        let plain = writer.plain_bytes();
        let pack = writer.finish().map_err(failed)?;
        let chunks = pack.ids.iter().map(|id| id.0).collect();
        let checksum = Digest::of(Algorithm::Sha256, &pack.bytes);
        let draft = self
            .handle
            .block_on(self.store.put_draft(vec![Bytes::from(pack.bytes)]))?;
        self.written.lock().push(draft.clone());
        reached(Stage::PackPut);
        self.packs.push(NewPack {
            draft,
            checksum,
            chunks,
            plain,
        });
        Ok(())
    }

    /// All chunks are there.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn finish(mut self) -> Result<Packed, StoreError> {
        self.look_up()?;
        self.put()?;
        let mut uses: Vec<PackKey> = self.known.into_values().flatten().collect();
        uses.sort_unstable();
        uses.dedup();
        Ok(Packed {
            packs: self.packs,
            uses,
        })
    }
}

pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::System {
        doing: "make a pack",
        source: std::io::Error::other(error),
    }
}

/// Drops what was stored for a blob that is not taken apart in the end.
pub(crate) async fn drop_drafts(store: &Store, drafts: impl IntoIterator<Item = Draft>) {
    for draft in drafts {
        if let Err(error) = store.drop_draft(&draft).await {
            tracing::debug!("a draft stays until a collection takes it: {error}");
        }
    }
}
