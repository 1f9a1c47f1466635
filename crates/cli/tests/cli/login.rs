//! `login` and `logout`.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

use crate::program::{Program, text};
use crate::registry::{LOGIN, inspect, private};
use crate::terminal::Terminal;

/// Logs in with a password from standard input.
fn login(program: &Program, host: &str, password: &str) -> Output {
    login_with(program, &[host], password)
}

/// The same with further arguments.
fn login_with(program: &Program, more: &[&str], password: &str) -> Output {
    let arguments = [&["login", "--username", LOGIN.0, "--password-stdin"], more].concat();
    let mut command = program.command(&arguments);
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(password.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_login_is_tried_stored_used_and_removed() {
    let (program, registry) = (Program::new(), private());
    let (host, file) = (registry.host(), program.path(".docker/config.json"));
    let refused = login(&program, &host, "wrong");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    for part in ["refuses the login of \"ann\"", "Nothing is stored"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!file.exists() && !said.contains("wrong"), "{said}");
    let output = login(&program, &host, &format!("{}\n", LOGIN.1));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(&file.display().to_string()));
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        inspect(&program, &registry, "team/app:v1"),
        (Some(0), String::new())
    );
    let output = program.output(&["logout", &host]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(inspect(&program, &registry, "team/app:v1").0, Some(4));
    let output = program.output(&["logout", &host]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr).contains("has no login for"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_login_elsewhere_that_goes_first_is_named() {
    let (program, registry) = (Program::new(), private());
    let host = registry.host();
    let other = program.path("session/containers/auth.json");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::write(
        &other,
        format!(r#"{{"auths": {{"{host}": {{"auth": "YTpi"}}}}}}"#),
    )
    .unwrap();
    let output = login(&program, &host, LOGIN.1);
    let said = text(&output.stderr);
    assert!(said.contains(&other.display().to_string()), "{said}");
    let arguments = ["logout", "--authfile", other.to_str().unwrap(), &host];
    assert_eq!(program.output(&arguments).status.code(), Some(0));
    assert_eq!(
        inspect(&program, &registry, "team/app:v1"),
        (Some(0), String::new())
    );
}

#[test]
fn a_login_where_no_command_looks_says_how_it_is_used() {
    let (program, registry) = (Program::new(), private());
    let host = registry.host();
    let file = program.path("own.json");
    let file = file.to_str().unwrap();
    let output = login_with(&program, &["--authfile", file, &host], LOGIN.1);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(&format!("REGISTRY_AUTH_FILE={file}")), "{said}");
    let usual = text(&login(&program, &host, LOGIN.1).stderr);
    assert!(!usual.contains("REGISTRY_AUTH_FILE"), "{usual}");
}

#[test]
fn without_a_terminal_the_password_comes_from_standard_input_or_not_at_all() {
    let program = Program::new();
    for arguments in [
        &["login", "127.0.0.1:1"][..],
        &["login", "--username", "ann", "127.0.0.1:1"],
        &["login", "--password-stdin", "127.0.0.1:1"],
        &["login", "--username", "ann", "--password-stdin", "host/with/path"],
    ] {
        let output = program.output(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_terminal_shows_nothing_of_the_password() {
    let (program, registry) = (Program::new(), private());
    let host = registry.host();
    for (typed, code) in [
        (format!("{}\r", LOGIN.1), Some(0)),
        ("right:\u{3}".to_owned(), Some(125)),
    ] {
        let mut terminal = Terminal::new();
        let mut command = program.command(&["login", &host]);
        let command = command
            .stdin(terminal.side())
            .stderr(terminal.side())
            .stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        terminal.wait_for("User name");
        terminal.types("ann\n");
        terminal.wait_for("Password of ann");
        terminal.types(&typed);
        assert_eq!(child.wait().unwrap().code(), code, "{}", terminal.shows());
        assert!(!terminal.shows().contains("right"), "{}", terminal.shows());
        assert!(terminal.echoes(), "the terminal is left without echo");
    }
}
