//! What documents refer to is there: files by links, sources by their path in backquotes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Documents in these folders, not in those below them.
const FOLDERS: &[&str] = &[
    "",
    "docs",
    "docs/decisions",
    "docs/formats",
    "bench/results",
    "packaging",
];

fn documents() -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|folder| top().join(folder));
    let files = folders.filter(|folder| folder.is_dir()).flat_map(|folder| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// The targets of links to files of the tree, without the heading that they may name.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .filter_map(|target| target.split('#').next())
        .collect()
}

/// Paths of sources in backquotes.
fn sources(text: &str) -> Vec<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| quoted.starts_with("crates/") && quoted.ends_with(".rs"))
        .filter(|quoted| !quoted.contains(|character: char| "*{ ".contains(character)))
        .collect()
}

#[test]
fn what_documents_refer_to_is_there() {
    let documents = documents();
    assert!(documents.len() > 30, "{documents:?}");
    let mut missing = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        let linked = links(&text).into_iter().map(|link| (link, folder.join(link)));
        let named = sources(&text)
            .into_iter()
            .map(|source| (source, top().join(source)));
        for (name, path) in linked.chain(named) {
            if !path.exists() {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn links_and_sources_are_found() {
    let text = "[a](x/y.md#part) [b](https://example.com) [c](#here) `crates/a/src/b.rs` `crates/{a,b}/c.rs` `run.rs`";
    assert_eq!(links(text), ["x/y.md"]);
    assert_eq!(sources(text), ["crates/a/src/b.rs"]);
}
