//! Names and patterns of `trust.toml`, one a line, the name first: matching is quick however hostile the pattern, a name
//! that is accepted is accepted again, and covers itself where it is a pattern.
#![no_main]

use xebec_trust::{Pattern, RepositoryName};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Some((name, patterns)) = text.split_once('\n') else {
        return;
    };
    let Ok(name) = RepositoryName::from_docker_reference(name) else {
        return;
    };
    assert_eq!(
        RepositoryName::from_docker_reference(name.as_str()).as_ref(),
        Ok(&name)
    );
    for pattern in patterns.lines() {
        if let Ok(pattern) = Pattern::parse(pattern) {
            let covers = pattern.covers(&name);
            assert_eq!(
                Pattern::parse(&pattern.to_string()).map(|again| again.covers(&name)),
                Ok(covers)
            );
        }
    }
    if let Ok(itself) = Pattern::parse(name.as_str()) {
        assert!(itself.covers(&name));
    }
});
