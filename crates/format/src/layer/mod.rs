//! One layer, described: its **tree** (what is where in the data space), its **pieces** (where the layer's plain
//! stream goes in the data space) and its **spans** (how to get, decode and verify ranges of it).
//!
//! The **data space** of a layer holds the contents of its regular files, each starting at a page boundary, in
//! the order in which the layer carries them; bytes that no piece covers are zero. The **plain stream** is what
//! the layer blob decodes to: the tar file. For blobs with their own table of contents (eStargz, zstd:chunked)
//! the tar framing is never needed, and the plain stream of a span is just the chunk.

mod check;
mod decode;
mod encode;
pub mod limits;
mod span;
mod table;
mod tree;
mod weight;

pub use check::InvalidIndex;
pub use decode::DecodeError;
pub use span::{Codec, Piece, Section, Span, Window};
pub use table::SpanTable;
pub use tree::{Entry, EntryKind, Extent, Metadata, Xattr};
pub use weight::{MERGED_ENTRY, Room};

use crate::digest::Digest;

/// Everything about one layer but its contents.
///
/// Two indexings of the same blob give the same value, and the same bytes when encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerIndex {
    /// Digest of the layer blob as the registry stores it (compressed).
    pub layer: Digest,
    /// Size of the layer blob in bytes.
    pub layer_size: u64,
    /// Digest of the whole plain stream (the OCI "diff ID").
    /// `None` for an index taken from a blob's own table of contents, which does not carry it.
    pub diff_id: Option<Digest>,
    /// How the blob's bytes become plain bytes.
    pub codec: Codec,
    /// Length of the plain stream in bytes (0 for an index taken from a table of contents).
    pub plain_size: u64,
    /// Length of the data space in bytes; a multiple of the page size.
    pub data_size: u64,
    /// The layer's entries in the order of the tar file, each path as often as it occurs there: what a repeated
    /// path, a whiteout or a replaced directory means depends on the order, so the merge replays it.
    pub entries: Vec<Entry>,
    /// The plain stream's file contents in order. Empty for an index taken from a table of contents.
    pub pieces: Vec<Piece>,
    /// The spans, ascending in `data`, not overlapping, covering every byte of every extent.
    pub spans: Vec<Span>,
    /// Where access-point windows are (gzip only); each [`Window`] is a range of it.
    pub windows: Option<Section>,
    /// The frame: the plain stream's bytes that are in no piece, in order, compressed with zstd.
    pub frame: Option<Section>,
    /// Digests of whole file contents: 32 raw bytes for each entry that is a file of size > 0, in order of entries.
    pub contents: Option<Section>,
}
