//! The log of a container, as a full disk or another program may have left it: damaged lines are left out, and what was asked for
//! last comes alone.
#![no_main]

use std::fs;

use xebec_container_log::{LogRange, LogReader, Time};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    fs::write(directory.path().join("log"), bytes).expect("written");
    let read = |tail| {
        let mut entries = Vec::new();
        let range = LogRange {
            tail,
            ..LogRange::default()
        };
        let read = LogReader::new(directory.path(), range).read(|entry| {
            entries.push(entry);
            Ok(())
        });
        read.expect("what is damaged is left out");
        entries
    };
    let all = read(None);
    for entry in &all {
        assert!(!entry.text.contains(&b'\n'));
        assert_eq!(Time::from_rfc3339(&entry.time.to_string()), Some(entry.time));
    }
    let last = read(Some(2));
    assert!(all.ends_with(&last));
    assert!(last.iter().filter(|entry| entry.is_full).count() <= 2);
});
