//! Files of a crate use each other one way, too: a reader of one need not know those that use it.
//!
//! [`modules`] reads each crate's sources, and which file uses items of which; [`circles`] finds the files that reach each other.
//! Method calls are not seen: Rust tells only with types whose method it is.
//!
//! [`functions`] reads how long each function is.

mod circles;
mod functions;
mod modules;

use std::fs;
use std::path::Path;

use self::modules::Sources;
use crate::project;

/// The circles of a crate, largest first, each with the uses in it, as "file → file (item)".
fn circles_of(root: &Path) -> Vec<(usize, String)> {
    let sources = Sources::read(root);
    let uses = sources.uses();
    let mut found: Vec<(usize, String)> = circles::of(sources.files.len(), uses.keys().copied())
        .into_iter()
        .map(|circle| {
            let inside = uses
                .iter()
                .filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
            let lines = inside.map(|((from, to), items)| {
                let items: Vec<&str> = items.iter().map(String::as_str).collect();
                format!(
                    "  {} → {} ({})",
                    sources.files[*from],
                    sources.files[*to],
                    items.join(" ")
                )
            });
            (circle.len(), lines.collect::<Vec<_>>().join("\n"))
        })
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    let mut wrong = Vec::new();
    let crates = project::crates();
    let below = fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path());
    let top = crates.parent().unwrap();
    // The end-to-end tests are a crate, too.
    let tests = top.join("tests");
    assert!(
        tests.join("src/main.rs").exists(),
        "the end-to-end tests are not where they were"
    );
    for directory in below.chain([tests]) {
        let Some(root) = ["src/lib.rs", "src/main.rs"]
            .map(|root| directory.join(root))
            .into_iter()
            .find(|root| root.exists())
        else {
            continue;
        };
        let name = directory.strip_prefix(top).unwrap().display();
        let found = circles_of(&root);
        if !found.is_empty() {
            let uses: Vec<String> = found.into_iter().map(|(_, uses)| uses).collect();
            wrong.push(format!("{name} has circles of files:\n{}", uses.join("\n\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Writes the files of a crate, and says which circles it has.
fn circles_in(files: &[(&str, &str)]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let found = circles_of(&directory.path().join("lib.rs"));
    found.into_iter().map(|(_, uses)| uses).collect()
}

#[test]
fn an_item_is_found_where_it_is_defined() {
    let found = circles_in(&[
        ("lib.rs", "mod a; mod b; pub use b::Thing;"),
        ("a.rs", "use crate::Thing; pub fn f(_: Thing) {}"),
        ("b/mod.rs", "mod c; pub use c::Thing;"),
        ("b/c.rs", "pub struct Thing; fn g() { crate::a::f(Thing) }"),
    ]);
    assert_eq!(found, ["  a.rs → b/c.rs (Thing)\n  b/c.rs → a.rs (f)"]);
}

#[test]
fn a_name_that_is_imported_and_one_in_a_macro_count() {
    let found = circles_in(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use super::b; pub const A: u8 = 1; fn f() { b::g() }"),
        ("b.rs", "pub fn g() { println!(\"{}\", crate::a::A) }"),
    ]);
    assert_eq!(found, ["  a.rs → b.rs (g)\n  b.rs → a.rs (A)"]);
}

#[test]
fn what_only_tests_use_and_what_is_declared_does_not_count() {
    let found = circles_in(&[
        ("lib.rs", "mod a; pub fn f() { a::g() }"),
        ("a.rs", "pub fn g() {}\n#[cfg(test)]\nmod tests { use crate::f; }"),
    ]);
    assert!(found.is_empty(), "{found:?}");
    let found = circles_in(&[
        ("lib.rs", "mod a; pub use a::g;"),
        ("a.rs", "mod c; pub fn g() { c::h() } pub struct S;"),
        ("a/c.rs", "pub fn h() {} fn i(_: super::S) {}"),
    ]);
    assert_eq!(found, ["  a.rs → a/c.rs (h)\n  a/c.rs → a.rs (S)"]);
}
