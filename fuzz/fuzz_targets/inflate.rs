//! Arbitrary bytes inflate to the same result however input and output are cut, or to an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_index::fuzzing::inflate(bytes));
