//! The configuration of a mirror: `[[mirror]]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use xebec_oci::{Budget, ClientConfig, Repository};
use xebec_settings::pattern::{RepositoryPattern, TagPattern};
use xebec_settings::{period, size};
use xebec_store::RepositoryName;
use xebec_upstream::UpstreamSettings;

/// Blobs and tags that are copied at the same time.
const USUAL_JOBS: usize = 4;
/// The most of them: registries refuse clients that ask for more.
const MOST_JOBS: usize = 64;

/// A copy of another registry's repositories.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorSettings {
    /// `host[:port]`, and perhaps a prefix of names: `registry.example.com/team`.
    pub source: String,
    /// Patterns of whole names there. Names without a star need no list of repositories, which many registries do not give.
    #[serde(default)]
    pub repositories: Vec<RepositoryPattern>,
    /// Patterns of tags; all, if there are none.
    #[serde(default)]
    pub tags: Vec<TagPattern>,
    /// The prefix of the names here; empty: none.
    #[serde(default)]
    pub to: String,
    /// How often a registry that serves does it; never by itself, if it is absent.
    #[serde(default, deserialize_with = "period::some_duration")]
    pub every: Option<Duration>,
    /// Whether the source is spoken to without TLS.
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
    /// Hosts that the source may redirect to or name as its token server, whatever their addresses are.
    #[serde(default)]
    pub internal_hosts: Vec<String>,
    /// Bytes of blobs in a second, at most.
    #[serde(default, deserialize_with = "size::some_bytes")]
    pub rate: Option<u64>,
    /// Blobs and tags that are copied at the same time.
    #[serde(default = "usual_jobs")]
    pub jobs: usize,
    /// Whether tags go here that the source has no longer.
    #[serde(default)]
    pub prune: bool,
}

fn usual_jobs() -> usize {
    USUAL_JOBS
}

/// Why settings of a mirror cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MirrorSettingsError {
    /// No host, or something else than a name after it.
    #[error(
        "the source {0:?} of a mirror is no registry: write \"host\", \"host:port\" or \"host/prefix\", without \"https://\""
    )]
    Source(String),
    /// A prefix that begins no repository's name.
    #[error(
        "the mirror of {source_name} puts its repositories below {to:?}, which is no name of a repository: write parts of a-z and 0-9, as in \"mirror/hub\""
    )]
    To {
        /// The source.
        source_name: String,
        /// The prefix as it is written.
        to: String,
    },
    /// None, or too many.
    #[error("the mirror of {0} has jobs = {1}; write a number from 1 to {MOST_JOBS}")]
    Jobs(String, usize),
    /// More often than it can be of use.
    #[error(
        "the mirror of {0} is to be made more often than each minute; write every = \"1m\", or a longer time"
    )]
    Every(String),
    /// Its login is not whole, or the client refuses something else.
    #[error("the mirror of {0}: {1}")]
    Client(String, String),
}

impl MirrorSettings {
    /// All of one registry, or what is below a prefix there.
    pub fn new(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            repositories: Vec::new(),
            tags: Vec::new(),
            to: String::new(),
            every: None,
            plain_http: false,
            ca_file: None,
            username: None,
            password_env: None,
            docker_config: None,
            internal_hosts: Vec::new(),
            rate: None,
            jobs: USUAL_JOBS,
            prune: false,
        }
    }

    /// The registry, and the prefix of names there.
    pub(super) fn parts(&self) -> (&str, &str) {
        let (registry, prefix) = self.source.split_once('/').unwrap_or((&self.source, ""));
        (registry, prefix.trim_end_matches('/'))
    }

    /// Whether all of it can be used, but for what is in the environment.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(&self) -> Result<(), MirrorSettingsError> {
        let (registry, prefix) = self.parts();
        let is_host = registry.contains(['.', ':']) || registry == "localhost";
        let name = if prefix.is_empty() { "a" } else { prefix };
        if !is_host || Repository::new(registry, name).is_err() {
            return Err(MirrorSettingsError::Source(self.source.clone()));
        }
        if !self.to.is_empty() && self.to.parse::<RepositoryName>().is_err() {
            return Err(MirrorSettingsError::To {
                source_name: self.source.clone(),
                to: self.to.clone(),
            });
        }
        if !(1..=MOST_JOBS).contains(&self.jobs) {
            return Err(MirrorSettingsError::Jobs(self.source.clone(), self.jobs));
        }
        if self.every.is_some_and(|every| every < Duration::from_secs(60)) {
            return Err(MirrorSettingsError::Every(self.source.clone()));
        }
        Ok(())
    }

    /// How the client of the source is set up: as that of an upstream, but nobody waits for it.
    pub(super) fn client(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<ClientConfig, MirrorSettingsError> {
        let (registry, _) = self.parts();
        let mut settings = UpstreamSettings::new(registry, registry);
        settings.plain_http = self.plain_http;
        settings.ca_file.clone_from(&self.ca_file);
        settings.username.clone_from(&self.username);
        settings.password_env.clone_from(&self.password_env);
        settings.docker_config.clone_from(&self.docker_config);
        settings.internal_hosts.clone_from(&self.internal_hosts);
        let client = settings.client(variable);
        let mut client =
            client.map_err(|error| MirrorSettingsError::Client(self.source.clone(), error.to_string()))?;
        client.budget = Budget {
            max_concurrent_per_registry: self.jobs.max(2),
            ..Budget::default()
        };
        Ok(client)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn parsed(text: &str) -> MirrorSettings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_source_is_a_registry_and_perhaps_a_prefix() {
        let settings = parsed("source = \"r.example.com:5000/team/app\"\nevery = \"6h\"\nrate = \"10m\"");
        assert_eq!(settings.parts(), ("r.example.com:5000", "team/app"));
        assert_eq!(settings.every, Some(Duration::from_secs(21_600)));
        assert_eq!(settings.rate, Some(10 << 20));
        settings.check().unwrap();
        for wrong in [
            "https://r.example.com",
            "team/app",
            "",
            "r.example.com/Team",
            "r.example.com/../x",
        ] {
            assert!(MirrorSettings::new(wrong).check().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let mut settings = MirrorSettings::new("r.example.com");
        settings.to = "A".to_owned();
        assert!(settings.check().unwrap_err().to_string().contains("\"A\""));
        settings.to.clear();
        settings.jobs = 0;
        assert!(settings.check().unwrap_err().to_string().contains("jobs = 0"));
        settings.jobs = 1;
        settings.every = Some(Duration::from_secs(1));
        assert!(settings.check().unwrap_err().to_string().contains("1m"));
        settings.every = None;
        settings.username = Some("robot".to_owned());
        settings.password_env = Some("P".to_owned());
        assert!(
            settings
                .client(|_| None)
                .unwrap_err()
                .to_string()
                .contains("variable P")
        );
        let client = settings.client(|_| Some("secret".to_owned())).unwrap();
        assert!(!format!("{client:?}").contains("secret"));
    }
}
