//! Puts chunks into packs, and packs into the store as drafts: those of a blob that is taken apart, and those that take the place of others.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use xebec_recipe::{ChunkId, Hint, MOST_FRAME, Options, PackWriter};
use xebec_store::{Algorithm, Digest, Draft, LARGEST_PIECE, NewPack, Store, StoreError};

use crate::stage::{Stage, reached};

/// Plain bytes of a pack, about: so many frames stay in memory while a blob is restored from one pack after the other.
pub(crate) const PACK: u64 = 32 << 20;

// A pack of this size is stored whole, whatever its last chunk adds.
const _: () = assert!(PACK + MOST_FRAME as u64 <= LARGEST_PIECE);

/// The drafts that were stored for some work: if nothing comes of it, they go.
pub(crate) type Written = Arc<Mutex<Vec<Draft>>>;

/// Packs that are being written.
pub(crate) struct PackFiles {
    store: Store,
    handle: Handle,
    options: Options,
    writer: PackWriter,
    packs: Vec<NewPack>,
    written: Written,
    /// Reached with each pack that is stored.
    stage: Stage,
}

impl PackFiles {
    /// Begins. `handle` is the runtime of the store; the caller must not be one of its tasks.
    pub(crate) fn new(store: Store, handle: Handle, level: i32, written: Written, stage: Stage) -> Self {
        let options = Options {
            level,
            ..Options::default()
        };
        Self {
            store,
            handle,
            options,
            writer: PackWriter::new(options),
            packs: Vec::new(),
            written,
            stage,
        }
    }

    /// Takes a chunk that no pack has. A pack that is full is stored.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn add(&mut self, id: ChunkId, bytes: &[u8], hint: &Hint) -> Result<(), StoreError> {
        self.writer.add(id, bytes, hint).map_err(failed)?;
        match self.writer.plain_bytes() >= PACK {
            true => self.put(),
            false => Ok(()),
        }
    }

    fn put(&mut self) -> Result<(), StoreError> {
        let writer = std::mem::replace(&mut self.writer, PackWriter::new(self.options));
        let plain = writer.plain_bytes();
        if plain == 0 {
            return Ok(());
        }
        let pack = writer.finish().map_err(failed)?;
        let chunks = pack.ids.iter().map(|id| id.0).collect();
        let checksum = Digest::of(Algorithm::Sha256, &pack.bytes);
        let draft = self
            .handle
            .block_on(self.store.put_draft(vec![Bytes::from(pack.bytes)]))?;
        self.written.lock().push(draft.clone());
        reached(self.stage);
        self.packs.push(NewPack {
            draft,
            checksum,
            chunks,
            plain,
        });
        Ok(())
    }

    /// All chunks are there: returns the packs, which are stored and not recorded yet.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn finish(mut self) -> Result<Vec<NewPack>, StoreError> {
        self.put()?;
        Ok(self.packs)
    }
}

/// A pack cannot be made for a reason that is not the store's.
pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::System {
        doing: "make a pack",
        source: std::io::Error::other(error),
    }
}

/// Drops what was stored for work of which nothing has come.
pub(crate) async fn drop_drafts(store: &Store, drafts: impl IntoIterator<Item = Draft>) {
    for draft in drafts {
        if let Err(error) = store.drop_draft(&draft).await {
            tracing::debug!("a draft stays until a collection takes it: {error}");
        }
    }
}
