//! The payload of a signature: refused, or the same manifest and repository are read from what is written of it.
#![no_main]

use xebec_trust::Payload;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(payload) = Payload::parse(bytes) else {
        return;
    };
    let written = payload.to_json().unwrap_or_default();
    match Payload::parse(&written) {
        Ok(again) => assert_eq!(again, payload),
        Err(error) => panic!("not read again: {error}"),
    }
});
