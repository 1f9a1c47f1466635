//! As `layer_index`, but the input holds the sections as they are before compression, so that mutations reach the
//! columns.
#![no_main]

use xebec_fuzz::{check_layer_index, index_of_plain_sections};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(index) = index_of_plain_sections(bytes) {
        check_layer_index(&index);
    }
});
