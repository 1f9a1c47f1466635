//! Every call that unmounts, removes, kills, chmods or overwrites stands in a file that `docs/security.md` lists, with how it is
//! shown there that the thing is Xebec's. A new one fails here until somebody has said so.

use std::collections::BTreeSet;
use std::fs;

use crate::project;

/// How such calls begin. Those of the kernel crate have wrappers with the same names.
const CALLS: &[&str] = &[
    "unmount(",
    "umount2(",
    "detach(",
    "Top::detach",
    "move_mount(",
    "detached.attach(",
    "root.attach(",
    "Automount::attach(",
    "mount_at(",
    "bind_private(",
    "bind_private_on(",
    "remove_file(",
    "remove_dir(",
    "remove_dir_all(",
    "remove_all(",
    "remove_tree(",
    "remove_directory(",
    "unlink(",
    "unlinkat(",
    "fs::rename(",
    "disk.rename(",
    "renameat(",
    "renameat_with(",
    "hard_link(",
    "symlink(",
    "symlinkat(",
    "kill(",
    "kill_process(",
    "pidfd_send_signal(",
    // The same by the kernel crate, for signals without a name.
    "send_signal(self.",
    ".signal(",
    "set_permissions(",
    "chmod(",
    "chown(",
    "set_len(",
    "ftruncate(",
    "fs::write(",
    "File::create(",
    "truncate(true)",
    ".write(true)",
    "append(true)",
    ".punch(",
    "fallocate(",
];
/// Below this heading they are listed.
const HEADING: &str = "## What is unmounted, removed, ended and overwritten";

/// Whether a source calls one of them, outside of its tests and comments.
fn calls(text: &str) -> Option<&str> {
    let product = text.split("\n#[cfg(test)]\n").next().unwrap();
    let lines = product
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"));
    let is_call = |line: &&str| {
        // That asks.
        let line = line.replace("is_symlink(", "");
        let is_definition = |call: &str| line.contains(&format!("fn {call}"));
        CALLS
            .iter()
            .any(|call| line.contains(call) && !is_definition(call))
    };
    lines.into_iter().find(is_call)
}

/// The files that the list names, as `CRATE/src/...`.
fn listed(page: &str) -> BTreeSet<String> {
    let section = page.split_once(HEADING).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let quoted = section.split('`').skip(1).step_by(2);
    quoted
        .filter(|name| name.ends_with(".rs") && !name.starts_with("crates/"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_call_that_takes_something_away_is_listed() {
    let page = fs::read_to_string(project::top().join("docs/security.md")).unwrap();
    let listed = listed(&page);
    let crates = project::crates();
    let files = project::sources().into_iter();
    let of_tests = crates.join("testkit");
    let mut with_calls = BTreeSet::new();
    for path in files.filter(|path| !path.starts_with(&of_tests)) {
        let name = path.strip_prefix(&crates).unwrap().to_string_lossy().into_owned();
        if let Some(line) = calls(&fs::read_to_string(&path).unwrap()) {
            assert!(
                listed.contains(&name),
                "{name} takes something away or overwrites it ({line}); say in docs/security.md what, and how it is shown to be \
                 Xebec's"
            );
            with_calls.insert(name);
        }
    }
    let stale: Vec<_> = listed.difference(&with_calls).collect();
    assert!(
        stale.is_empty(),
        "docs/security.md lists files without such calls: {stale:?}"
    );
}

#[test]
fn calls_are_found_and_what_is_none_is_not() {
    assert!(calls("fn a() {\n    fs::remove_file(path);\n}").is_some());
    assert!(calls("fn a() {\n    rustix::mount::unmount(path, flags);\n}").is_some());
    assert!(calls("/// fs::remove_file(path)\n// kill(1)\nfn remove_file(path: &Path);").is_none());
    assert!(calls("fn a() {}\n#[cfg(test)]\nmod tests { fn b() { fs::remove_file(path) } }").is_none());
}
