//! Credentials as users of podman, skopeo and docker already have them: `auth.json`, `config.json` and credential helpers.
//!
//! The file is read again for each look-up, so that `docker login` needs no restart of Xebec; look-ups are rare
//! because [`crate::auth`] keeps what they give for a few minutes. The order is docker's: a helper named for
//! the registry (`credHelpers`), then the helper for all (`credsStore`), then the file's own `auths`. As in
//! containers/image, an entry of `auths` may also name a path below a registry. Then come files of the same kind that
//! others keep for Xebec, and the kubelet's credential providers ([`providers`]).

mod credential;
pub(crate) mod entries;
mod files;
pub(crate) mod helper;
pub mod providers;
mod sent;
mod stored;

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose;
use credential::read_bytes;
pub use credential::{Credential, CredentialError};
use entries::{DockerConfig, helper_for, keys_of};
pub use files::{count_logins, docker_file, find_login, has_login, usual_files};
use helper::{program, run_helper};
use providers::ProviderSettings;
pub use sent::{Login, SentLogin};
pub use stored::LoginFile;

/// Where credentials come from. Files of podman have the form of docker's.
#[derive(Debug, Clone, Default)]
pub struct CredentialStore {
    /// The login that is used in place of any login of the files.
    login: Option<Login>,
    /// Files as docker writes them, in the order in which they are asked.
    files: Vec<PathBuf>,
    helper_directory: Option<PathBuf>,
    providers: Option<ProviderSettings>,
    helper_timeout: Duration,
}

impl CredentialStore {
    /// Reads from `config` (the file, or the directory it is in), or from the files that podman, skopeo and docker have for the user
    /// of this process. Helpers are looked for in `helper_directory`, then in `PATH`.
    pub fn new(config: Option<&Path>, helper_directory: Option<&Path>, helper_timeout: Duration) -> Self {
        let files = match config {
            Some(path) if path.is_dir() => vec![path.join("config.json")],
            Some(path) => vec![path.to_owned()],
            None => usual_files(),
        };
        let helper_directory = helper_directory.map(Path::to_owned);
        Self {
            login: None,
            files,
            helper_directory,
            providers: None,
            helper_timeout,
        }
    }

    /// Also asks these files, which need not exist, `before` and after the user's.
    #[must_use]
    pub fn and_files(mut self, before: &[PathBuf], after: &[PathBuf]) -> Self {
        self.files.splice(0..0, before.iter().cloned());
        self.files.extend_from_slice(after);
        self
    }

    /// Also asks these programs, after all files.
    #[must_use]
    pub fn and_providers(mut self, providers: Option<ProviderSettings>) -> Self {
        self.providers = providers;
        self
    }

    /// Uses this login for every registry, and asks nobody else.
    #[must_use]
    pub fn only(mut self, login: Option<Login>) -> Self {
        self.login = login;
        self
    }

    /// The note that no login was found. It lists the files without one.
    pub(crate) fn nothing_sent(&self, registry: &str) -> SentLogin {
        SentLogin::Nothing {
            registry: registry.to_owned(),
            files: self.files.clone(),
        }
    }

    /// The credentials for `repository` of `registry` (`host[:port]`); `None` if there are none.
    ///
    /// # Errors
    /// If a file is there but cannot be used, or a helper fails.
    pub async fn look_up(
        &self,
        registry: &str,
        repository: &str,
    ) -> Result<Option<Credential>, CredentialError> {
        let found = self.find(registry, repository).await?;
        Ok(found.map(|login| login.credential))
    }

    /// The same, and where they are from.
    ///
    /// # Errors
    /// If a file is there but cannot be used, or a helper fails.
    pub async fn find(&self, registry: &str, repository: &str) -> Result<Option<Login>, CredentialError> {
        if let Some(login) = &self.login {
            return Ok(Some(login.clone()));
        }
        // One that cannot be asked hides none of the others; it is told if those know nothing.
        let mut problem = None;
        for file in &self.files {
            match self.look_into(file, registry, repository).await {
                Ok(Some(login)) => return Ok(Some(login)),
                Ok(None) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if let Some(providers) = &self.providers {
            let found = providers.look_up(registry, repository, self.helper_timeout);
            match found.await {
                Ok(Some(credential)) => {
                    let from = "a credential provider of the kubelet".to_owned();
                    return Ok(Some(Login { credential, from }));
                }
                Ok(None) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(None), Err)
    }

    async fn look_into(
        &self,
        file: &Path,
        registry: &str,
        repository: &str,
    ) -> Result<Option<Login>, CredentialError> {
        let Some(config) = read(file).await? else {
            return Ok(None);
        };
        let keys = keys_of(registry);
        let key = keys.first().map(String::as_str);
        let named = helper_for(config.cred_helpers.iter(), &keys);
        // Other programs may have stored it by the host as the file spells it.
        let spelled = named.filter(|(host, _)| Some(*host) != key);
        let spelled = spelled.map(|(host, helper)| (helper, host));
        let named = named.map(|(_, helper)| helper).zip(key);
        let for_all = config
            .creds_store
            .as_ref()
            .filter(|name| !name.is_empty())
            .zip(key);
        for (helper, key) in named.into_iter().chain(spelled).chain(for_all) {
            let program = program(self.helper_directory.as_deref(), helper);
            if let Some(credential) = run_helper(&program, helper, key, self.helper_timeout).await? {
                let from = format!("docker-credential-{helper}, which {} names", file.display());
                return Ok(Some(Login { credential, from }));
            }
        }
        let found = config.credential(file, &keys, repository)?;
        let from = file.display().to_string();
        Ok(found.map(|credential| Login { credential, from }))
    }
}

async fn read(path: &Path) -> Result<Option<DockerConfig>, CredentialError> {
    let bytes = read_bytes(path).await?;
    bytes.map(|bytes| DockerConfig::parse(path, &bytes)).transpose()
}

/// The value of an `Authorization: Basic` header.
pub(crate) fn basic_header(username: &str, password: &str) -> String {
    format!(
        "Basic {}",
        general_purpose::STANDARD.encode(format!("{username}:{password}"))
    )
}

#[cfg(test)]
mod tests {
    use xebec_format::docker_hub::DOCKER_HUB_NAMES;

    use super::*;

    async fn look_up(
        json: &str,
        registry: &str,
        repository: &str,
    ) -> Result<Option<Credential>, CredentialError> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), json).unwrap();
        let store = CredentialStore::new(Some(directory.path()), None, Duration::from_secs(5));
        store.look_up(registry, repository).await
    }

    fn basic(username: &str, password: &str) -> Credential {
        Credential::Basic {
            username: username.to_owned(),
            password: password.to_owned(),
        }
    }

    /// Else the old password would be used now and then, after a login that gave a new one.
    #[tokio::test]
    async fn of_several_spellings_of_a_host_the_one_that_a_login_writes_counts() {
        let json = r#"{"auths": {
            "R.EXAMPLE": {"username": "old", "password": "p"},
            "r.example": {"username": "new", "password": "p"},
            "https://R.Example/v2/": {"username": "older", "password": "p"},
            "docker.io": {"username": "old", "password": "p"},
            "index.docker.io": {"username": "old", "password": "p"},
            "https://index.docker.io/v1/": {"username": "new", "password": "p"}
        }}"#;
        for registry in ["r.example", "docker.io"] {
            // Each time the file is read, its entries come in another order.
            for _ in 0..20 {
                let found = look_up(json, registry, "team/app").await.unwrap();
                assert_eq!(found, Some(basic("new", "p")), "{registry}");
            }
        }
    }

    #[tokio::test]
    async fn entries_of_the_file() {
        let json = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnB3OjE="},
            "r.example:5000": {"username": "u", "password": "p"},
            "https://old.example/v2/": {"auth": "bzpw"},
            "r.example:5000/team/v2": {"username": "v2", "password": "p"},
            "r.example:5000/team/app": {"auth": "dGVhbTpw"},
            "acr.example": {"auth": "MDA6", "identitytoken": "refresh"},
            "empty.example": {}, "null.example": null, "bad.example": {"auth": "%%%"}
        }}"#;
        let get = |registry, repository| look_up(json, registry, repository);
        assert_eq!(
            get("docker.io", "library/x").await.unwrap(),
            Some(basic("hub", "pw:1"))
        );
        assert_eq!(get("r.example:5000", "x").await.unwrap(), Some(basic("u", "p")));
        assert_eq!(
            get("r.example:5000", "team/app/sub").await.unwrap(),
            Some(basic("team", "p"))
        );
        assert_eq!(
            get("r.example:5000", "team/application").await.unwrap(),
            Some(basic("u", "p"))
        );
        assert_eq!(get("old.example", "x").await.unwrap(), Some(basic("o", "p")));
        assert_eq!(
            get("r.example:5000", "team/v2").await.unwrap(),
            Some(basic("v2", "p"))
        );
        assert_eq!(
            get("r.example:5000", "team").await.unwrap(),
            Some(basic("u", "p"))
        );
        assert_eq!(
            get("acr.example", "x").await.unwrap(),
            Some(Credential::IdentityToken("refresh".to_owned()))
        );
        for none in ["empty.example", "null.example", "other.example", "r.example"] {
            assert_eq!(get(none, "x").await.unwrap(), None, "{none}");
        }
        assert!(matches!(
            get("bad.example", "x").await,
            Err(CredentialError::Parse { .. })
        ));
    }

    #[tokio::test]
    async fn a_login_for_one_name_of_docker_hub_counts_for_all() {
        let keys = DOCKER_HUB_NAMES.iter().map(|name| (*name).to_owned());
        let urls = DOCKER_HUB_NAMES.iter().map(|name| format!("https://{name}/v1/"));
        for key in keys.chain(urls) {
            let json = format!(r#"{{"auths": {{"{key}": {{"auth": "aHViOnB3OjE="}}}}}}"#);
            for name in DOCKER_HUB_NAMES {
                let found = look_up(&json, name, "library/x").await.unwrap();
                assert_eq!(found, Some(basic("hub", "pw:1")), "{name} by {key}");
            }
            assert_eq!(look_up(&json, "docker.io.example", "x").await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn no_file_is_no_credentials_but_a_broken_one_is_an_error() {
        let store = CredentialStore::new(
            Some(Path::new("/nonexistent/config.json")),
            None,
            Duration::from_secs(1),
        );
        assert_eq!(store.look_up("r.example", "x").await.unwrap(), None);
        assert!(matches!(
            look_up("{", "r.example", "x").await,
            Err(CredentialError::Parse { .. })
        ));
        assert_eq!(look_up("{}", "r.example", "x").await.unwrap(), None);
        assert_eq!(
            look_up("\n", "r.example", "x").await.unwrap(),
            None,
            "as docker has it"
        );
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_file_is_said_by_its_line_and_without_its_secrets() {
        for (json, said) in [
            ("{\n \"auths\": {\n}", "line 3"),
            (
                "{\"auths\":\n {\"r.example\": \"aHVudGVyMg==\"}}",
                "line 2 column",
            ),
            (
                "{\"auths\": {\"r.example\": {\"auth\": \"aHVudGVyMg==\"}}}",
                "of r.example, the \"auth\" entry",
            ),
        ] {
            let error = look_up(json, "r.example", "x").await.unwrap_err().to_string();
            assert!(error.contains("config.json") && error.contains(said), "{error}");
            assert!(
                !error.contains("aHVudGVyMg") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        assert!(!format!("{:?}", basic("u", "hunter2")).contains("hunter2"));
        assert!(!format!("{:?}", Credential::IdentityToken("hunter2".to_owned())).contains("hunter2"));
    }

    #[tokio::test]
    async fn helpers_that_cannot_run_or_may_not() {
        let error = look_up(
            r#"{"credHelpers": {"r.example": "xebec-none"}}"#,
            "r.example",
            "x",
        )
        .await
        .unwrap_err();
        assert!(
            error.to_string().contains("docker-credential-xebec-none"),
            "{error}"
        );
        let error = look_up(r#"{"credsStore": "../x"}"#, "r.example", "x")
            .await
            .unwrap_err();
        assert!(error.to_string().contains("slash"), "{error}");
    }
}
