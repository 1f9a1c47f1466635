//! Options of the command line for a container, one a line: a probe that is accepted reads the same once printed; signals are numbers
//! that exist; volumes and mounts have absolute paths, or names that are no paths.
#![no_main]

use std::path::Path;

use xebec_container::{Probe, StopSignal};
use xebec_volume::{Mount, Source, Volume};

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
    if let Ok(volume) = Volume::read(text, Path::new("/work")) {
        check(&volume);
    }
    if let Ok(Mount::Volume(volume)) = Mount::read(text, Path::new("/work")) {
        check(&volume);
    }
});

fn check(volume: &Volume) {
    assert!(volume.target.is_absolute());
    match &volume.source {
        Source::Host { path, .. } => assert!(path.is_absolute()),
        Source::Named(name) => assert!(!name.is_empty() && !name.contains('/')),
        Source::Anonymous => {}
    }
}
