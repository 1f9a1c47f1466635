//! What the command line takes for a container, one a line: a probe that is accepted reads the same once printed; signals
//! are numbers that exist; volumes have absolute paths.
#![no_main]

use xebec_container::{Probe, StopSignal, Volume};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(probe) = text.parse::<Probe>() {
        let shown = probe.to_string();
        match shown.parse::<Probe>() {
            Ok(again) => assert_eq!(again.to_string(), shown),
            Err(error) => panic!("not read again: {error}"),
        }
    }
    if let Ok(signal) = text.parse::<StopSignal>() {
        assert!((1..=64).contains(&signal.number()));
    }
    if let Ok(volume) = text.parse::<Volume>() {
        assert!(volume.source.is_absolute() && volume.target.is_absolute());
    }
});
