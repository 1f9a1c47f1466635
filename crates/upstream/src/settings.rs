//! The settings of an upstream: `[[upstream]]` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use xebec_oci::credentials::{Credential, Login};
use xebec_oci::{Budget, ClientConfig};

use xebec_settings::{period, size};
use xebec_store::RepositoryName;

use crate::names;

/// The file of logins where an upstream has no credentials: an empty one. Logins of the user who starts the server are not the server's.
const NO_LOGINS: &str = "/dev/null";

/// One other registry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSettings {
    /// The beginning of its repositories' names here; empty for all names that no other upstream has.
    pub prefix: String,
    /// `host[:port]`; `docker.io` for Docker's.
    pub registry: String,
    /// Whether it is spoken to without TLS.
    #[serde(default)]
    pub plain_http: bool,
    /// A PEM file with certificate authorities to trust beside those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The user name of the login there.
    #[serde(default)]
    pub username: Option<String>,
    /// The environment variable that has the password.
    #[serde(default)]
    pub password_env: Option<String>,
    /// Instead of name and password: a file of logins as docker and podman write it.
    #[serde(default)]
    pub docker_config: Option<PathBuf>,
    /// Hosts that this upstream may redirect to or name as its token server, whatever their addresses are.
    #[serde(default)]
    pub internal_hosts: Vec<String>,
    /// For how long a tag, or a list of referrers, counts without the upstream being asked again.
    #[serde(default = "ten_minutes", deserialize_with = "period::duration")]
    pub tag_ttl: Duration,
    /// For how long it is remembered that the upstream lacks something.
    #[serde(default = "half_a_minute", deserialize_with = "period::duration")]
    pub negative_ttl: Duration,
    /// For how long a client whose answer is here waits for the upstream to say whether it is still right.
    #[serde(default = "a_second", deserialize_with = "period::duration")]
    pub wait: Duration,
    /// For how long the upstream is tried for what is not here.
    #[serde(default = "twenty_seconds", deserialize_with = "period::duration")]
    pub patience: Duration,
    /// Whether a blob is fetched whole behind a client that reads a range of it.
    #[serde(default = "yes")]
    pub whole: bool,
    /// How much room copies of its images may take, in bytes: of those that are not used now, the longest unused go.
    #[serde(default, deserialize_with = "size::some_bytes")]
    pub keep: Option<u64>,
    /// For how long a copy stays that nobody uses.
    #[serde(default, deserialize_with = "period::some_duration")]
    pub keep_for: Option<Duration>,
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

fn a_second() -> Duration {
    Duration::from_secs(1)
}

fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}

fn yes() -> bool {
    true
}

/// Why settings of an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A prefix that begins no repository's name.
    #[error(
        "the prefix {0:?} of an upstream is no name of a repository: write parts of a-z and 0-9, as in \"docker.io\""
    )]
    Prefix(String),
    /// Two upstreams with one prefix.
    #[error("two upstreams have the prefix {0:?}; give each its own")]
    Twice(String),
    /// Something else than `host[:port]`.
    #[error(
        "the registry {registry:?} of the upstream {prefix:?} is no host: write \"host\" or \"host:port\", without \"https://\""
    )]
    Registry {
        /// Which upstream.
        prefix: String,
        /// The value of `registry`.
        registry: String,
    },
    /// A name without a password, or a password without a name.
    #[error("the upstream {0:?} has one of username and password_env; write both, or none")]
    HalfALogin(String),
    /// The environment has no password.
    #[error(
        "the upstream {prefix:?} takes its password from the environment variable {variable}, which is not set"
    )]
    NoPassword {
        /// Which upstream.
        prefix: String,
        /// The variable.
        variable: String,
    },
    /// The client refuses the rest.
    #[error("the upstream {prefix:?}: {reason}")]
    Client {
        /// Which upstream.
        prefix: String,
        /// Why.
        reason: String,
    },
}

impl UpstreamSettings {
    /// With nothing but a prefix and a host.
    pub fn new(prefix: &str, registry: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            registry: registry.to_owned(),
            plain_http: false,
            ca_file: None,
            username: None,
            password_env: None,
            docker_config: None,
            internal_hosts: Vec::new(),
            tag_ttl: ten_minutes(),
            negative_ttl: half_a_minute(),
            wait: a_second(),
            patience: twenty_seconds(),
            whole: true,
            keep: None,
            keep_for: None,
        }
    }

    /// The one of these that a repository is of: the one with the longest prefix.
    pub fn of<'a>(settings: &'a [Self], repository: &RepositoryName) -> Option<&'a Self> {
        let fits = settings
            .iter()
            .filter(|settings| names::below(&settings.prefix, repository.as_str()).is_some());
        fits.max_by_key(|settings| settings.prefix.len())
    }

    /// Whether copies of its images go at some time.
    pub fn is_limited(&self) -> bool {
        self.keep.is_some() || self.keep_for.is_some()
    }

    /// How the client of this upstream is set up. `variable` reads the environment.
    ///
    /// # Errors
    /// If the login is not complete.
    pub fn client(&self, variable: impl Fn(&str) -> Option<String>) -> Result<ClientConfig, SettingsError> {
        let mut config = ClientConfig {
            ca_files: self.ca_file.iter().cloned().collect(),
            internal_hosts: self.internal_hosts.clone(),
            docker_config: Some(self.docker_config.clone().unwrap_or_else(|| NO_LOGINS.into())),
            login: self.login(variable)?,
            budget: self.budget(),
            user_agent: concat!("xebec-registry/", env!("CARGO_PKG_VERSION")).to_owned(),
            ..ClientConfig::default()
        };
        if self.plain_http {
            config.plain_http.push(self.registry.clone());
        }
        Ok(config)
    }

    /// A client of this server waits, so an upstream is given up sooner than by a host that starts a container.
    fn budget(&self) -> Budget {
        Budget {
            attempts: 3,
            max_delay: Duration::from_secs(2),
            total_deadline: self.patience,
            connect_timeout: self.patience.min(Duration::from_secs(5)),
            response_timeout: self.patience,
            ..Budget::default()
        }
    }

    fn login(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Login>, SettingsError> {
        let (username, name) = match (&self.username, &self.password_env) {
            (None, None) => return Ok(None),
            (Some(username), Some(name)) => (username.clone(), name),
            _ => return Err(SettingsError::HalfALogin(self.prefix.clone())),
        };
        let password = variable(name).ok_or_else(|| SettingsError::NoPassword {
            prefix: self.prefix.clone(),
            variable: name.clone(),
        })?;
        Ok(Some(Login {
            credential: Credential::Basic { username, password },
            from: format!("the configuration of the upstream {:?}", self.prefix),
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_whole_or_absent() {
        let mut settings: UpstreamSettings = toml::from_str(
            "prefix = \"hub\"\nregistry = \"docker.io\"\nusername = \"u\"\npassword_env = \"P\"\ntag_ttl = \"5m\"",
        )
        .unwrap();
        assert_eq!(settings.tag_ttl, Duration::from_secs(300));
        let client = settings
            .client(|name| (name == "P").then(|| "secret".to_owned()))
            .unwrap();
        assert!(client.login.is_some());
        assert!(!format!("{client:?}").contains("secret"));
        let error = settings.client(|_| None).unwrap_err().to_string();
        assert!(error.contains("variable P"), "{error}");
        settings.username = None;
        assert!(matches!(
            settings.client(|_| None),
            Err(SettingsError::HalfALogin(_))
        ));
        settings.password_env = None;
        // The logins of the user who started the server are not used.
        let client = settings.client(|_| None).unwrap();
        assert_eq!(client.docker_config, Some(PathBuf::from(NO_LOGINS)));
    }
}
