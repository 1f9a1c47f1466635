//! `LayerIndex::decode` and `SpanTable::decode` of arbitrary bytes: what is accepted passes `check`, comes back from
//! encoding as an equal value, and both agree; everything else is an error, in bounded memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xebec_fuzz::check_layer_index(bytes));
