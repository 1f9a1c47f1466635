//! A manifest that is pushed: its facts are bounded, and its type is one that the registry knows.
#![no_main]

use xebec_upstream::manifest::{
    DOCKER_LIST, DOCKER_MANIFEST, Facts, MAX_ENTRIES, OCI_INDEX, OCI_MANIFEST, usual_platform,
};

libfuzzer_sys::fuzz_target!(|content: &[u8]| {
    let _ = usual_platform(content);
    for content_type in [
        None,
        Some(OCI_MANIFEST),
        Some(OCI_INDEX),
        Some("application/json; charset=utf-8"),
    ] {
        if let Ok(facts) = Facts::read(content, content_type) {
            assert!(facts.references.len() <= MAX_ENTRIES);
            assert!(
                [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST].contains(&facts.media_type.as_str())
            );
        }
    }
});
