//! A manifest of signatures: refused, or entries whose payloads are no larger than what will be read, and none of which is
//! accepted without a valid signature.
#![no_main]

use xebec_trust::{MAX_PAYLOAD, SignatureManifest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = SignatureManifest::parse(bytes) {
        assert!(
            manifest
                .signatures()
                .iter()
                .all(|entry| entry.payload_size <= MAX_PAYLOAD as u64)
        );
    }
});
