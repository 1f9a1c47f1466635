//! Spans: the unit of fetching, decoding and verifying.

use std::ops::Range;

use crate::digest::Digest;

/// How a layer blob becomes its plain stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// An uncompressed tar file: the blob is the plain stream.
    Tar,
    /// gzip, of one or many members. A span starts at any bit where a deflate block starts, or at a member.
    Gzip,
    /// zstd of several frames; a span is one or more whole frames.
    Zstd,
    /// eStargz: every chunk is a gzip member of its own, listed in the blob's table of contents.
    Estargz,
    /// zstd:chunked: every chunk is a zstd frame of its own, listed in the blob's table of contents.
    ZstdChunked,
}

impl Codec {
    /// Whether spans are ranges of one plain stream (a tar file); `false` where a table of contents lists chunks, so
    /// that each span's plain bytes stand alone and are the bytes of its `data`.
    pub const fn has_plain_stream(self) -> bool {
        matches!(self, Codec::Tar | Codec::Gzip | Codec::Zstd)
    }
}

/// A run of file contents in the plain stream and its place in the data space.
///
/// Pieces ascend in both. Several pieces may share a page only when they belong to one sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the plain stream.
    pub plain_offset: u64,
    /// Offset in the data space (for sparse files not always at a page boundary).
    pub data_offset: u64,
    /// Length in bytes, over 0.
    pub length: u64,
}

/// A range of the data space and how to get it.
///
/// Its boundaries need not be page-aligned: a page at a boundary is present when both its spans have been
/// written. Decoding starts at `bit_offset` of the first source byte, with `window` as history if there is one,
/// and yields the plain bytes `plain`. The pieces inside `plain` are then placed in the data space. For indexes
/// taken from a table of contents decoding yields a chunk, and its bytes `plain` *are* the bytes of `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The bytes of the layer blob that are needed.
    pub source: Range<u64>,
    /// Bits of the first source byte that belong to what comes before (0 to 7; gzip only).
    pub bit_offset: u8,
    /// The range of the plain stream that decoding yields. For indexes taken from a table of contents it is the data's part
    /// of the decoded chunk: several small files may share a chunk (eStargz's `innerOffset`). The bytes before and behind
    /// belong to others or to the tar framing.
    pub plain: Range<u64>,
    /// The range of the data space that it gives: from the first to after the last byte of file contents in
    /// `plain`. Never empty: stretches of the plain stream without contents are in no span.
    pub data: Range<u64>,
    /// History that decoding needs; `None` where a member or frame starts.
    pub window: Option<Window>,
    /// SHA-256 of the bytes of `data`, zeros included where no piece lies.
    pub digest: Digest,
}

/// The history before an access point: a zstd frame in the windows section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Offset of the compressed window in the windows section.
    pub offset: u64,
    /// Its compressed length in bytes.
    pub length: u32,
    /// Digest of its compressed bytes.
    pub digest: Digest,
}

/// A section of an index that is stored as a blob of its own and fetched when needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Digest of the section's bytes.
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
}
