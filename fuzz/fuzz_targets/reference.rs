#![no_main]
use libfuzzer_sys::fuzz_target;
use xebec_oci::Reference;

fuzz_target!(|text: &str| {
    if let Ok(reference) = text.parse::<Reference>() {
        let shown = reference.to_string();
        assert_eq!(shown.parse(), Ok(reference), "{shown}");
    }
});
