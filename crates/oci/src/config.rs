//! The registry settings of a user: a section of Xebec's TOML configuration.
//!
//! Everything has a default that suits a public registry; `docs/registries.md` shows the file. Durations are
//! written as `"500ms"`, `"30s"`, `"5m"`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use xebec_format::docker_hub::registry_name;

use crate::credentials::Login;
use crate::credentials::providers::ProviderSettings;
use crate::reference::split_host_port;

/// The name by which messages call the file of these settings where its path is not known.
pub(crate) const SETTINGS_FILE: &str = "registries.toml";

/// The names of all settings, at the top of the file.
pub const SETTINGS: [&str; 9] = [
    "plain_http",
    "ca_files",
    "mirrors",
    "registries",
    "internal_hosts",
    "docker_config",
    "helper_directory",
    "credential_providers",
    "budget",
];

/// Settings of a [`crate::Client`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// Registries (`host[:port]`) that are spoken to without TLS. Loopback registries need no entry: TLS is
    /// tried first, then plain HTTP, as docker does.
    pub plain_http: Vec<String>,
    /// PEM files with certificate authorities to trust beside those of the system.
    pub ca_files: Vec<PathBuf>,
    /// Mirrors by registry (`host[:port]`), tried in order before the registry itself.
    pub mirrors: HashMap<String, Vec<Mirror>>,
    /// What holds for single registries and mirrors, by `host[:port]`.
    pub registries: HashMap<String, RegistrySettings>,
    /// Hosts (`host` or `host[:port]`) that every registry may redirect to or name as its token server, whatever their
    /// addresses are.
    pub internal_hosts: Vec<String>,
    /// A file of logins, or the directory that docker's `config.json` is in. Default: the files of the user whose process this is
    /// ([`crate::credentials::usual_files`]).
    pub docker_config: Option<PathBuf>,
    /// Where `docker-credential-*` programs are looked for before `PATH`, which services often have a short one of.
    pub helper_directory: Option<PathBuf>,
    /// Files as docker writes them that are asked before that one; they need not exist.
    #[serde(skip)]
    pub docker_configs_before: Vec<PathBuf>,
    /// The same after it.
    #[serde(skip)]
    pub docker_configs_after: Vec<PathBuf>,
    /// A login that is being tried. Registries are sent it in place of any login of the files.
    #[serde(skip)]
    pub login: Option<Login>,
    /// The kubelet's credential providers, which are asked after all files.
    pub credential_providers: Option<ProviderSettings>,
    /// The file that these settings are from, for messages that say where a setting belongs.
    #[serde(skip)]
    pub settings_file: PathBuf,
    /// How long, how often and how much at once.
    pub budget: Budget,
    /// How requests introduce themselves.
    pub user_agent: String,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            plain_http: Vec::new(),
            ca_files: Vec::new(),
            mirrors: HashMap::new(),
            registries: HashMap::new(),
            internal_hosts: Vec::new(),
            docker_config: None,
            helper_directory: None,
            docker_configs_before: Vec::new(),
            docker_configs_after: Vec::new(),
            login: None,
            credential_providers: None,
            settings_file: PathBuf::from(SETTINGS_FILE),
            budget: Budget::default(),
            user_agent: concat!("xebec/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// Another place that holds what a registry holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// `host[:port]`, or a URL `http[s]://host[:port][/prefix]`. A URL with `http` allows plain HTTP.
    pub url: String,
    /// Whether the mirror may say which image a tag means. Off by default: what a mirror answers to a digest
    /// can be verified, what it answers to a tag cannot.
    #[serde(default)]
    pub resolve_tags: bool,
}

/// What holds for one registry or mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrySettings {
    /// Whether it may be asked to answer a start in advance, if it says that it does so.
    pub native: bool,
    /// Whether it may be told then which layers and pages this host holds. Off by default: that says which images run here.
    pub tell_held: bool,
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            native: true,
            tell_held: false,
        }
    }
}

impl ClientConfig {
    /// What holds for the registry or mirror `name` (`host[:port]`). Where it is listed in several spellings, each may forbid.
    pub fn of_registry(&self, name: &str) -> RegistrySettings {
        let name = registry_name(name);
        let listed = self.registries.iter();
        let own = listed.filter(|(listed, _)| registry_name(listed).eq_ignore_ascii_case(name));
        let stricter = |one: RegistrySettings, other: RegistrySettings| RegistrySettings {
            native: one.native && other.native,
            tell_held: one.tell_held && other.tell_held,
        };
        own.map(|(_, settings)| *settings)
            .reduce(stricter)
            .unwrap_or_default()
    }
}

/// How much a registry is asked for, and how patiently.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Requests for manifests and ranges under way at one registry, from all containers together. Whole-blob
    /// streams have the same number again, so that a full pull cannot starve a reader.
    pub max_concurrent_per_registry: usize,
    /// Tries of one call without progress, the first included.
    pub attempts: u32,
    /// Longest pause before the second try; doubles with each further one. The pause is drawn evenly between
    /// zero and that ("full jitter"), so that hosts that failed together do not return together.
    #[serde(with = "duration_text")]
    pub base_delay: Duration,
    /// The doubling ends here.
    #[serde(with = "duration_text")]
    pub max_delay: Duration,
    /// Time for one call with all its tries. Streams are not bound by it while bytes arrive.
    #[serde(with = "duration_text")]
    pub total_deadline: Duration,
    /// Time to reach a registry, TLS included.
    #[serde(with = "duration_text")]
    pub connect_timeout: Duration,
    /// Time from a request to the head of its answer.
    #[serde(with = "duration_text")]
    pub response_timeout: Duration,
    /// A body that brings less than [`Budget::stall_bytes`] in this time is given up and resumed.
    #[serde(with = "duration_text")]
    pub stall_window: Duration,
    /// See [`Budget::stall_window`].
    pub stall_bytes: u64,
    /// Retries that one registry may be sent in a burst, from all calls together.
    pub retry_burst: u32,
    /// Further retries a second; when the burst is used up, retries wait for their turn.
    pub retries_per_second: f64,
    /// Time a credential helper may take.
    #[serde(with = "duration_text")]
    pub helper_timeout: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            // containerd downloads 3 layers at once and browsers open 6 connections; page-sized reads of many
            // containers gain from more, and public registries start to refuse well above this.
            max_concurrent_per_registry: 16,
            // Eight tries last about 12 s on average, which outlives the restart of a registry.
            attempts: 8,
            base_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(15),
            // A reader in the kernel waits for this; longer than that, an error is kinder.
            total_deadline: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(30),
            // 1.6 KB/s: slower than any line that could start a container.
            stall_window: Duration::from_secs(10),
            stall_bytes: 16 << 10,
            retry_burst: 32,
            retries_per_second: 4.0,
            helper_timeout: Duration::from_secs(30),
        }
    }
}

/// Whether `authority` (`host[:port]`) can only be this machine.
pub fn is_loopback(authority: &str) -> bool {
    let Some((host, _)) = split_host_port(authority) else {
        return false;
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Why a text is no duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a duration: expected a number and \"ms\", \"s\", \"m\" or \"h\", for example \"30s\"")]
pub struct DurationError(String);

/// Reads `"500ms"`, `"30s"`, `"5m"`, `"1h"`.
///
/// # Errors
/// If there is no whole number, no known unit, or the result is too large.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let refuse = || DurationError(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(refuse)?;
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    milliseconds.map(Duration::from_millis).ok_or_else(refuse)
}

/// For serde's `with`: a duration as [`parse_duration`] reads it.
pub mod duration_text {
    use super::{Duration, parse_duration};
    use serde::{Deserialize, Deserializer, de::Error};

    /// Reads a duration.
    ///
    /// # Errors
    /// Those of [`parse_duration`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        parse_duration(&text).map_err(D::Error::custom)
    }
}
