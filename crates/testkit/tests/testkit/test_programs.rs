//! A crate has one test program for all that is checked from outside: each is compiled and linked by itself, which costs seconds.

use std::fs;
use std::path::Path;

use crate::project;

/// The test programs that Cargo finds in a crate by itself: files in `tests/`, and folders there that have a `main.rs`.
fn test_programs(of: &Path) -> Vec<String> {
    let entries = fs::read_dir(of.join("tests")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let programs = paths.filter(|path| {
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists()
    });
    programs.map(|path| path.display().to_string()).collect()
}

#[test]
fn a_crate_has_one_test_program() {
    let mut with_one = 0;
    for entry in fs::read_dir(project::crates()).unwrap() {
        let programs = test_programs(&entry.unwrap().path());
        assert!(
            programs.len() < 2,
            "more than one test program: {}",
            programs.join(", ")
        );
        with_one += programs.len();
    }
    assert!(
        with_one > 10,
        "only {with_one} crates have a test program: the search is wrong"
    );
}

#[test]
fn files_and_folders_count_as_test_programs() {
    let directory = tempfile::tempdir().unwrap();
    let tests = directory.path().join("tests");
    fs::create_dir_all(tests.join("many")).unwrap();
    fs::create_dir_all(tests.join("shared")).unwrap();
    for file in ["one.rs", "many/main.rs", "shared/mod.rs", "golden.json"] {
        fs::write(tests.join(file), "").unwrap();
    }
    assert_eq!(test_programs(directory.path()).len(), 2);
    assert_eq!(test_programs(&tests).len(), 0);
}
