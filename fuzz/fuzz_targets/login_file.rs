//! Logins as docker's and podman's files, credential helpers and the kubelet's credential providers say them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_oci::fuzzing::logins(bytes));
