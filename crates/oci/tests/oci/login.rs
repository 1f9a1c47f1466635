//! Proofs: passwords, tokens, refresh tokens, helpers; renewed before they end and when they are refused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use xebec_oci::{Client, ClientConfig, ClientError, Platform};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::support::{NAME, config, put_image, repository, tagged};

fn registry(access: Access) -> FaultyRegistry {
    FaultyRegistry::with(Options {
        access,
        ..Options::default()
    })
    .unwrap()
}

fn login(life: Duration) -> Access {
    Access::Token {
        life,
        login: Some(("user".to_owned(), "pass".to_owned())),
        refresh_token: Some("refresh".to_owned()),
    }
}

/// A client whose `config.json` says `entry` about `host`.
fn client_with(directory: &Path, host: &str, entry: &str) -> Client {
    let json = format!(r#"{{"auths": {{"{host}": {entry}}}}}"#);
    std::fs::write(directory.join("config.json"), json).unwrap();
    Client::new(ClientConfig {
        docker_config: Some(directory.to_owned()),
        ..config()
    })
    .unwrap()
}

const USER: &str = r#"{"auth": "dXNlcjpwYXNz"}"#;

fn amd64() -> Platform {
    Platform::linux("amd64")
}

#[tokio::test]
async fn every_kind_of_proof() {
    let directory = tempfile::tempdir().unwrap();
    let basic = Access::Basic {
        username: "user".to_owned(),
        password: "pass".to_owned(),
    };
    let long = Duration::from_secs(300);
    for (access, entry) in [
        (basic, USER),
        (login(long), USER),
        (login(long), r#"{"auth": "MDA6", "identitytoken": "refresh"}"#),
        (Access::anonymous_tokens(long), "{}"),
    ] {
        let registry = registry(access.clone());
        put_image(&registry, 1000);
        let client = client_with(directory.path(), &registry.host(), entry);
        let resolved = client.resolve(&tagged(&registry), &amd64()).await;
        resolved.unwrap_or_else(|error| panic!("{access:?}: {error}"));
        let refused = registry
            .log()
            .iter()
            .filter(|request| request.status == 401)
            .count();
        assert_eq!(
            refused, 1,
            "only the first request goes without proof: {access:?}"
        );
        let report = client.probe(&registry.host(), None).await.unwrap();
        assert_eq!(report.has_credentials, entry != "{}");
    }
}

#[tokio::test]
async fn wrong_or_missing_credentials_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let basic = Access::Basic {
        username: "user".to_owned(),
        password: "pass".to_owned(),
    };
    for access in [basic, login(Duration::from_secs(300))] {
        for entry in ["{}", r#"{"auth": "dXNlcjp3cm9uZw=="}"#] {
            let registry = registry(access.clone());
            put_image(&registry, 1000);
            let client = client_with(directory.path(), &registry.host(), entry);
            let error = client.resolve(&tagged(&registry), &amd64()).await.unwrap_err();
            assert!(matches!(error, ClientError::Unauthorized { .. }), "{error}");
            assert!(
                error
                    .to_string()
                    .contains(&format!("docker login {}", registry.host())),
                "{error}"
            );
            assert!(
                registry.log().len() <= 3,
                "no use in trying again: {:#?}",
                registry.log()
            );
        }
    }
}

#[tokio::test]
async fn one_token_for_many_readers() {
    let registry = registry(Access::anonymous_tokens(Duration::from_secs(300)));
    let image = put_image(&registry, 10_000);
    let client = Client::new(config()).unwrap();
    let repository = repository(&registry);
    let reads = (0..64u64).map(|n| client.blob_range(&repository, &image.layer_digest, n..n + 10));
    assert!(
        futures_util::future::join_all(reads)
            .await
            .into_iter()
            .all(|result| result.is_ok())
    );
    assert_eq!(registry.tokens_given(), 1);
    assert_eq!(client.stats().tokens, 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_the_read_goes_on() {
    let registry = registry(Access::anonymous_tokens(Duration::from_secs(300)));
    let image = put_image(&registry, 10_000);
    let client = Client::new(config()).unwrap();
    let repository = repository(&registry);
    client
        .blob_range(&repository, &image.layer_digest, 0..10)
        .await
        .unwrap();
    registry.expire_tokens();
    let reads = (0..16u64).map(|n| client.blob_range(&repository, &image.layer_digest, n..n + 10));
    assert!(
        futures_util::future::join_all(reads)
            .await
            .into_iter()
            .all(|result| result.is_ok())
    );
    assert_eq!(registry.tokens_given(), 2);
    assert_eq!(client.stats().retries, 0, "a renewal is not a failed try");
}

#[tokio::test]
async fn tokens_are_renewed_before_they_end_while_reads_go_on() {
    let registry = registry(Access::anonymous_tokens(Duration::from_secs(2)));
    let image = put_image(&registry, 10_000);
    let client = Client::new(config()).unwrap();
    let repository = repository(&registry);
    let start = std::time::Instant::now();
    let mut n = 0;
    while start.elapsed() < Duration::from_millis(4500) {
        client
            .blob_range(&repository, &image.layer_digest, n..n + 10)
            .await
            .unwrap();
        n += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = registry
        .log()
        .iter()
        .filter(|request| request.status == 401)
        .count();
    assert_eq!(refused, 1, "only the very first request was refused");
    assert!(
        (3..=4).contains(&registry.tokens_given()),
        "{}",
        registry.tokens_given()
    );
}

#[tokio::test]
async fn a_token_server_that_fails_is_tried_again() {
    let registry = registry(Access::anonymous_tokens(Duration::from_secs(300)));
    put_image(&registry, 1000);
    let unavailable = Fault::Status {
        code: 503,
        retry_after: None,
    };
    registry.inject(When::any().path("/token").times(2), unavailable);
    let client = Client::new(config()).unwrap();
    client.resolve(&tagged(&registry), &amd64()).await.unwrap();
    assert_eq!(client.stats().retries, 2);
}

#[tokio::test]
async fn a_new_login_needs_no_new_client() {
    let directory = tempfile::tempdir().unwrap();
    let registry = registry(login(Duration::from_secs(300)));
    put_image(&registry, 1000);
    let client = client_with(directory.path(), &registry.host(), "{}");
    client.resolve(&tagged(&registry), &amd64()).await.unwrap_err();
    client_with(directory.path(), &registry.host(), USER);
    client.resolve(&tagged(&registry), &amd64()).await.unwrap();
}

#[tokio::test]
async fn credential_helpers() {
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in [
        (
            "good",
            r#"printf '{"ServerURL":"%s","Username":"user","Secret":"pass"}' "$host""#,
        ),
        ("refresh", r#"echo '{"Username":"<token>","Secret":"refresh"}'"#),
        ("none", "echo credentials not found in native keychain; exit 1"),
        ("broken", "echo boom; exit 1"),
        ("nonsense", "echo hunter2"),
        ("slow", "exec sleep 60"),
    ] {
        let path = directory.path().join(format!("docker-credential-{name}"));
        std::fs::write(&path, format!("#!/bin/sh\nread host\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let outcome = |name: &'static str, store: bool| {
        let registry = registry(login(Duration::from_secs(300)));
        put_image(&registry, 1000);
        let json = if store {
            format!(
                r#"{{"credsStore": "{name}", "auths": {{"{}": {{}}}}}}"#,
                registry.host()
            )
        } else {
            format!(r#"{{"credHelpers": {{"{}": "{name}"}}}}"#, registry.host())
        };
        let file = directory.path().join(format!("{name}{store}.json"));
        std::fs::write(&file, json).unwrap();
        let mut config = ClientConfig {
            docker_config: Some(file),
            helper_directory: Some(directory.path().to_owned()),
            ..config()
        };
        if name == "slow" {
            config.budget.helper_timeout = Duration::from_millis(300);
        }
        let client = Client::new(config).unwrap();
        async move {
            client
                .resolve(&tagged(&registry), &amd64())
                .await
                .map(|_| ())
                .map_err(|e| e.to_string())
        }
    };
    for store in [true, false] {
        assert_eq!(outcome("good", store).await, Ok(()));
        assert_eq!(outcome("refresh", store).await, Ok(()));
    }
    for (name, said) in [
        ("none", "401"),
        ("broken", "boom"),
        ("nonsense", "not JSON"),
        ("slow", "no answer within"),
    ] {
        let error = outcome(name, false).await.unwrap_err();
        assert!(error.contains(said), "{name}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn scopes_are_asked_for_one_repository_at_a_time() {
    let registry = registry(Access::anonymous_tokens(Duration::from_secs(300)));
    put_image(&registry, 1000);
    let client = Client::new(config()).unwrap();
    client.resolve(&tagged(&registry), &amd64()).await.unwrap();
    let log = registry.log();
    let asked = log.iter().find(|request| request.head.path == "/token").unwrap();
    let scope = format!("repository%3A{}%3Apull", NAME.replace('/', "%2F"));
    assert!(asked.head.query.contains(&scope), "{}", asked.head.query);
}
