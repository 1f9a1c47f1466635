#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_fuzz::layer_index(bytes));
