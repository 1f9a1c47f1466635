//! Failures of commands, in the form for programs.

use serde_json::Value;

use crate::program::{Program, text};

/// The last line on standard error.
fn failure(program: &Program, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = program.output(arguments);
    let errors = text(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    let parsed = serde_json::from_str(last);
    assert!(parsed.is_ok(), "{arguments:?}: {errors}");
    let parsed = parsed.unwrap();
    (output.status.code(), parsed)
}

#[test]
fn with_json_a_failure_is_json() {
    let program = Program::new();
    for (arguments, code, kind, word) in [
        (
            &["mount", "--json", "image", "/nosuch"][..],
            3,
            "not_found",
            "/nosuch",
        ),
        (&["check", "--json", "nosuch"], 3, "not_found", "nosuch"),
        (&["daemon", "status", "--json"], 3, "not_found", "daemon"),
        (
            &["record", "--merge", "--json", "image", "word"],
            2,
            "usage",
            "word",
        ),
        (&["images", "--json", "--nosuch"], 2, "usage", "--nosuch"),
        (&["cache", "gc", "--to", "x", "--json"], 2, "usage", "--to"),
        (
            &["install", "--json", "--dry-run", "--sysroot", "/nosuch"],
            2,
            "usage",
            "/nosuch",
        ),
        (
            &["install", "--json", "--uninstall", "--sysroot", "/nosuch"],
            2,
            "usage",
            "/nosuch",
        ),
    ] {
        let (exit, failure) = failure(&program, arguments);
        assert_eq!(exit, Some(code), "{arguments:?}: {failure}");
        assert_eq!(
            failure.pointer("/error/kind"),
            Some(&kind.into()),
            "{arguments:?}"
        );
        let message = failure.pointer("/error/message").unwrap();
        let message = message.as_str().unwrap();
        assert!(
            message.contains(word) && !message.starts_with("error"),
            "{message}"
        );
    }
}

#[test]
fn without_json_a_failure_is_for_people() {
    let program = Program::new();
    for (arguments, begin) in [
        (&["check", "nosuch"][..], "xebec: "),
        (&["images", "--nosuch"], "error: "),
        // This one is the container's.
        (&["run", "--nosuch", "image", "--json"], "error: "),
    ] {
        let errors = text(&program.output(arguments).stderr);
        assert!(errors.starts_with(begin), "{arguments:?}: {errors}");
    }
}

#[test]
fn each_of_several_names_that_are_not_there_is_named() {
    let program = Program::new();
    for words in [
        &["network", "rm", "one", "two"][..],
        &["volume", "rm", "one", "two"],
        &["rm", "one", "two"],
        &["stop", "one", "two"],
    ] {
        let output = program.output(words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {errors}");
        let lines: Vec<&str> = errors.lines().collect();
        assert_eq!(lines.len(), 2, "{words:?}: {errors}");
        for (line, name) in lines.iter().zip(["one", "two"]) {
            assert!(
                line.starts_with("xebec: ") && line.contains(name),
                "{words:?}: {errors}"
            );
        }
    }
}

#[test]
fn a_mistyped_root_directory_is_reported_and_not_made() {
    let program = Program::new();
    let root = program.path("nosuch/root").display().to_string();
    for words in [
        &["images"][..],
        &["ps", "-a"],
        &["cache", "stat"],
        &["check", "image"],
        &["inspect", "image"],
    ] {
        let output = program.output(&[&["--root", root.as_str()][..], words].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {errors}");
        assert!(
            errors.contains(&root) && errors.contains("--root"),
            "{words:?}: {errors}"
        );
        assert!(!program.path("nosuch").exists(), "{words:?}");
    }
    // That of a host where nothing was started yet is empty.
    let output = program.output(&["images"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_mount_on_a_file_is_refused() {
    let program = Program::new();
    let file = program.path("file");
    std::fs::write(&file, "").unwrap();
    let file = file.display().to_string();
    let output = program.output(&["mount", "image", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        format!("xebec: {file} is a file: an image is mounted on a directory\n")
    );
}

#[test]
fn a_command_that_starts_no_daemon_names_those_that_do() {
    let program = Program::new();
    for words in [["daemon", "status"], ["daemon", "metrics"]] {
        let output = program.output(&words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {errors}");
        assert_eq!(
            errors,
            "xebec: no daemon is running; the next `xebec run`, `mount` or `pull` starts it\n"
        );
    }
    // A daemon that does not run is stopped already.
    assert!(program.output(&["daemon", "stop"]).status.success());
    for file in ["xebec.sock", "keeper.pid"] {
        assert!(!program.run().join(file).exists(), "{file}");
    }
}

/// A missing path is named, with the remedy, before anything long begins.
#[test]
fn a_path_that_is_not_there_is_named_with_what_to_do() {
    let program = Program::new();
    for (arguments, words) in [
        (
            &["mount", "image", "/nosuch/x"][..],
            ["/nosuch/x", "make it first"],
        ),
        (&["umount", "/nosuch/x"], ["/nosuch/x", "xebec daemon status"]),
        (
            &["record", "--sign", "/nosuch/key", "127.0.0.1:1/image"],
            ["the key /nosuch/key", "No such file"],
        ),
    ] {
        let output = program.output(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success());
        assert!(
            words.iter().all(|word| said.contains(word)),
            "{arguments:?}: {said}"
        );
    }
    assert!(!program.run().join("xebec.sock").exists(), "a daemon was started");
}
