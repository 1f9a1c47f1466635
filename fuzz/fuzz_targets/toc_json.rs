//! A table of contents with arbitrary JSON, its digests right, as zstd:chunked carries it: refused, or an index that
//! passes `check` and comes back from its encoding.
#![no_main]

use std::collections::BTreeMap;

use xebec_format::digest::Digest;
use xebec_fuzz::check_layer_index;
use xebec_index::toc::{Blob, Supplied, TableOfContents, zstd_chunked};

/// Where the manifest starts. Chunks may lie before it.
const OFFSET: u64 = 100_000;

libfuzzer_sys::fuzz_target!(|json: &[u8]| {
    let Ok(manifest) = zstd::bulk::compress(json, 1) else {
        return;
    };
    let position = format!("{OFFSET}:{}:{}:1", manifest.len(), json.len());
    let checksum = Digest::of(&manifest).to_string();
    let annotations = BTreeMap::from([
        (zstd_chunked::CHECKSUM_ANNOTATION.to_owned(), checksum),
        (zstd_chunked::POSITION_ANNOTATION.to_owned(), position),
    ]);
    let blob = Blob {
        digest: Digest::of(b"layer"),
        size: OFFSET + manifest.len() as u64 + 64,
    };
    let table = match TableOfContents::detect(blob, &annotations) {
        Ok(Some(table)) => table,
        other => panic!("{other:?} instead of a table"),
    };
    match table.supply(&manifest) {
        Ok(Supplied::Index(index)) => {
            assert_eq!(index.check(), Ok(()));
            check_layer_index(&index.encode());
        }
        Ok(Supplied::More(_)) => panic!("a zstd:chunked manifest is whole"),
        Err(_) => {}
    }
});
