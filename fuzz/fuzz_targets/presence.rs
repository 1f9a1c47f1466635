//! The bitmaps of a layer, `present` and `durable`, with anything in them: never more pages than there are, and nothing
//! is both there and missing.
#![no_main]

use std::sync::Arc;

use xebec_cache::boot::BootId;
use xebec_cache::disk::RealDisk;
use xebec_cache::presence::Presence;

const PAGES: u64 = 3000;

libfuzzer_sys::fuzz_target!(|files: (&[u8], &[u8])| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let written = std::fs::write(directory.path().join("present"), files.0)
        .and_then(|()| std::fs::write(directory.path().join("durable"), files.1));
    let boot = BootId(*b"0123456789abcdef");
    if written.is_err() {
        return;
    }
    for presence in [
        Presence::look(Arc::new(RealDisk), directory.path(), PAGES, boot),
        Presence::open(Arc::new(RealDisk), directory.path(), PAGES, boot),
    ] {
        let Ok(presence) = presence else { continue };
        let missing: u64 = presence
            .missing(0..u64::MAX)
            .iter()
            .map(|run| run.end - run.start)
            .sum();
        assert_eq!(presence.present() + missing, PAGES);
        assert_eq!(presence.is_complete(), missing == 0);
    }
});
