//! The history of a host, as a killed daemon or a full disk may have left it: damaged lines are left out, and a line that was written
//! before them is read.
#![no_main]

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use xebec_protocol::history::{History, STARTS, WAITS};

/// The first line of each file, and a container.
const BEFORE: &[u8] = b"{\"xebec_history\":1}\n{\"kind\":\"container\",\"name\":\"web\",\"reference\":\"docker.io/library/nginx:1\",\
\"manifest\":\"sha256:1111111111111111111111111111111111111111111111111111111111111111\",\"created_ms\":1}\n";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    for name in [WAITS, STARTS] {
        let path = directory.path().join(format!("{name}.jsonl"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .expect("a file");
        file.write_all(BEFORE).expect("written");
        file.write_all(bytes).expect("written");
    }
    let history = History::read(directory.path());
    let web = history
        .containers
        .iter()
        .filter(|container| container.name == "web");
    assert!(web.count() >= 2, "what stands before the damage is read");
    let lines = 1 + bytes.split(|&byte| byte == b'\n').count();
    // A line is in both files, and a start is a container's as well.
    assert!(history.waits.len() + history.starts.len() <= 2 * lines);
    assert!(history.containers.len() <= 2 * lines);
});
