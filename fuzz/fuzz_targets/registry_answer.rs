//! What a registry or its token server sends beside manifests and blobs: lists of tags, errors, tokens and headers. What of it is
//! shown has nothing that a terminal acts on, and a token makes one header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_oci::fuzzing::registry_answer(bytes));
