//! Standard output and standard error that are closed, or full.

use std::fs::File;
use std::io::pipe;
use std::process::Stdio;

use xebec_testkit::registry::Access;

use crate::program::{Program, text};
use crate::registry::registry;

/// Commands that print something without a daemon.
const COMMANDS: &[&[&str]] = &[
    &["images"],
    &["images", "--json"],
    &["ps"],
    &["cache", "stat"],
    &["cache", "stat", "--json"],
    &["doctor"],
    &["doctor", "--json"],
    &["completion", "bash"],
    &["completion", "zsh"],
    &["completion", "fish"],
    &["install", "--dry-run"],
    &["daemon", "journal-version"],
    &["--help"],
    &["run", "--help"],
    &["--version"],
];

/// The end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (_, writer) = pipe().unwrap();
    writer.into()
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let program = Program::new();
    for arguments in COMMANDS {
        let read = program.output(arguments);
        assert!(!read.stdout.is_empty(), "{arguments:?} prints nothing");
        let closed = program.command(arguments).stdout(unread()).output().unwrap();
        assert_eq!(closed.status.code(), read.status.code(), "{arguments:?}");
        assert_eq!(text(&closed.stderr), text(&read.stderr), "{arguments:?}");
    }
}

/// `inspect` needs an image to show.
#[test]
fn a_reader_of_an_image_that_is_gone_is_no_error() {
    let (program, registry) = (Program::new(), registry(Access::Open));
    let image = format!("{}/team/app:v1", registry.host());
    for options in [&["inspect"][..], &["inspect", "--json"]] {
        let arguments = [options, &[&image]].concat();
        let read = program.output(&arguments);
        assert!(read.status.success() && !read.stdout.is_empty(), "{read:?}");
        let closed = program.command(&arguments).stdout(unread()).output().unwrap();
        assert_eq!(closed.status.code(), Some(0), "{closed:?}");
        assert_eq!(text(&closed.stderr), "", "{options:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let program = Program::new();
    for arguments in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let full = program.command(arguments).stdout(full).output().unwrap();
        let errors = text(&full.stderr);
        assert_eq!(full.status.code(), Some(125), "{arguments:?}: {errors}");
        assert!(
            errors.contains("cannot write to standard output: No space left on device"),
            "{arguments:?}: {errors}"
        );
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
    }
}

#[test]
fn standard_error_that_is_gone_changes_nothing() {
    let program = Program::new();
    for (arguments, code) in [
        (&["mount", "Not/A/Reference!", "/nosuch"][..], 3),
        (&["--verbose", "--verbose", "daemon", "status"], 3),
        (&["run", "--nosuch"], 125),
    ] {
        let whole = program.output(arguments);
        assert_eq!(whole.status.code(), Some(code), "{}", text(&whole.stderr));
        let full = File::options().write(true).open("/dev/full").unwrap();
        for closed in [unread(), full.into()] {
            let closed = program.command(arguments).stderr(closed).output().unwrap();
            assert_eq!(closed.status.code(), Some(code), "{arguments:?}");
        }
    }
}
