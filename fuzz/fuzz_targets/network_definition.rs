//! A network's definition, which an administrator or another program has written: an error that names the file, or plugins
//! whose names are no paths.
#![no_main]

use std::fs;
use std::path::Path;

use serde_json::Value;
use xebec_network::{Networks, Places};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let root = directory.path().join("root");
    let networks = root.join("networks");
    fs::create_dir_all(&networks).expect("a directory");
    fs::write(networks.join("web.conflist"), bytes).expect("written");
    let (found, unusable) = Networks::new(&Places::new(&root, Path::new("/nowhere")))
        .list()
        .expect("the directory is there");
    assert_eq!(found.len() + unusable.len(), 1);
    if let Some(error) = unusable.first() {
        assert!(error.to_string().contains("web.conflist"), "{error}");
    }
    for network in found.values() {
        let plugins = network.list().get("plugins").and_then(Value::as_array);
        for plugin in plugins.expect("a list") {
            let name = plugin.get("type").and_then(Value::as_str).expect("a name");
            assert!(!name.is_empty() && !name.contains('/'), "{name}");
        }
    }
});
