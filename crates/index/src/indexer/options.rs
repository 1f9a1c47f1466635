//! The options of the indexer, and its result.

use std::io;

use xebec_format::layer::LayerIndex;

use super::laziness::Laziness;
use crate::tar::TarLimits;

/// Distance of access points if nothing else is said: 1 MiB of plain data (see the design, "spans").
pub const SPACING: u64 = 1 << 20;

/// Closest spacing of access points: twice the history, so that only one history is watched at a time.
pub const MIN_SPACING: u64 = 64 << 10;

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

/// The result of one pass over a layer.
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
    /// Takes `bytes` at `data_offset`; offsets ascend. Bytes that are never written are zero.
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
