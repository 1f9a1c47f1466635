//! `Recording::decode` of arbitrary bytes, as they are (after a byte 0) or as numbers that are still to be compressed, so that mutations
//! reach the columns. A recording that is accepted passes `check`, comes back from encoding as an equal value, and can be planned with.
//! Everything else is an error, in bounded memory.
#![no_main]

use xebec_format::runtime_image::{Recording, ranges, wanted};
use xebec_fuzz::recording_of_plain_numbers;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else {
        return;
    };
    let recording = match kind {
        0 => Recording::decode(bytes),
        _ => match recording_of_plain_numbers(bytes) {
            Some(bytes) => Recording::decode(&bytes),
            None => return,
        },
    };
    let Ok(recording) = recording else {
        return;
    };
    assert_eq!(recording.check(), Ok(()));
    match Recording::decode(&recording.encode()) {
        Ok(again) => assert_eq!(again, recording),
        Err(error) => panic!("an accepted recording is refused once encoded: {error}"),
    }
    for service in &recording.services {
        let all = wanted(&recording, service, |_| true);
        let some = wanted(&recording, service, |run| run.first % 2 == 0);
        assert!(some.iter().all(|number| all.contains(number)));
        let planned: usize = ranges(&recording.segments, &all, 4096)
            .iter()
            .map(|range| range.wanted.len())
            .sum();
        assert_eq!(planned, all.len());
    }
});
