//! A reference that is accepted reads the same once printed, names a registry and a repository, and holds nothing that
//! could end a line, a URL's path or a header.
#![no_main]

use xebec_oci::Reference;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(reference) = text.parse::<Reference>() else {
        return;
    };
    let shown = reference.to_string();
    assert!(!reference.registry().is_empty() && !reference.repository().name().is_empty());
    assert!(
        !shown.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#' | '%' | '\\'))
    );
    assert!(
        reference
            .repository()
            .name()
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."))
    );
    assert_eq!(shown.parse(), Ok(reference), "{shown}");
});
