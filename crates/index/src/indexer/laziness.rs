//! Whether a layer can be read piece by piece, and what its owner can do if not.

use xebec_format::layer::{Codec, LayerIndex, Span};

use crate::decode::is_part;

/// A span with more plain bytes than this cannot be fetched while a reader waits: at 100 MB/s that would be more
/// than 0.1 s for a page. Such stretches are cut into [parts](crate::decode::PART_SOURCE), which nothing can decode
/// alone, and the layer is called [not lazy](Laziness::NotLazy).
pub const MAX_LAZY_PLAIN: u64 = 16 << 20;

/// Whether a layer's contents can be fetched piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Laziness {
    /// Every span is small.
    Lazy,
    /// Some span is too large to fetch while a reader waits: the layer must be fetched whole.
    NotLazy {
        /// Why, and what to do, in words for the user.
        reason: String,
    },
}

impl Laziness {
    /// Whether the spans of `index` allow lazy reading, whatever tool made the index.
    pub fn of(index: &LayerIndex) -> Self {
        // The indexer makes no larger ones, but others may: each would be held in memory for a reader of one page.
        let is_huge = |span: &Span| {
            index.codec.has_plain_stream() && span.plain.end.saturating_sub(span.plain.start) > MAX_LAZY_PLAIN
        };
        let too_large = |span: &&Span| is_part(index.codec, span) || is_huge(span);
        let mut largest = 0;
        let mut parts = index.spans.iter().filter(|span| too_large(span)).peekable();
        while let Some(first) = parts.next() {
            let mut end = first.plain.end;
            while let Some(next) = parts.next_if(|next| next.source == first.source) {
                end = next.plain.end;
            }
            largest = largest.max(end.saturating_sub(first.plain.start)).max(1);
        }
        match largest {
            0 => Self::Lazy,
            bytes => Self::NotLazy {
                reason: reason(index.codec, bytes),
            },
        }
    }
}

fn reason(codec: Codec, bytes: u64) -> String {
    let mib = bytes >> 20;
    if bytes <= MAX_LAZY_PLAIN {
        return "its archive spreads too much data over one span (sparse files, or much that is no file content); \
                build the layer without that"
            .into();
    }
    match codec {
        Codec::Zstd | Codec::ZstdChunked => format!(
            "a single zstd frame holds {mib} MiB, and a frame can only be decoded from its start; recompress the \
             layer as zstd:chunked or with many frames, or as gzip"
        ),
        Codec::Tar => format!(
            "{mib} MiB of its archive must be read for a single page; build the layer without that many entries between files"
        ),
        _ => format!(
            "a single deflate block holds {mib} MiB, and decoding can only start where a block starts; recompress \
             the layer with another gzip encoder"
        ),
    }
}
