//! The settings of the daemon: `<root>/daemon.toml`, and options of `xebec daemon start`, which win.
//!
//! ```toml
//! cache_size = "20GB"       # evict what is not in use beyond this; without it the file system is the limit
//! fill_wait = "10m"         # how long a reader waits for missing bytes before it gets EIO
//! slow_reader = "10s"       # a reader who waits longer is named in the log
//! metrics = "127.0.0.1:9469"   # where the daemon serves metrics; nowhere by default
//! log = "json"              # or "text", the default
//! linger = "5m"             # how long a view stays mounted for the next start when nobody uses it any more; "0s": not at all
//! learn = true              # keep profiles of starts with a probe, for `xebec record --merge`
//!
//! [snapshotter]             # containerd may start its containers by this daemon; see docs/containerd.md
//! enabled = true
//! socket = "/run/xebec/snapshots.sock"   # the default, below the run directory
//! address = "/run/containerd/containerd.sock"   # the default: where containerd says of which image a container is
//! unproven = "refuse"       # what becomes of a container whose image's name wants more than vouches for its layers
//! image_service = "/run/containerd/containerd.sock"   # pass Kubernetes' image service on to there, and keep its logins
//! login_age = "720h"        # how long a login is kept that no pull brings again; for as long as there is room by default
//! docker_config = "/root/.docker/config.json"   # credentials for images that containerd asks for
//!
//! [[prefetch]]              # images whose start-up pages are here before they are started; see docs/starts-ahead.md
//! image = "registry.example.com/app:stable"
//! services = ["nginx -g"]   # those that begin so; all that were recorded by default
//! complete = "2h"           # bring all of the image in, too, within about that time; not by default
//! every = "5m"              # how often the registry is asked whether the tag has moved; the default
//! platform = "linux/arm64"  # the host's by default
//! docker_config = "/root/.docker/config.json"   # credentials
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xebec_kernel::size::Bytes;
use xebec_oci::config::duration_text;
use xebec_oci::{Platform, Reference};

use crate::failure::{Failure, FailureKind};
use crate::paths::Paths;

/// Where containerd listens if nobody says otherwise.
pub const USUAL_CONTAINERD: &str = "/run/containerd/containerd.sock";

/// Settings of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How much the cache may take on its file system, in bytes; no limit of its own when absent.
    pub cache_size: Option<Size>,
    /// How long a reader waits for missing bytes before it gets an error.
    #[serde(with = "duration_text")]
    pub fill_wait: Duration,
    /// A reader who waits longer than this is named in the log.
    #[serde(with = "duration_text")]
    pub slow_reader: Duration,
    /// How long a view stays mounted when nobody uses it any more.
    #[serde(with = "duration_text")]
    pub linger: Duration,
    /// Where metrics are served over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// How log lines look.
    pub log: LogFormat,
    /// Whether Xebec keeps profiles of starts with a probe, some of each service.
    #[serde(deserialize_with = "switch")]
    pub learn: bool,
    /// Whether and where containerd is served.
    pub snapshotter: SnapshotterSettings,
    /// Images whose start-up pages are brought in before they are started.
    #[serde(deserialize_with = "prefetched_images")]
    pub prefetch: Vec<PrefetchSettings>,
    /// The settings that were given on the command line, for a daemon that starts itself again.
    #[serde(skip)]
    pub given: Overrides,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_size: None,
            fill_wait: Duration::from_secs(600),
            slow_reader: Duration::from_secs(10),
            linger: Duration::from_secs(300),
            metrics: None,
            log: LogFormat::Text,
            learn: false,
            snapshotter: SnapshotterSettings::default(),
            prefetch: Vec::new(),
            given: Overrides::new(),
        }
    }
}

/// The most images of which start-up pages are brought in before they are started: each costs its registry a request now and then.
const MOST_PREFETCHED: usize = 200;
/// A registry is not asked more often than this whether a tag has moved.
const LEAST_EVERY: Duration = Duration::from_secs(10);

/// An image whose start-up pages are brought in before it is started.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetchSettings {
    /// The image, by its reference.
    pub image: String,
    /// The services, by the begin of their command lines; all that were recorded if there is none.
    #[serde(default)]
    pub services: Vec<String>,
    /// All of the image is brought in, too, within about this time.
    #[serde(default, deserialize_with = "some_duration")]
    pub complete: Option<Duration>,
    /// How often the registry is asked whether the reference leads to another image.
    #[serde(default = "usual_every", with = "duration_text")]
    pub every: Duration,
    /// A registry that tells what changes is heard.
    #[serde(default = "yes")]
    pub watch: bool,
    /// The platform; the host's when absent.
    #[serde(default)]
    pub platform: Option<String>,
    /// A docker `config.json` with credentials.
    #[serde(default)]
    pub docker_config: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

fn usual_every() -> Duration {
    Duration::from_secs(300)
}

fn prefetched_images<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<PrefetchSettings>, D::Error> {
    let images = Vec::<PrefetchSettings>::deserialize(deserializer)?;
    match images.len() > MOST_PREFETCHED {
        true => {
            let message = format!(
                "prefetch lists {} images; {MOST_PREFETCHED} are allowed",
                images.len()
            );
            return Err(serde::de::Error::custom(message));
        }
        false => images.iter().try_for_each(check_prefetched::<D::Error>)?,
    }
    Ok(images)
}

fn check_prefetched<E: serde::de::Error>(image: &PrefetchSettings) -> Result<(), E> {
    let wrong = |problem: String| Err(E::custom(format!("prefetch of {:?}: {problem}", image.image)));
    if let Err(error) = image.image.parse::<Reference>() {
        return wrong(error.to_string());
    }
    if let Some(Err(error)) = image
        .platform
        .as_ref()
        .map(|platform| platform.parse::<Platform>())
    {
        return wrong(error.to_string());
    }
    match image.every < LEAST_EVERY {
        true => wrong(format!("every is below {} s", LEAST_EVERY.as_secs())),
        false => Ok(()),
    }
}

/// Whether and where containerd is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotterSettings {
    /// Whether it is.
    pub enabled: bool,
    /// At which socket; `snapshots.sock` in the run directory when absent.
    pub socket: Option<PathBuf>,
    /// Where containerd listens; where calls of the image service go when absent, and else where it usually does.
    pub address: Option<PathBuf>,
    /// The rule for containers whose names do not vouch for lazy layers.
    pub unproven: Unproven,
    /// Where containerd listens, if the kubelet's calls of the image service are to be passed on to it.
    pub image_service: Option<PathBuf>,
    /// How long a login of a pull is kept that no pull brings again; no limit when absent.
    #[serde(deserialize_with = "some_duration")]
    pub login_age: Option<Duration>,
    /// A docker `config.json` with credentials for images that containerd asks for.
    pub docker_config: Option<PathBuf>,
}

impl SnapshotterSettings {
    /// Where containerd connects, if it is served.
    pub fn socket(&self, paths: &Paths) -> Option<PathBuf> {
        let usual = || paths.run().join("snapshots.sock");
        self.enabled.then(|| self.socket.clone().unwrap_or_else(usual))
    }

    /// The socket of the containerd that says of which image a container is, if it is to be asked.
    pub fn owners(&self) -> Option<PathBuf> {
        let address = self.address.clone().or_else(|| self.image_service.clone());
        let address = address.unwrap_or_else(|| PathBuf::from(USUAL_CONTAINERD));
        (self.unproven != Unproven::Allow).then_some(address)
    }
}

/// The rule for a container whose image is named by its digest, or is another repository's, on lazy layers that were admitted for a
/// name that needed less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unproven {
    /// It is not started, and the error tells the remedy.
    #[default]
    Refuse,
    /// The layers are read whole and proven, and it is started then.
    Prove,
    /// It is started, and containerd is not asked.
    Allow,
}

fn some_duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration_text::deserialize(deserializer).map(Some)
}

/// Yes or no; also as a word, as options give it.
fn switch<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Switch {
        Is(bool),
        Word(String),
    }
    let word = match Switch::deserialize(deserializer)? {
        Switch::Is(value) => return Ok(value),
        Switch::Word(word) => word,
    };
    let wrong = |_| serde::de::Error::custom(format!("{word:?} is neither true nor false"));
    word.parse().map_err(wrong)
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is no log format: use text or json")),
        }
    }
}

/// The options that `xebec daemon start` was given; the same names as in the file, absent where not given.
pub type Overrides = serde_json::Map<String, serde_json::Value>;

impl Settings {
    /// Reads `file`, which need not exist, and puts `overrides` over it.
    ///
    /// # Errors
    /// When the file cannot be read, or has names or values that mean nothing.
    pub fn load(file: &Path, overrides: &Overrides) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::host(format!("read {}", file.display()), error)),
        };
        Settings::parse(&text, overrides).map_err(|error| {
            let given = match overrides.is_empty() {
                true => "",
                false => " and the options that were given",
            };
            let error = error.to_string();
            let elsewhere = misplaced(&text, file);
            let message = format!("{}{given}: {}{elsewhere}", file.display(), error.trim_end());
            Failure::new(FailureKind::Usage, message)
        })
    }

    /// Reads a file's text, and puts `overrides` over it.
    ///
    /// # Errors
    /// Names or values that mean nothing, with the line.
    pub fn parse(text: &str, overrides: &Overrides) -> Result<Self, toml::de::Error> {
        let mut table: toml::Table = toml::from_str(text)?;
        for (name, value) in overrides {
            let value = toml::Value::try_from(value).map_err(serde::de::Error::custom)?;
            table.insert(name.clone(), value);
        }
        let mut settings: Settings = table.try_into()?;
        settings.given = overrides.clone();
        Ok(settings)
    }
}

/// The message about settings of registries that stand in the file of the daemon: where they belong.
fn misplaced(text: &str, file: &Path) -> String {
    let Ok(table) = toml::from_str::<toml::Table>(text) else {
        return String::new();
    };
    let names = xebec_oci::config::SETTINGS;
    let names: Vec<&str> = table
        .keys()
        .map(String::as_str)
        .filter(|name| names.contains(name))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    let place = file.with_file_name("registries.toml");
    format!("\n{} belongs into {}", names.join(", "), place.display())
}

/// A number of bytes on disk, written as `512MB`, `20GiB`, `512m`, or a bare number ([`Bytes::on_disk`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Bytes::on_disk(text) {
            Ok(Bytes(bytes)) => Ok(Size(bytes)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_what_wins_over_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("daemon.toml");
        assert_eq!(
            Settings::load(&file, &Overrides::new()).unwrap(),
            Settings::default()
        );
        std::fs::write(&file, "cache_size = \"20GiB\"\nslow_reader = \"3s\"\n").unwrap();
        let mut overrides = Overrides::new();
        overrides.insert("slow_reader".to_owned(), "500ms".into());
        overrides.insert("learn".to_owned(), "true".into());
        let settings = Settings::load(&file, &overrides).unwrap();
        assert_eq!(settings.cache_size, Some(Size(20 << 30)));
        assert_eq!(settings.slow_reader, Duration::from_millis(500));
        assert!(settings.learn);
        for wrong in [
            "cache_sise = \"1GB\"",
            "cache_size = \"much\"",
            "fill_wait = \"7\"",
            "learn = \"yes\"",
            "[snapshotter]\nenable = true",
            "[snapshotter]\nlogin_age = \"30 days\"",
            "x",
        ] {
            std::fs::write(&file, wrong).unwrap();
            let failure = Settings::load(&file, &Overrides::new()).unwrap_err();
            assert!(failure.to_string().contains("daemon.toml"), "{failure}");
        }
    }

    #[test]
    fn settings_of_registries_are_sent_to_their_own_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("daemon.toml");
        for (text, name) in [
            ("plain_http = [\"a:5000\"]", "plain_http"),
            ("[budget]\nattempts = 1", "budget"),
        ] {
            std::fs::write(&file, text).unwrap();
            let said = Settings::load(&file, &Overrides::new()).unwrap_err().to_string();
            let place = directory.path().join("registries.toml");
            let wanted = format!("{name} belongs into {}", place.display());
            assert!(said.ends_with(&wanted), "{said}");
        }
        std::fs::write(&file, "cache_sise = \"1GB\"").unwrap();
        let said = Settings::load(&file, &Overrides::new()).unwrap_err().to_string();
        assert!(!said.contains("belongs"), "{said}");
    }

    #[test]
    fn sizes() {
        assert_eq!("512MB".parse(), Ok(Size(512_000_000)));
        assert_eq!("1 GiB".parse(), Ok(Size(1 << 30)));
        assert_eq!("7".parse(), Ok(Size(7)));
        // As those of `run`.
        assert_eq!("1m".parse(), Ok(Size(1 << 20)));
        assert_eq!("1.5g".parse(), Ok(Size(3 << 29)));
        assert_eq!("0".parse(), Ok(Size(0)));
        for wrong in ["", "GB", "1XB", "99999999999TB", "-1"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
