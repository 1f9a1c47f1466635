//! Layers that need no index of ours: they bring a table of contents of their own (eStargz, zstd:chunked).

use xebec_index::toc::{Blob, TableOfContents};
use xebec_oci::Descriptor;

/// Whether a layer brings a table of contents of its own that its manifest vouches for.
pub fn has_table_of_contents(descriptor: &Descriptor) -> bool {
    let blob = Blob {
        digest: descriptor.digest,
        size: descriptor.size,
    };
    TableOfContents::detect(blob, &descriptor.annotations).is_ok_and(|found| found.is_some())
}
