//! `roots.json`, about a fixed layer and index: refused, or about exactly these, never both proven and disproved, and the
//! same when written and read again.
#![no_main]

use xebec_format::digest::Digest;
use xebec_trust::Record;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (layer, index) = (Digest::from_bytes([0x11; 32]), Digest::from_bytes([0x22; 32]));
    let Ok(record) = Record::parse(bytes, layer, index) else {
        return;
    };
    assert_eq!(record.pair(), (layer, index));
    assert!(!(record.is_proven() && record.why_disproved().is_some()));
    let written = serde_json::to_vec(&record).unwrap_or_default();
    assert_eq!(Record::parse(&written, layer, index), Ok(record));
    assert!(Record::parse(bytes, index, layer).is_err(), "about another layer");
});
