//! The line of progress: on a terminal only, and gone at the end.

use std::time::Duration;

use xebec_testkit::registry::{Access, Fault, When};

use crate::program::{Program, text};
use crate::registry::registry;
use crate::terminal::Terminal;

const ERASE: &str = "\r\u{1b}[K";

#[test]
fn a_registry_that_is_waited_for_is_named_on_a_terminal() {
    let (program, registry) = (Program::new(), registry(Access::Open));
    let image = format!("{}/team/app:v1", registry.host());
    let busy = || {
        registry.inject(
            When::manifest().times(1),
            Fault::Status {
                code: 503,
                retry_after: Some("3".to_owned()),
            },
        );
    };
    busy();
    let (status, shown) = Terminal::new().runs(program.command(&["inspect", &image]));
    assert!(status.success(), "{shown}");
    for part in [
        format!("waiting for {} (Ctrl-C stops): ", registry.host()),
        "1 of 8 tries failed".to_owned(),
        "HTTP status 503".to_owned(),
    ] {
        assert!(shown.contains(&part), "{part:?} is not in {shown:?}");
    }
    assert!(shown.ends_with(ERASE), "it is still there: {shown:?}");
    // Nothing of it elsewhere, and nothing on a terminal where it is not wanted.
    busy();
    let output = program.output(&["inspect", &image]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new())
    );
    busy();
    let (_, shown) = Terminal::new().runs(program.command(&["--quiet", "inspect", &image]));
    assert_eq!(shown, "");
}

#[test]
fn what_says_nothing_counts_on_and_what_is_quick_is_not_shown() {
    let (program, registry) = (Program::new(), registry(Access::Open));
    let image = format!("{}/team/app:v1", registry.host());
    let (status, shown) = Terminal::new().runs(program.command(&["inspect", &image]));
    assert!(status.success() && shown.is_empty(), "{shown:?}");
    registry.inject(
        When::manifest().times(1),
        Fault::Delay(Duration::from_millis(2500)),
    );
    let (status, shown) = Terminal::new().runs(program.command(&["inspect", &image]));
    assert!(status.success(), "{shown}");
    assert!(shown.contains(&format!("inspect {image} … 2 s")), "{shown:?}");
    assert!(shown.ends_with(ERASE), "{shown:?}");
}

/// Without a terminal, the reason to wait for a registry is printed on request.
#[test]
fn what_is_tried_again_is_said_in_a_pipe_to_who_asks_for_it() {
    let (program, registry) = (Program::new(), registry(Access::Open));
    let image = format!("{}/team/app:v1", registry.host());
    registry.inject(
        When::manifest().times(1),
        Fault::Status {
            code: 503,
            retry_after: None,
        },
    );
    let output = program.output(&["-v", "-v", "inspect", &image]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for part in ["will try again", "HTTP status 503", registry.host().as_str()] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}
