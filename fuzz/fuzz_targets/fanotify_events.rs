//! A buffer of fanotify events: the walk ends, no event is read twice, and after an error there is nothing more.
#![no_main]

use xebec_kernel::fanotify::{Events, MIN_EVENT_BYTES};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut events = Events::new(bytes);
    let mut found = 0;
    for event in events.by_ref() {
        match event {
            Ok(_) => found += 1,
            Err(error) => {
                assert!(error.at < bytes.len());
                break;
            }
        }
    }
    assert!(found <= bytes.len() / MIN_EVENT_BYTES);
    assert!(events.next().is_none());
});
