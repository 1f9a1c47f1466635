//! A public key in PEM: refused, or written again it is the same key; and it accepts no signature of these bytes.
#![no_main]

use xebec_trust::PublicKey;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(key) = PublicKey::from_pem(bytes) else {
        return;
    };
    let written = key.to_pem().unwrap_or_default();
    match PublicKey::from_pem(written.as_bytes()) {
        Ok(again) => assert_eq!(again.id(), key.id()),
        Err(error) => panic!("not read again: {error}"),
    }
    assert!(!key.accepts(b"message", bytes));
});
