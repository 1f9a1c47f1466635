//! Proofs: passwords, tokens, refresh tokens, helpers; renewed before they end and when they are refused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use xebec_oci::credentials::{Credential, CredentialStore, Login, LoginFile, has_login};
use xebec_oci::{Client, ClientConfig, ClientError};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::support::{NAME, amd64, config, put_image, repository, tagged};

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
async fn a_login_that_was_taken_away_is_sent_until_it_is_to_be_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let basic = Access::Basic {
        username: "user".to_owned(),
        password: "pass".to_owned(),
    };
    for access in [basic, login(Duration::from_secs(300))] {
        let registry = registry(access);
        put_image(&registry, 1000);
        let client = client_with(directory.path(), &registry.host(), USER);
        let other = client.with_own_stats();
        client.resolve(&tagged(&registry), &amd64()).await.unwrap();
        std::fs::write(directory.path().join("config.json"), "{}").unwrap();
        other.resolve(&tagged(&registry), &amd64()).await.unwrap();
        client.forget_logins();
        let error = other.resolve(&tagged(&registry), &amd64()).await.unwrap_err();
        assert!(matches!(error, ClientError::Unauthorized { .. }), "{error}");
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
            let said = error.to_string();
            let file = directory.path().join("config.json");
            let sent = match entry {
                "{}" => format!(
                    "no login, as there is none for {} in {}",
                    registry.host(),
                    file.display()
                ),
                _ => format!("the login of \"user\" from {}", file.display()),
            };
            for part in [sent, format!("`xebec login {}`", registry.host())] {
                assert!(said.contains(&part), "{part:?} is not in {said:?}");
            }
            assert!(!said.contains("wrong"), "the password is in {said:?}");
            assert!(
                registry.log().len() <= 3,
                "no use in trying again: {:#?}",
                registry.log()
            );
        }
    }
}

/// A file that is damaged hides nothing that is public, and is named where its login is missed.
#[tokio::test]
async fn a_damaged_file_is_no_reason_to_refuse_what_is_public() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    let basic = Access::Basic {
        username: "user".to_owned(),
        password: "pass".to_owned(),
    };
    let long = Duration::from_secs(300);
    for access in [Access::anonymous_tokens(long), basic, login(long)] {
        let registry = registry(access.clone());
        put_image(&registry, 1000);
        let client = client_with(directory.path(), &registry.host(), USER);
        std::fs::write(&file, "{\n\"auths\": {\n").unwrap();
        let resolved = client.resolve(&tagged(&registry), &amd64()).await;
        if access == Access::anonymous_tokens(long) {
            resolved.unwrap();
            let report = client.probe(&registry.host(), None).await.unwrap();
            assert!(!report.has_credentials);
            continue;
        }
        let error = resolved.unwrap_err();
        assert!(matches!(error, ClientError::Unauthorized { .. }), "{error}");
        let said = error.to_string();
        let path = file.display().to_string();
        for part in [path.as_str(), "line 3", "sent no login"] {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
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

fn basic(username: &str, password: &str) -> Credential {
    Credential::Basic {
        username: username.to_owned(),
        password: password.to_owned(),
    }
}

/// The answers of registries to a login before it is stored, for each way in which they ask for one.
#[tokio::test]
async fn a_login_is_tried_before_it_is_stored() {
    let accesses = [
        Access::Basic {
            username: "user".to_owned(),
            password: "pass".to_owned(),
        },
        login(Duration::from_secs(300)),
    ];
    for access in accesses {
        let registry = registry(access);
        let check = async |password: &str| {
            let login = Login {
                credential: basic("user", password),
                from: "the command line".to_owned(),
            };
            let config = ClientConfig {
                login: Some(login),
                ..config()
            };
            Client::new(config).unwrap().check_login(&registry.host()).await
        };
        assert!(check("pass").await.unwrap());
        let error = check("wrong").await.unwrap_err();
        assert!(matches!(error, ClientError::Unauthorized { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("\"user\" from the command line"), "{said}");
    }
    let open = registry(Access::Open);
    let client = Client::new(config()).unwrap();
    assert!(!client.check_login(&open.host()).await.unwrap(), "nobody asked");
}

fn stored(file: &Path) -> LoginFile {
    LoginFile::new(file, file.parent(), Duration::from_secs(5))
}

async fn known(file: &Path, registry: &str) -> Option<Credential> {
    let store = CredentialStore::new(Some(file), file.parent(), Duration::from_secs(5));
    store.look_up(registry, "team/app").await.unwrap()
}

#[tokio::test]
async fn logins_are_stored_and_removed_and_nothing_else_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("new/config.json");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    stored(&file)
        .store("r.example:5000", "user", "p:1")
        .await
        .unwrap();
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let others = r#"{"HttpHeaders": {"X": "y"}, "auths": {"other.example": {"auth": "bzpw", "x": 1}}, "psFormat": "t"}"#;
    std::fs::write(&file, others).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let link = directory.path().join("link.json");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for registry in ["docker.io", "r.example:5000"] {
        let place = stored(&link).store(registry, "user", "p:1").await.unwrap();
        assert_eq!(place, file.canonicalize().unwrap().display().to_string());
    }
    assert_eq!(mode(&file), 0o600);
    assert!(link.is_symlink());
    assert_eq!(known(&file, "docker.io").await, Some(basic("user", "p:1")));
    assert_eq!(known(&file, "r.example:5000").await, Some(basic("user", "p:1")));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    // Where docker looks for its own registry.
    assert!(json["auths"]["https://index.docker.io/v1/"]["auth"].is_string());
    for registry in ["docker.io", "r.example:5000"] {
        assert!(stored(&link).remove(registry).await.unwrap());
        assert!(!stored(&link).remove(registry).await.unwrap());
        assert_eq!(known(&file, registry).await, None);
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(others).unwrap());
    // A file of another kind stays as it is.
    for wrong in ["[]", "{", r#"{"auths": 1}"#] {
        std::fs::write(&file, wrong).unwrap();
        let error = stored(&file)
            .store("r.example", "user", "pass")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("config.json"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), wrong);
    }
}

#[tokio::test]
async fn a_login_under_a_url_is_removed_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    // As old tools wrote it. The last one is of one repository.
    let config = r#"{"auths": {"https://r.example:5000/v2/": {"auth": "dTpw"}, "r.example:5000": {"auth": "dTpw"},
        "r.example:5000/team": {"auth": "dTpw"}}}"#;
    std::fs::write(&file, config).unwrap();
    assert!(stored(&file).remove("r.example:5000").await.unwrap());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let left: Vec<&String> = json["auths"].as_object().unwrap().keys().collect();
    assert_eq!(left, ["r.example:5000/team"]);
}

#[tokio::test]
async fn logins_go_to_the_helper_that_the_file_names() {
    let directory = tempfile::tempdir().unwrap();
    let vault = directory.path().join("vault");
    let script = format!(
        "#!/bin/sh\nread -r it\ncase $1 in\nstore) echo \"$it\" > {0} ;;\nget) [ -f {0} ] && cat {0} || {{ echo credentials not found; exit 1; }} ;;\n\
         erase) [ -f {0} ] && rm {0} || {{ echo credentials not found; exit 1; }} ;;\nesac\n",
        vault.display()
    );
    let program = directory.path().join("docker-credential-vault");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for json in [
        r#"{"credsStore": "vault"}"#,
        r#"{"credHelpers": {"r.example": "vault"}}"#,
        r#"{"credHelpers": {"R.Example": "vault"}}"#,
    ] {
        let file = directory.path().join("config.json");
        std::fs::write(&file, json).unwrap();
        let place = stored(&file).store("r.example", "user", "pass").await.unwrap();
        assert!(place.contains("docker-credential-vault"), "{place}");
        assert!(!std::fs::read_to_string(&file).unwrap().contains("auth\":"));
        assert_eq!(known(&file, "r.example").await, Some(basic("user", "pass")));
        assert!(stored(&file).remove("r.example").await.unwrap());
        assert!(!vault.exists());
        assert!(!stored(&file).remove("r.example").await.unwrap());
    }
}

/// A file as `podman login` writes it, with logins for parts of a registry.
#[tokio::test]
async fn podmans_file_is_read() {
    let registry = registry(login(Duration::from_secs(300)));
    put_image(&registry, 1000);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("auth.json");
    let host = registry.host();
    let json = format!(
        r#"{{"auths": {{"{host}": {{"auth": "YTpi"}}, "{host}/{NAME}": {{"auth": "dXNlcjpwYXNz"}}, "{host}/team": {{"auth": "YTpi"}}}}}}"#
    );
    std::fs::write(&file, json).unwrap();
    assert!(has_login(&file, &host, NAME));
    let client = Client::new(ClientConfig {
        docker_config: Some(file),
        ..config()
    });
    client
        .unwrap()
        .resolve(&tagged(&registry), &amd64())
        .await
        .unwrap();
}
