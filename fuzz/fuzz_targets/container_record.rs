//! The files that a host keeps of a container and its volumes, as a full disk, a later version or another program may have left them:
//! each file is read or named, and nothing in it makes the container another one.
#![no_main]

use std::fs;

use xebec_container::{Directories, containers, find};

const NAME: &str = "web";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let dirs = Directories {
        state: directory.path().join("containers"),
        run: directory.path().join("run"),
    };
    let volume = directory.path().join("volumes/data");
    for made in [
        dirs.state.join(NAME),
        dirs.run.join("containers"),
        volume.join("_data"),
    ] {
        fs::create_dir_all(made).expect("a directory");
    }
    let record = dirs.run.join("containers/web.json");
    let files = [
        dirs.state.join("web/container.json"),
        dirs.state.join("web/volumes.json"),
        volume.join("volume.json"),
        record.clone(),
    ];
    for file in &files {
        fs::write(file, bytes).expect("written");
    }
    check(&dirs);
    // A container whose record is damaged is listed by its directory.
    fs::remove_file(record).expect("removed");
    check(&dirs);
});

fn check(dirs: &Directories) {
    let found = containers(dirs).expect("the directories are there");
    assert_eq!(found.containers.len(), 1);
    for container in &found.containers {
        assert_eq!(container.name, NAME);
        assert_eq!(container.directory, dirs.state.join(NAME));
        assert!(container.record.as_ref().is_none_or(|record| record.id == NAME));
        let _ = (container.status(), container.command(), container.created_ms());
        assert!(!container.is_orphan() || container.record.is_some());
    }
    if let Ok(container) = find(dirs, NAME) {
        assert_eq!(container.name, NAME);
    }
    match dirs.volumes().list() {
        Ok(volumes) => assert!(volumes.iter().all(|volume| volume.name == "data")),
        Err(error) => assert!(error.to_string().contains(NAME), "{error}"),
    }
}
