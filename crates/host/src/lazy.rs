//! Whether a layer can be lazy, and if not, why and what to do.

use xebec_format::layer::{Codec, LayerIndex};
use xebec_index::indexer::MAX_LAZY_PLAIN;
use xebec_index::toc::{Blob, TableOfContents};
use xebec_oci::Descriptor;

/// Why a layer cannot be lazy although it is indexed; `None` when it can.
pub fn why_not(index: &LayerIndex) -> Option<String> {
    let largest = index.spans.iter().map(|span| span.plain.end.saturating_sub(span.plain.start)).max()?;
    if largest <= MAX_LAZY_PLAIN {
        return None;
    }
    let what = match index.codec {
        Codec::Zstd | Codec::ZstdChunked => "zstd frame",
        Codec::Gzip | Codec::Estargz => "gzip block",
        Codec::Tar => "span",
    };
    Some(format!(
        "one {what} holds {largest} bytes and can only be read whole. Push the image compressed with gzip, or with \
         zstd:chunked (skopeo copy --dest-compress-format zstd:chunked)"
    ))
}

/// Whether a layer brings a table of contents of its own that its manifest vouches for.
pub fn has_table_of_contents(descriptor: &Descriptor) -> bool {
    let blob = Blob { digest: descriptor.digest, size: descriptor.size };
    TableOfContents::detect(blob, &descriptor.annotations).is_ok_and(|found| found.is_some())
}
