//! Arbitrary bytes are indexed or refused; an index that comes of them passes `check`, is right in every span, and
//! gives the exact tar back.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_index::fuzzing::index(bytes));
