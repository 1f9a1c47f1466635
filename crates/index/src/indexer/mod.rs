//! One streaming pass over a layer blob gives everything that an index holds.
//!
//! Three threads share the work, because decoding and hashing cost about the same. The caller's thread reads and
//! decodes (`scan`). A second one hashes the blob and the plain stream and compresses windows (`streams`). A third one
//! takes the tar apart and hashes spans and files (`layout`, `spans`). Chunks of plain bytes are shared, not
//! copied, and bounded channels keep them few.
//!
//! Promises: the same blob gives the same bytes, however it is read and whatever the threads do (window and frame
//! are compressed by the zstd release that the lock file names). Memory is bounded: buffers of a few MiB, the tree
//! (see [`crate::tar::TarLimits`]), the compressed frame ([`IndexOptions::max_frame`]) and the compressed windows, at most
//! 32 KiB for each [`IndexOptions::spacing`] of plain bytes and about a third of that for usual layers.

mod assemble;
mod detect;
mod error;
mod layout;
mod laziness;
mod options;
mod scan;
mod spans;
mod streams;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;

pub use error::IndexError;
pub use laziness::{Laziness, MAX_LAZY_PLAIN};
pub use options::{DataSink, IndexOptions, IndexedLayer, MIN_SPACING, SPACING};

use layout::LayoutThread;
use scan::Scan;
use streams::StreamsThread;

/// Chunks on their way between threads: enough that a short stall of one stops no other, few enough for memory.
const CHUNKS_UNDERWAY: usize = 16;

/// Indexes the layer that `blob` yields, and hands its contents to `data` as they come (index on first use).
///
/// The first bytes tell the codec. The index gives the blob's digest, size and diff ID; the caller compares them with
/// those that it asked for.
///
/// # Errors
/// See [`IndexError`]. Do not trust bytes that were written to `data` before an error, or before you have checked
/// the digests.
pub fn index_layer(
    blob: impl Read,
    options: &IndexOptions,
    data: Option<&mut dyn DataSink>,
) -> Result<IndexedLayer, IndexError> {
    let (to_streams, from_scan) = sync_channel(CHUNKS_UNDERWAY);
    let (to_layout, plain) = sync_channel(CHUNKS_UNDERWAY);
    let windows = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let streams = StreamsThread::new(windows.clone());
        let streams = std::thread::Builder::new()
            .name("index-streams".into())
            .spawn_scoped(scope, move || streams.run(&from_scan))
            .map_err(|error| IndexError::Thread(error.to_string()))?;
        let layout = LayoutThread::new(*options, data, windows);
        let layout = std::thread::Builder::new()
            .name("index-layout".into())
            .spawn_scoped(scope, move || layout.run(&plain))
            .map_err(|error| IndexError::Thread(error.to_string()))?;

        let scanned = Scan::new(blob, options, to_streams, to_layout).run();
        // Joining cannot hang: the scan is over, and with it both channels are closed.
        let streams = streams
            .join()
            .map_err(|_| IndexError::Thread("index-streams panicked".into()))?;
        let layout = layout
            .join()
            .map_err(|_| IndexError::Thread("index-layout panicked".into()))?;
        // A scan that was cut short by a thread's error must not hide that error.
        let (layout, streams) = (layout?, streams?);
        assemble::assemble(scanned?, layout, streams)
    })
}
