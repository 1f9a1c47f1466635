//! Scopes and headers as clients write them.

use base64::Engine as _;
use proptest::prelude::*;
use xebec_access::action::{Action, Actions, Need};
use xebec_access::challenge::{Challenge, TokenFault};
use xebec_access::credentials::{Credentials, CredentialsError};
use xebec_access::scope::{AccessEntry, Scope, ScopeError};

fn repository(name: &str, actions: Actions) -> Scope {
    Scope::Repository {
        name: name.to_owned(),
        actions,
    }
}

#[test]
fn scopes_are_read_as_docker_writes_them() {
    for (text, expected) in [
        ("repository:team/app:pull", repository("team/app", Actions::PULL)),
        (
            "repository:team/app:pull,push",
            repository("team/app", Actions::PULL_AND_PUSH),
        ),
        (
            "repository:team/app:push,pull,delete,fly",
            repository("team/app", Actions::ALL),
        ),
        ("repository:team/app:*", repository("team/app", Actions::ALL)),
        (
            "repository:host:5000/app:pull",
            repository("host:5000/app", Actions::PULL),
        ),
        ("registry:catalog:*", Scope::Catalog),
        ("registry:catalog:pull", Scope::Unknown),
        ("repository(plugin):team/app:pull", Scope::Unknown),
    ] {
        assert_eq!(Scope::parse(text), Ok(expected), "{text}");
    }
    for text in [
        "",
        "repository",
        "repository:a",
        ":a:pull",
        "repository::pull",
        "repository:a\"b:pull",
    ] {
        assert!(
            matches!(Scope::parse(text), Err(ScopeError::Malformed(_))),
            "{text}"
        );
    }
    let several = Scope::parse_all(["repository:a:pull repository:b:push", "registry:catalog:*"]).unwrap();
    assert_eq!(several.len(), 3);
    let flood = "repository:a:pull ".repeat(101);
    assert_eq!(Scope::parse_all([flood.as_str()]), Err(ScopeError::TooMany));
}

#[test]
fn a_challenge_names_what_the_request_needs() {
    let bearer = Challenge::Bearer {
        realm: "https://r.example/token".to_owned(),
        service: "r.example".to_owned(),
    };
    let need = |repository: &str, action| Need {
        repository: repository.to_owned(),
        action,
    };
    assert_eq!(
        bearer.header(&[need("b", Action::Push), need("a", Action::Pull)], None),
        r#"Bearer realm="https://r.example/token",service="r.example",scope="repository:a:pull repository:b:pull,push""#
    );
    assert_eq!(
        bearer.header(&[need("", Action::Catalog)], Some(TokenFault::InsufficientScope)),
        r#"Bearer realm="https://r.example/token",service="r.example",scope="registry:catalog:*",error="insufficient_scope""#
    );
    assert_eq!(
        bearer.header(&[], None),
        r#"Bearer realm="https://r.example/token",service="r.example""#
    );
    let basic = Challenge::Basic {
        realm: "a \"b\"\r\nX: y".to_owned(),
    };
    assert_eq!(
        basic.header(&[], None),
        "Basic realm=\"a bX: y\", charset=\"UTF-8\""
    );
}

#[test]
fn credentials_are_read_as_clients_send_them() {
    let password = |name: &str, password: &str| {
        Ok(Credentials::Password {
            name: name.to_owned(),
            password: password.to_owned(),
        })
    };
    assert_eq!(
        Credentials::parse(b"Basic YW5uYTpzZWNyZXQ="),
        password("anna", "secret")
    );
    assert_eq!(
        Credentials::parse(b"basic YW5uYTpzZWNyZXQ"),
        password("anna", "secret")
    );
    assert_eq!(
        Credentials::parse(b"Basic YW5uYTphOmI6Yw=="),
        password("anna", "a:b:c")
    );
    assert_eq!(
        Credentials::parse(b"BEARER a.b.c"),
        Ok(Credentials::Bearer("a.b.c".to_owned()))
    );
    for (value, expected) in [
        (&b"Basic !!!"[..], CredentialsError::Damaged),
        (b"Basic YW5uYQ==", CredentialsError::Damaged),
        (b"Bearer ", CredentialsError::Damaged),
        (b"Bearer a\"b", CredentialsError::Damaged),
        (b"Digest x", CredentialsError::Scheme),
        (b"Basic", CredentialsError::Scheme),
        (b"", CredentialsError::Scheme),
        (b"Basic \xff", CredentialsError::Damaged),
    ] {
        assert_eq!(Credentials::parse(value), Err(expected), "{value:?}");
    }
    assert_eq!(
        Credentials::parse(&[b'x'; 40_000]),
        Err(CredentialsError::TooLong)
    );
    let shown = format!("{:?}", Credentials::parse(b"Basic YW5uYTpzZWNyZXQ=").unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}

proptest! {
    #[test]
    fn a_scope_that_is_read_says_the_same_again(text in "(repository|registry|x):[a-z:/]{1,8}:([a-z*]{0,6},?){0,4}") {
        if let Ok(scope) = Scope::parse(&text) {
            if let Some(entry) = AccessEntry::of(&scope) {
                prop_assert_eq!(entry.scope(), scope.clone());
            }
            if !matches!(scope, Scope::Unknown) {
                prop_assert_eq!(Scope::parse(&scope.to_string()), Ok(scope));
            }
        }
    }

    #[test]
    fn any_header_is_read_or_refused(bytes: Vec<u8>, name in "[^:\\x00]{0,10}", password in "\\PC{0,10}") {
        let _ = Credentials::parse(&bytes);
        let _ = Scope::parse_all([String::from_utf8_lossy(&bytes).as_ref()]);
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
        prop_assert_eq!(Credentials::parse(format!("Basic {encoded}").as_bytes()), Ok(Credentials::Password { name, password }));
    }
}
