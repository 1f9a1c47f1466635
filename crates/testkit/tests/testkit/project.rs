//! The folders and sources of the project.

use std::fs;
use std::path::{Path, PathBuf};

/// The project's folder.
pub(crate) fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// The folder with all crates.
pub(crate) fn crates() -> PathBuf {
    top().join("crates")
}

/// The sources of all crates, without those of tests.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let directory = entry.unwrap().path().join("src");
        if directory.is_dir() {
            sources_below(&directory, &mut found);
        }
    }
    assert!(found.len() > 100, "the sources are not where they were");
    found
}

fn sources_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources_below(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}
