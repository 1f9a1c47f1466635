//! `WWW-Authenticate` headers, one a line: work is linear, and a challenge for a token comes only from a header with a
//! realm.
#![no_main]

use xebec_oci::auth::{Challenge, parse_challenges};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match parse_challenges(text.lines()) {
        Some(Challenge::Bearer {
            realm,
            service,
            scope,
        }) => {
            assert!(text.to_ascii_lowercase().contains("realm"));
            let parts =
                realm.len() + service.map_or(0, |text| text.len()) + scope.map_or(0, |text| text.len());
            assert!(parts <= text.len());
        }
        Some(Challenge::Basic) => assert!(text.to_ascii_lowercase().contains("basic")),
        None => {}
    }
});
