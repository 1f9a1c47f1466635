//! `xebec volume`, which needs no daemon.

use crate::program::{Program, text};

/// The output of the command, which must succeed.
fn printed(program: &Program, arguments: &[&str]) -> String {
    let output = program.output(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

#[test]
fn volumes_are_made_listed_shown_and_removed() {
    let program = Program::new();
    assert_eq!(printed(&program, &["volume", "ls", "--quiet"]), "");
    assert_eq!(
        printed(&program, &["volume", "create", "--label", "tier=db", "data"]),
        "data\n"
    );
    let random = printed(&program, &["volume", "create"]);
    assert_eq!(random.trim().len(), 64);
    assert_eq!(printed(&program, &["volume", "ls", "-q"]).lines().count(), 2);
    let table = printed(&program, &["volume", "ls"]);
    assert!(
        table.starts_with("VOLUME") && table.contains("\ndata "),
        "{table}"
    );
    let shown = printed(&program, &["volume", "inspect", "data"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["Name"], "data");
    assert_eq!(shown[0]["Labels"]["tier"], "db");
    let mountpoint = shown[0]["Mountpoint"].as_str().unwrap();
    assert!(mountpoint.ends_with("/root/volumes/data/_data"), "{mountpoint}");
    assert_eq!(
        shown[0]["CreatedAt"].as_str().unwrap().len(),
        "2026-01-01T00:00:00Z".len()
    );
    assert_eq!(printed(&program, &["volume", "prune"]), random);
    let rest = printed(&program, &["volume", "prune", "--all", "--json"]);
    assert_eq!(serde_json::from_str::<Vec<String>>(&rest).unwrap(), ["data"]);
    assert_eq!(printed(&program, &["volume", "ls", "--json"]).trim(), "[]");
}

#[test]
fn errors_name_the_volume() {
    let program = Program::new();
    printed(&program, &["volume", "create", "data"]);
    for (arguments, code, word) in [
        (
            &["volume", "create", "../x"][..],
            2,
            "\"../x\" cannot name a volume",
        ),
        (&["volume", "rm", "other"], 3, "no volume named other"),
        (
            &["volume", "inspect", "data", "other"],
            3,
            "no volume named other",
        ),
        (&["volume", "rm", "other", "data"], 3, "no volume named other"),
    ] {
        let output = program.output(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(word), "{output:?}");
    }
    assert_eq!(
        printed(&program, &["volume", "ls", "-q"]),
        "",
        "the other one was removed"
    );
    assert_eq!(printed(&program, &["volume", "rm", "--force", "other"]), "");
}

#[test]
fn options_of_dockers_that_are_not_there_say_what_to_do() {
    let program = Program::new();
    for (option, word) in [
        ("--privileged", "--cap-add"),
        ("--volumes-from=x", "--volume"),
        ("--userns=host", "--user"),
    ] {
        let output = program.output(&["run", option, "image"]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(text(&output.stderr).contains(word), "{output:?}");
    }
    for (option, value, word) in [
        ("--mount", "type=bind,source=/a", "target"),
        ("--volume", "a/b:/c", "./a/b"),
        ("--device", "null", "absolute"),
        ("--sysctl", "kernel.panic=1", "whole host"),
        ("--ipc", "shareable", "private or host"),
        ("--cpu-shares", "1", "262144"),
        ("--oom-score-adj", "-2000", "1000"),
    ] {
        let output = program.output(&["run", option, value, "image"]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(text(&output.stderr).contains(word), "{output:?}");
    }
}
