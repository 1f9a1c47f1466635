//! A configuration is right, or wrong in a line that it has.
#![no_main]

use std::path::Path;

use xebec_registry_server::config::{Config, ConfigError};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let environment = |_: &str| None;
    if let Err(ConfigError::Line { line, .. }) = Config::parse(text, Path::new("r.toml"), &environment) {
        assert!(line >= 1 && line <= text.split('\n').count(), "line {line}");
    }
});
