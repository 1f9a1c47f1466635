//! Arbitrary annotations of a layer: refused, passed over, or a table whose `wanted` range is not empty, is inside the
//! blob and is not longer than a table may be. The input's lines are the annotations' values.
#![no_main]

use std::collections::BTreeMap;

use xebec_format::digest::Digest;
use xebec_index::toc::{Blob, MAX_TOC, TableOfContents, estargz, zstd_chunked};

const KEYS: [&str; 5] = [
    estargz::DIGEST_ANNOTATION,
    zstd_chunked::CHECKSUM_ANNOTATION,
    zstd_chunked::POSITION_ANNOTATION,
    zstd_chunked::STARGZ_CHECKSUM_ANNOTATION,
    zstd_chunked::STARGZ_POSITION_ANNOTATION,
];

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let size = lines.next().and_then(|line| line.parse().ok()).unwrap_or(1 << 20);
    let digest = Digest::of(b"layer");
    let values = KEYS.iter().zip(lines).filter(|(_, line)| !line.is_empty());
    let annotations: BTreeMap<String, String> = values
        .map(|(key, line)| ((*key).to_owned(), line.replace("DIGEST", &digest.to_string())))
        .collect();
    if let Ok(Some(table)) = TableOfContents::detect(Blob { digest, size }, &annotations) {
        let wanted = table.wanted();
        assert!(
            wanted.start < wanted.end && wanted.end <= size,
            "{wanted:?} of {size}"
        );
        assert!(wanted.end - wanted.start <= MAX_TOC);
    }
});
