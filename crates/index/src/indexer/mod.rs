//! One streaming pass over a layer blob gives everything that an index holds.
//!
//! Three threads share the work, because decoding and hashing cost about the same: the caller's thread reads and
//! decodes (`scan`), a second hashes the blob and the plain stream and compresses windows (`streams`), a third
//! takes the tar apart and hashes spans and files (`layout`, `spans`). Chunks of plain bytes are shared, not
//! copied, and bounded channels keep them few.
//!
//! Promises: the same blob gives the same bytes, however it is read and whatever the threads do (window and frame
//! are compressed by the zstd release that the lock file names). Memory is bounded: buffers of a few MiB, the tree
//! (see [`TarLimits`]), the compressed frame ([`IndexOptions::max_frame`]) and the compressed windows, at most
//! 32 KiB for each [`IndexOptions::spacing`] of plain bytes and about a third of that for usual layers.

mod assemble;
mod layout;
mod laziness;
mod scan;
mod spans;
mod streams;

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;

use xebec_format::layer::{Codec, LayerIndex};

use crate::gzip::GzipError;
use crate::source::Source;
use crate::tar::{TarError, TarLimits};

pub use laziness::Laziness;

use layout::LayoutThread;
use scan::Scan;
use streams::StreamsThread;

/// Distance of access points if nothing else is said: 1 MiB of plain data (see the design, "spans").
pub const SPACING: u64 = 1 << 20;

/// Closest spacing of access points: twice the history, so that only one history is watched at a time.
pub const MIN_SPACING: u64 = 64 << 10;

/// A span with more plain bytes than this cannot be fetched while a reader waits: at 100 MB/s that would be more
/// than 0.1 s for a page. Such stretches are cut into [parts](crate::decode::PART_SOURCE), which nothing can decode
/// alone, and the layer is called [not lazy](Laziness::NotLazy).
pub const MAX_LAZY_PLAIN: u64 = 16 << 20;

/// Chunks on their way between threads: enough that a short stall of one stops no other, few enough for memory.
const CHUNKS_UNDERWAY: usize = 16;

/// How to index.
#[derive(Clone, Copy, Debug)]
pub struct IndexOptions {
    /// Plain bytes between two access points, at least [`MIN_SPACING`].
    pub spacing: u64,
    /// Limits on the tar archive.
    pub tar: TarLimits,
    /// Most plain bytes of a layer: a bomb must end somewhere. 256 GiB by default.
    pub max_plain: u64,
    /// Most bytes of the compressed frame, which is held in memory. 1 GiB by default.
    pub max_frame: u64,
    /// Most bytes of holes that are hashed for [content digests](IndexedLayer::contents) in one layer; a file
    /// whose holes go beyond has an all-zero digest, which means "unknown". 1 GiB by default: under a second.
    pub max_hashed_holes: u64,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            spacing: SPACING,
            tar: TarLimits::default(),
            max_plain: 256 << 30,
            max_frame: 1 << 30,
            max_hashed_holes: 1 << 30,
        }
    }
}

/// What one pass over a layer gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedLayer {
    /// The index; its sections describe the three fields below.
    pub index: LayerIndex,
    /// Compressed windows, one zstd frame each, in order of spans. Empty except for gzip.
    pub windows: Vec<u8>,
    /// The frame, compressed with zstd.
    pub frame: Vec<u8>,
    /// SHA-256 of each file's contents with size over 0, in order of entries; all zeros for "unknown".
    pub contents: Vec<u8>,
    /// Whether the layer can be read lazily.
    pub laziness: Laziness,
}

/// Receives the contents of the layer's data space while it is indexed.
pub trait DataSink: Send {
    /// Takes `bytes` at `data_offset`; offsets ascend. What is never written is zero.
    ///
    /// # Errors
    /// An error ends the indexing.
    fn write(&mut self, data_offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Says that the tree, the tables and the sections take so many more bytes of memory.
    ///
    /// # Errors
    /// An error ends the indexing: that is more than may be held.
    fn hold(&mut self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }
}

/// Why a layer cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The blob could not be read.
    #[error("reading the layer: {0}")]
    Read(io::Error),
    /// The blob is not the gzip that its first bytes promise.
    #[error("the layer is bad gzip: {0}")]
    Gzip(GzipError),
    /// The blob is not the zstd that its first bytes promise.
    #[error("the layer is bad zstd, near byte {at}: {error}")]
    Zstd {
        /// Offset in the blob.
        at: u64,
        /// What zstd says.
        error: io::Error,
    },
    /// What the layer decodes to is not a usable tar archive.
    #[error("the layer's tar archive: {0}")]
    Tar(TarError),
    /// The [`DataSink`] failed.
    #[error("keeping the layer's contents: {0}")]
    Sink(io::Error),
    /// The layer decodes to more than [`IndexOptions::max_plain`].
    #[error("the layer decodes to more than {limit} bytes; it may be a decompression bomb")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The compressed frame is larger than [`IndexOptions::max_frame`].
    #[error("what the layer's archive holds besides file contents is larger than {limit} bytes compressed")]
    FrameTooLarge {
        /// The limit.
        limit: u64,
    },
    /// Compressing a window or the frame failed.
    #[error("compressing the index: {0}")]
    Compress(io::Error),
    /// A thread of the indexer could not be started, or ended early.
    #[error("a thread of the indexer failed: {0}")]
    Thread(String),
}

impl From<GzipError> for IndexError {
    fn from(error: GzipError) -> Self {
        match error {
            GzipError::Read(error) => Self::Read(error),
            error => Self::Gzip(error),
        }
    }
}

impl From<TarError> for IndexError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Sink(error) => Self::Sink(error),
            error => Self::Tar(error),
        }
    }
}

/// Indexes the layer that `blob` yields, and hands its contents to `data` as they come (index on first use).
///
/// The codec is told by the first bytes. The index says what the blob is (digest, size, diff ID); whether that is
/// what was asked for, the caller checks.
///
/// # Errors
/// See [`IndexError`]. What was written to `data` before an error, or before the caller has checked the digests,
/// must not be trusted.
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

/// What kind of blob starts with these bytes (at least four, unless the blob is shorter).
fn detect(first: &[u8]) -> Codec {
    match first {
        [0x1f, 0x8b, ..] => Codec::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Codec::Zstd,
        // A skippable frame (RFC 8878, 3.1.2), which only zstd streams start with.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Codec::Zstd,
        _ => Codec::Tar,
    }
}

/// Bytes of the blob that tell its codec.
const DETECT: usize = 4;

fn open<R: Read>(blob: R) -> Result<(Source<R>, Codec), IndexError> {
    let mut source = Source::new(blob);
    source.fill(DETECT).map_err(IndexError::Read)?;
    let codec = detect(source.available());
    Ok((source, codec))
}
