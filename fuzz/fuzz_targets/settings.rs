//! `daemon.toml` and `registries.toml`: an error with words, or settings that can be said again.
#![no_main]

use xebec_oci::ClientConfig;
use xebec_protocol::settings::{Overrides, Settings};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Settings::parse(text, &Overrides::new()) {
        Ok(settings) => assert_eq!(Settings::parse(text, &Overrides::new()).ok(), Some(settings)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = toml::from_str::<ClientConfig>(text) {
        assert!(!error.to_string().is_empty());
    }
});
