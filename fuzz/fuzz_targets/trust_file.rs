//! `trust.toml`: an error that shows itself, or entries within the limits.
#![no_main]

use xebec_trust::{MAX_TRUST_FILE, TrustFile};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match TrustFile::parse(bytes) {
        Ok(file) => {
            assert!(bytes.len() <= MAX_TRUST_FILE);
            assert_eq!(TrustFile::parse(bytes).as_ref().ok(), Some(&file));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
