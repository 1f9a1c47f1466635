//! A span with arbitrary fields gives as many bytes as it says, and only with the right digest.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_index::fuzzing::decode(bytes));
