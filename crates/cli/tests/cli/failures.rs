//! What commands fail with, for programs.

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
