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

/// Names of tests in backquotes: of functions, and of end-to-end cases by their topic, `registry/restart`.
fn named_tests(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    quoted
        .filter(|quoted| quoted.matches('_').count() >= 1 || quoted.starts_with("registry/"))
        .filter(|quoted| {
            quoted
                .chars()
                .all(|character| plain(character) || "_/-".contains(character))
        })
        .collect()
}

/// Appends what all sources in a folder say.
fn read_sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn tests_that_answer_complaints_are_there() {
    let text = fs::read_to_string(top().join("docs/registry.md")).unwrap();
    let (_, rest) = text.split_once("## Twenty complaints").unwrap();
    let table: Vec<&str> = rest
        .lines()
        .filter(|line| line.starts_with("| "))
        .take(22)
        .collect();
    assert!(
        table[1].starts_with("| ---") && table[21].starts_with("| 20. "),
        "{table:#?}"
    );
    let mut sources = String::new();
    for folder in ["crates", "tests/src"] {
        read_sources(&top().join(folder), &mut sources);
    }
    for row in &table[2..] {
        let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names = named_tests(shown);
        assert!(!names.is_empty() || shown == "no test yet", "{row}");
        for name in names {
            let definition = match name.split_once('/') {
                Some((_, case)) => format!("case(\"{case}\""),
                None => format!("fn {name}()"),
            };
            assert!(sources.contains(&definition), "{name} of {row} is no test");
        }
    }
}

#[test]
fn links_and_sources_are_found() {
    let text = "[a](x/y.md#part) [b](https://example.com) [c](#here) `crates/a/src/b.rs` `crates/{a,b}/c.rs` `run.rs`";
    assert_eq!(links(text), ["x/y.md"]);
    assert_eq!(sources(text), ["crates/a/src/b.rs"]);
    assert_eq!(
        named_tests("`a_test_of_it`, `tag_ttl` `registry/restart` `Range` `A_B`"),
        ["a_test_of_it", "tag_ttl", "registry/restart"]
    );
}
