//! Answers of a registry or its token server beside manifests and blobs: lists of tags, errors, tokens and headers. Texts that are shown
//! have nothing that a terminal acts on, and a token makes one header.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_oci::fuzzing::registry_answer(bytes));
