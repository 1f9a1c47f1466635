//! A registry with an image in it, and the program's errors when the registry does not give what it is asked for.

use std::time::Duration;

use xebec_testkit::compression::Compression;
use xebec_testkit::image::ImageBuilder;
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};
use xebec_testkit::tar::TarBuilder;

use crate::program::{Program, text};

/// Name and password of the only login that such a registry takes.
pub(crate) const LOGIN: (&str, &str) = ("ann", "right:one");

/// A registry with the image `team/app:v1`.
pub(crate) fn registry(access: Access) -> FaultyRegistry {
    let registry = FaultyRegistry::with(Options {
        access,
        ..Options::default()
    });
    let registry = registry.unwrap();
    let mut tar = TarBuilder::new();
    tar.file("file", "contents");
    let layer = ImageBuilder::new().layer(&tar.into_bytes(), Compression::Gzip(1));
    let image = layer.unwrap().build();
    for blob in image.layers.iter().chain([&image.config]) {
        registry.put_blob("team/app", blob.bytes.clone());
    }
    let manifest = &image.manifest;
    registry.put_manifest("team/app", "v1", &manifest.media_type, manifest.bytes.clone());
    registry
}

/// A registry that gives tokens to users who log in.
pub(crate) fn private() -> FaultyRegistry {
    let (name, password) = LOGIN;
    registry(Access::Token {
        life: Duration::from_secs(300),
        login: Some((name.to_owned(), password.to_owned())),
        refresh_token: None,
    })
}

/// Exit code and errors of `inspect`.
pub(crate) fn inspect(program: &Program, registry: &FaultyRegistry, image: &str) -> (Option<i32>, String) {
    let output = program.output(&["inspect", &format!("{}/{image}", registry.host())]);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn what_is_not_there_is_named_and_what_is_there_instead() {
    let (program, registry) = (Program::new(), registry(Access::Open));
    let host = registry.host();
    assert_eq!(
        inspect(&program, &registry, "team/app:v1"),
        (Some(0), String::new())
    );
    assert_eq!(
        inspect(&program, &registry, "team/app:1"),
        (
            Some(3),
            format!("xebec: {host}/team/app has no tag \"1\"; it has: v1\n")
        )
    );
    assert_eq!(
        inspect(&program, &registry, "team/ap:v1"),
        (
            Some(3),
            format!("xebec: there is no repository {host}/team/ap; check the spelling of its name\n")
        )
    );
}

#[test]
fn a_refusal_says_which_login_was_sent_and_from_which_file() {
    let (program, registry) = (Program::new(), private());
    let host = registry.host();
    let (code, said) = inspect(&program, &registry, "team/app:v1");
    assert_eq!(code, Some(4));
    for part in ["sent no login", &format!("`xebec login {host}`")] {
        assert!(said.contains(part), "{said}");
    }
    // As `podman login` writes it, by the command's own user.
    let file = program.path("session/containers/auth.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(
        &file,
        format!(r#"{{"auths": {{"{host}/team": {{"auth": "YW5uOndyb25n"}}}}}}"#),
    )
    .unwrap();
    let (code, said) = inspect(&program, &registry, "team/app:v1");
    assert_eq!(code, Some(4));
    let wanted = format!("the login of \"ann\" from {}", file.display());
    assert!(said.contains(&wanted), "{said}");
    std::fs::write(
        &file,
        format!(r#"{{"auths": {{"{host}/team": {{"auth": "YW5uOnJpZ2h0Om9uZQ=="}}}}}}"#),
    )
    .unwrap();
    assert_eq!(
        inspect(&program, &registry, "team/app:v1"),
        (Some(0), String::new())
    );
}

#[test]
fn a_damaged_file_of_logins_is_named_before_and_in_the_refusal() {
    let (program, registry) = (Program::new(), private());
    let file = program.path("session/containers/auth.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "{\n  \"auths\": {\n").unwrap();
    let (code, said) = inspect(&program, &registry, "team/app:v1");
    assert_eq!(code, Some(4), "{said}");
    let (warning, refusal) = said.split_once('\n').unwrap();
    let path = file.display().to_string();
    for line in [warning, refusal] {
        assert!(line.contains(&path) && line.contains("line 3"), "{said}");
    }
    assert!(warning.starts_with("xebec: warning: "), "{said}");
    let doctor = program.output(&["doctor"]);
    let doctor = text(&doctor.stdout);
    let wanted = format!("warn  logins: {path} is no file of logins");
    assert!(doctor.contains(&wanted), "{doctor}");
    // Another file has a login: it is used, and the damaged one is named all the same.
    let docker = program.path(".docker/config.json");
    std::fs::create_dir_all(docker.parent().unwrap()).unwrap();
    let host = registry.host();
    let login = format!(r#"{{"auths": {{"{host}": {{"auth": "YW5uOnJpZ2h0Om9uZQ=="}}}}}}"#);
    std::fs::write(&docker, login).unwrap();
    let (code, said) = inspect(&program, &registry, "team/app:v1");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.starts_with("xebec: warning: ") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn the_settings_of_registries_are_named_by_their_file() {
    let program = Program::new();
    // This host by a name that is not loopback's, at which nobody listens.
    let output = program.output(&["inspect", "0.0.0.0:1/team/app:v1"]);
    assert_eq!(output.status.code(), Some(4));
    let file = program.path("root/registries.toml").canonicalize();
    let file = file.unwrap_or_else(|_| program.path("root/registries.toml"));
    let said = text(&output.stderr);
    assert!(said.contains(&file.display().to_string()), "{said}");
    // Loopback is spoken to without TLS anyway.
    let output = program.output(&["inspect", "127.0.0.1:1/team/app:v1"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("check its name and port") && !said.contains("plain_http"),
        "{said}"
    );
}

#[test]
fn one_try_is_counted_as_one() {
    let (program, registry) = (Program::new(), registry(Access::Open));
    registry.inject(
        When::manifest(),
        Fault::Status {
            code: 400,
            retry_after: None,
        },
    );
    let (code, said) = inspect(&program, &registry, "team/app:v1");
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("HTTP status 400") && said.contains("after 1 try"),
        "{said}"
    );
}
