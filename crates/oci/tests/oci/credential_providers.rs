//! Programs as the kubelet runs them: what they are asked, what becomes of their answers, and that no secret is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xebec_oci::credentials::providers::ProviderSettings;
use xebec_oci::credentials::{Credential, CredentialError, CredentialStore};

const CONFIG: &str = r#"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: cloud   # a comment
    matchImages:
      - "*.cloud.example"
      - cloud.example:5000/team
    defaultCacheDuration: "12h"
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    args: [get, --quick]
    env:
      - name: REGION
        value: north
  - name: per-pod
    matchImages: [pods.example]
    defaultCacheDuration: 0s
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    tokenAttributes:
      serviceAccountTokenAudience: pods
      requireServiceAccount: true
"#;

struct Providers {
    top: tempfile::TempDir,
}

impl Providers {
    fn new(config: &str) -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("config.yaml"), config).unwrap();
        fs::create_dir(top.path().join("bin")).unwrap();
        Self { top }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.top.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        let text = self.path("script");
        fs::write(&text, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // By another process: a test that forks meanwhile would hold the file open for writing, and nobody could run it.
        let mut copy = Command::new("cp");
        let status = copy.arg(&text).arg(self.path("bin").join(name)).status().unwrap();
        assert!(status.success());
    }

    async fn look_up(&self, registry: &str, repository: &str) -> Result<Option<Credential>, CredentialError> {
        let providers = ProviderSettings {
            config: self.path("config.yaml"),
            directory: self.path("bin"),
        };
        let store = CredentialStore::new(Some(Path::new("/nonexistent")), None, Duration::from_secs(10))
            .and_files(&[], &[self.path("kept.json")])
            .and_providers(Some(providers));
        store.look_up(registry, repository).await
    }
}

fn basic(username: &str, password: &str) -> Option<Credential> {
    Some(Credential::Basic {
        username: username.to_owned(),
        password: password.to_owned(),
    })
}

fn answer(auth: &str) -> String {
    format!(
        "cat <<'END'\n{{\"kind\":\"CredentialProviderResponse\",\
         \"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"cacheKeyType\":\"Registry\",\
         \"cacheDuration\":\"1h0m0s\",\"auth\":{auth}}}\nEND\n"
    )
}

#[tokio::test]
async fn a_provider_is_asked_for_its_images_only_and_each_time() {
    let providers = Providers::new(CONFIG);
    let log = providers.path("log");
    let script = format!(
        "printf '%s %s %s ' \"$1\" \"$2\" \"$REGION\" >>{log}; cat >>{log}; echo >>{log}\n{}",
        answer(r#"{"*.cloud.example": {"username": "AWS", "password": "hunter2"}}"#),
        log = log.display()
    );
    providers.program("cloud", &script);
    assert_eq!(providers.look_up("other.example", "app").await.unwrap(), None);
    assert!(!log.exists());
    for _ in 0..2 {
        let found = providers.look_up("eu.cloud.example", "team/app").await.unwrap();
        assert_eq!(found, basic("AWS", "hunter2"));
    }
    // Asked, but what it gives is for others.
    assert_eq!(
        providers.look_up("cloud.example:5000", "team/app").await.unwrap(),
        None
    );
    let asked = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = asked.lines().collect();
    let question = r#"get --quick north {"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"eu.cloud.example/team/app"}"#;
    assert_eq!(lines.first(), Some(&question));
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn files_come_first() {
    let providers = Providers::new(CONFIG);
    providers.program("cloud", "exit 1");
    let kept = r#"{"auths": {"eu.cloud.example/team/app": {"username": "kept", "password": "p"}}}"#;
    fs::write(providers.path("kept.json"), kept).unwrap();
    let found = providers.look_up("eu.cloud.example", "team/app").await.unwrap();
    assert_eq!(found, basic("kept", "p"));
    assert!(providers.look_up("eu.cloud.example", "other").await.is_err());
}

#[tokio::test]
async fn a_file_that_is_damaged_hides_no_provider() {
    let providers = Providers::new(CONFIG);
    fs::write(providers.path("kept.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    providers.program(
        "cloud",
        &answer(r#"{"*.cloud.example": {"username": "AWS", "password": "p"}}"#),
    );
    let found = providers.look_up("eu.cloud.example", "app").await.unwrap();
    assert_eq!(found, basic("AWS", "p"));
    let error = providers
        .look_up("other.example", "app")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kept.json") && error.contains("mebibyte"),
        "{error}"
    );
}

#[tokio::test]
async fn what_fails_is_named_without_its_secrets() {
    for (script, expected) in [
        ("exit 3", "it failed"),
        ("echo 'hunter2 {'", "not JSON as agreed"),
        (
            "echo '{\"kind\":\"Pod\",\"password\":\"hunter2\"}'",
            "another kind",
        ),
    ] {
        let providers = Providers::new(CONFIG);
        providers.program("cloud", script);
        let error = providers
            .look_up("eu.cloud.example", "app")
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("credential provider cloud for eu.cloud.example/app"),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let providers = Providers::new(CONFIG);
    let error = providers.look_up("eu.cloud.example", "app").await.unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    let providers = Providers::new("providers: [");
    let error = providers.look_up("eu.cloud.example", "app").await.unwrap_err();
    assert!(error.to_string().contains("config.yaml"), "{error}");
    let outside = CONFIG.replace("name: cloud ", "name: ../bin/sh ");
    let error = Providers::new(&outside)
        .look_up("eu.cloud.example", "app")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("name must be"), "{error}");
}

#[tokio::test]
async fn one_that_needs_a_pod_is_passed_over() {
    let providers = Providers::new(CONFIG);
    providers.program(
        "per-pod",
        &answer(r#"{"pods.example": {"username": "u", "password": "p"}}"#),
    );
    assert_eq!(providers.look_up("pods.example", "app").await.unwrap(), None);
}

#[tokio::test]
async fn json_will_do_and_no_file_is_no_provider() {
    let json = r#"{"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [
        {"name": "cloud", "matchImages": ["cloud.example"], "defaultCacheDuration": "1h",
         "apiVersion": "credentialprovider.kubelet.k8s.io/v1"}]}"#;
    let providers = Providers::new(json);
    providers.program(
        "cloud",
        &answer(r#"{"cloud.example": {"username": "u", "password": "p"}}"#),
    );
    assert_eq!(
        providers.look_up("cloud.example", "app").await.unwrap(),
        basic("u", "p")
    );
    fs::remove_file(providers.path("config.yaml")).unwrap();
    assert_eq!(providers.look_up("cloud.example", "app").await.unwrap(), None);
}
