//! The span table: the part of a layer index that filling needs, readable without the tree.

use std::ops::Range;

use super::{Codec, LayerIndex, Piece, Section, Span};
use crate::digest::Digest;

/// How to get, decode, place and verify every range of a layer's data space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanTable {
    /// How the blob's bytes become plain bytes.
    pub codec: Codec,
    /// Digest of the layer blob.
    pub layer: Digest,
    /// Size of the layer blob in bytes.
    pub layer_size: u64,
    /// Length of the plain stream in bytes (0 for an index taken from a table of contents).
    pub plain_size: u64,
    /// Length of the data space in bytes.
    pub data_size: u64,
    /// The plain stream's file contents in order; empty for an index taken from a table of contents.
    pub pieces: Vec<Piece>,
    /// The spans, ascending in `data`.
    pub spans: Vec<Span>,
    /// Where access-point windows are (gzip only).
    pub windows: Option<Section>,
}

impl SpanTable {
    /// The numbers of the spans that have bytes in `data`, a range of the data space.
    pub fn spans_of(&self, data: Range<u64>) -> Range<usize> {
        let first = self.spans.partition_point(|span| span.data.end <= data.start);
        let after = self.spans.partition_point(|span| span.data.start < data.end);
        first..after.max(first)
    }

    /// The pieces that have bytes in `plain`, a range of the plain stream. The first and the last may reach out of it.
    pub fn pieces_of(&self, plain: Range<u64>) -> &[Piece] {
        let first = self
            .pieces
            .partition_point(|piece| piece.plain_offset + piece.length <= plain.start);
        let after = self
            .pieces
            .partition_point(|piece| piece.plain_offset < plain.end);
        self.pieces.get(first..after).unwrap_or_default()
    }
}

impl LayerIndex {
    /// A copy of the span table, without the tree.
    pub fn span_table(&self) -> SpanTable {
        SpanTable {
            codec: self.codec,
            layer: self.layer,
            layer_size: self.layer_size,
            plain_size: self.plain_size,
            data_size: self.data_size,
            pieces: self.pieces.clone(),
            spans: self.spans.clone(),
            windows: self.windows.clone(),
        }
    }
}
