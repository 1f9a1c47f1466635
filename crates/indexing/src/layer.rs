//! One layer's index, made from its blob by threads that leave nine tenths of a processor to others that want it.

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use xebec_artifact::made::MadeIndex;
use xebec_index::indexer::{IndexError, IndexOptions, index_layer};
use xebec_kernel::process::give_way;
use xebec_store::{Blob, BlobReader, Store, StoreError};

use crate::image::Layer;

/// The priority of a thread that indexes, by nice(2): where others want all of a processor it gets a tenth of it. At the lowest one, 19,
/// it got a seventieth, and on a busy host an image that was pushed had no index after two minutes.
pub(crate) const NICE: i32 = 10;
/// Most bytes of a compressed frame: it is held in memory, beside what serves clients.
const MAX_FRAME: u64 = 256 << 20;

/// Why a layer has no index.
#[derive(Debug)]
pub(crate) enum LayerError {
    /// It cannot have one, in whichever image.
    Never(String),
    /// It cannot have one in this image, which says something wrong of it.
    Here(String),
    /// Another time it may.
    Now(String),
}

impl From<StoreError> for LayerError {
    fn from(error: StoreError) -> Self {
        Self::Now(error.to_string())
    }
}

/// Reads a layer's blob from its beginning to its end.
pub(crate) async fn index(store: &Store, blob: &Blob, layer: Layer) -> Result<MadeIndex, LayerError> {
    let reader = Blocking {
        stream: store.read(blob, 0..blob.size).await?,
        part: Bytes::new(),
        handle: Handle::current(),
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = move || {
        if let Err(error) = give_way(NICE) {
            tracing::debug!("indexing goes on with the priority of everything else: {error}");
        }
        let _ = tell.send(made(reader, layer));
    };
    let thread = std::thread::Builder::new()
        .name("index-layer".to_owned())
        .spawn(work);
    thread.map_err(|error| LayerError::Now(format!("start a thread: {error}")))?;
    told.await
        .unwrap_or_else(|_| Err(LayerError::Never("the indexer failed at this layer".to_owned())))
}

fn made(reader: Blocking, layer: Layer) -> Result<MadeIndex, LayerError> {
    let options = IndexOptions {
        max_frame: MAX_FRAME,
        ..IndexOptions::default()
    };
    let indexed = index_layer(reader, &options, None).map_err(|error| match error {
        IndexError::Read(_) | IndexError::Thread(_) => LayerError::Now(error.to_string()),
        other => LayerError::Never(other.to_string()),
    })?;
    MadeIndex::new(indexed, layer.digest, layer.diff_id).map_err(|error| LayerError::Here(error.to_string()))
}

/// A blob as threads read it.
struct Blocking {
    stream: BlobReader,
    part: Bytes,
    handle: Handle,
}

impl Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.handle.block_on(self.stream.next()) {
                Some(part) => self.part = part?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
