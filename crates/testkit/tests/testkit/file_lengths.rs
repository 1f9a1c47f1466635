//! Files fit a sitting, or a list says why they do not.

use std::fs;
use std::path::{Path, PathBuf};

use crate::project;

/// Lines of a Rust file, comments and unit tests among them. A reader takes in about 400 at a time; a file that is half as long again
/// has most often grown a second purpose.
const MOST_LINES: usize = 600;

/// Files that may be longer, by their path in the project, each with the reason why it has no seam.
const MAY_BE_LONG: &[(&str, &str)] = &[];

/// The Rust files below a folder, those of tests and examples among them.
fn rust_files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if path.is_file() && name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The complaints about these files, whose paths begin at `top`: those that are too long, and those that are listed and need not be.
fn complaints(top: &Path, files: &[PathBuf], may_be_long: &[(&str, &str)]) -> Vec<String> {
    let mut listed: Vec<&str> = may_be_long.iter().map(|(path, _)| *path).collect();
    let mut found = Vec::new();
    for file in files {
        let lines = fs::read_to_string(file).unwrap().lines().count();
        if lines <= MOST_LINES {
            continue;
        }
        let path = file.strip_prefix(top).unwrap().to_str().unwrap();
        match listed.iter().position(|known| *known == path) {
            Some(at) => drop(listed.swap_remove(at)),
            None => found.push(format!("{path} has {lines} lines")),
        }
    }
    let needless = listed
        .into_iter()
        .map(|path| format!("{path} is listed, and is not too long"));
    found.extend(needless);
    found
}

#[test]
fn files_fit_a_sitting_or_are_listed() {
    let top = project::top();
    let mut files = Vec::new();
    for folder in ["crates", "tests/src", "fuzz"] {
        rust_files(&top.join(folder), &mut files);
    }
    assert!(files.len() > 1000, "the sources are not where they were");
    let wrong = complaints(&top, &files, MAY_BE_LONG);
    assert!(
        wrong.is_empty(),
        "a file has {MOST_LINES} lines at most; part it by purpose, or list it with a reason:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn long_files_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path();
    fs::create_dir_all(top.join("one/tests")).unwrap();
    fs::create_dir_all(top.join("target")).unwrap();
    for (name, lines) in [
        ("one/fits.rs", MOST_LINES),
        ("one/long.rs", MOST_LINES + 1),
        ("one/tests/long.rs", MOST_LINES + 2),
        ("target/built.rs", MOST_LINES + 1),
        ("one/table.txt", MOST_LINES + 1),
    ] {
        fs::write(top.join(name), "a\n".repeat(lines)).unwrap();
    }
    let mut files = Vec::new();
    rust_files(top, &mut files);
    files.sort();
    assert_eq!(
        complaints(top, &files, &[]),
        ["one/long.rs has 601 lines", "one/tests/long.rs has 602 lines"]
    );
    let listed = [("one/long.rs", "a table"), ("one/fits.rs", "a table")];
    assert_eq!(
        complaints(top, &files, &listed),
        [
            "one/tests/long.rs has 602 lines",
            "one/fits.rs is listed, and is not too long"
        ]
    );
}
