//! The end of an arbitrary eStargz blob: `wanted` stays inside the blob, at most two requests are made, and what comes is
//! an error or an index that passes `check`. The digest that the manifest would vouch for is taken from the error.
#![no_main]

use std::collections::BTreeMap;

use xebec_format::digest::Digest;
use xebec_index::toc::{Blob, Supplied, TableOfContents, TocError, estargz};

fn read(bytes: &[u8], digest: Digest) -> Result<(), TocError> {
    let blob = Blob {
        digest: Digest::of(b"layer"),
        size: bytes.len() as u64,
    };
    let annotations = BTreeMap::from([(estargz::DIGEST_ANNOTATION.to_owned(), digest.to_string())]);
    let Some(mut table) = TableOfContents::detect(blob, &annotations)? else {
        panic!("the annotation is there");
    };
    for _ in 0..2 {
        let wanted = table.wanted();
        assert!(wanted.start < wanted.end && wanted.end <= blob.size);
        match table.supply(&bytes[wanted.start as usize..wanted.end as usize])? {
            Supplied::More(more) => table = more,
            Supplied::Index(index) => {
                assert_eq!(index.check(), Ok(()));
                return Ok(());
            }
        }
    }
    panic!("more than two requests");
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(TocError::Digest { found, .. }) = read(bytes, Digest::of(b"")) {
        let _ = read(bytes, found);
    }
});
