//! The configuration: read from a file, in which every key has a default, and checked whole before anything is done.
//!
//! An error names the file and the line. Passwords do not stand in the file: a key that ends in `_env` names the variable of the
//! environment that has it.

mod file;
mod places;
mod problem;
mod storage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use xebec_store::StoreConfig;

pub use file::LogFormat;

use crate::deduplication::DeduplicationSettings;
use crate::server::{Limits, ServerSettings, TlsSettings};
use crate::state::ApiSettings;
use file::File;
use problem::{Environment, Problem};
use xebec_access::settings::AuthSettings;
use xebec_events::audit::AuditSettings;
use xebec_events::webhooks::WebhookSettings;
use xebec_indexing::IndexingSettings;
use xebec_policy::copies::CopyRules;
use xebec_policy::immutability::Immutability;
use xebec_policy::mode::Mode;
use xebec_policy::quota::Quota;
use xebec_policy::rate::Rate;
use xebec_policy::retention::RetentionRule;
use xebec_transfer::MirrorSettings;
use xebec_upstream::UpstreamSettings;

/// A configuration file is small; what is larger is not one.
const MAX_SIZE: u64 = 1 << 20;

/// All that a registry is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens, and its limits.
    pub server: ServerSettings,
    /// Where it keeps what it has.
    pub store: StoreConfig,
    /// Which copies of blobs it keeps on which place.
    pub copies: CopyRules,
    /// How requests are carried out.
    pub api: ApiSettings,
    /// How often what nothing refers to is collected; never if zero.
    pub collect_every: Duration,
    /// How lines of the log are written.
    pub log_format: LogFormat,
    /// How layers are indexed.
    pub indexing: IndexingSettings,
    /// How each file is kept once.
    pub deduplication: DeduplicationSettings,
    /// Other registries whose images are fetched when they are asked for.
    pub upstreams: Vec<UpstreamSettings>,
    /// Other registries that are copied, some of them again and again.
    pub mirrors: Vec<MirrorSettings>,
    /// The rules about the rights of callers; without them, everybody may do everything.
    pub auth: Option<AuthSettings>,
    /// The log of who did what.
    pub audit: Option<AuditSettings>,
    /// The programs that hear of what happens.
    pub webhooks: Vec<WebhookSettings>,
    /// The tags that stay as they are.
    pub immutability: Immutability,
    /// The rules by which tags and manifests stay or go.
    pub retention: Vec<RetentionRule>,
    /// How much may be stored.
    pub quotas: Vec<Quota>,
    /// Whether anything may be written, or served, unless the file `mode` says otherwise.
    pub mode: Mode,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The problem, for people.
        problem: String,
    },
}

impl Config {
    /// The settings that hold without a file.
    pub fn usual() -> Self {
        let environment = |_: &str| None;
        // Every default is right by itself; the test `the_defaults_are_right` sees to that.
        convert(File::default(), &environment).unwrap_or_else(|_| Self {
            server: ServerSettings::default(),
            store: StoreConfig::new("/var/lib/xebec-registry"),
            copies: places::without_rules(&DeduplicationSettings::default()),
            api: ApiSettings::default(),
            collect_every: Duration::ZERO,
            log_format: LogFormat::Text,
            indexing: IndexingSettings::default(),
            deduplication: DeduplicationSettings::default(),
            upstreams: Vec::new(),
            mirrors: Vec::new(),
            auth: None,
            audit: None,
            webhooks: Vec::new(),
            immutability: Immutability::default(),
            retention: Vec::new(),
            quotas: Vec::new(),
            mode: Mode::default(),
        })
    }

    /// Reads a file, with the environment of this process.
    ///
    /// # Errors
    /// The problem, and its line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |cause| ConfigError::Read {
            path: path.to_owned(),
            cause,
        };
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > MAX_SIZE {
            let cause = std::io::Error::other(format!(
                "it has {size} bytes, and a configuration has {MAX_SIZE} at most"
            ));
            return Err(unreadable(cause));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, path, &|name| std::env::var(name).ok())
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The problem, and its line.
    pub fn parse(text: &str, path: &Path, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let file = toml::from_str(text).map_err(|error: toml::de::Error| Problem {
            at: error.span(),
            text: error.message().to_owned(),
        });
        let config = file.and_then(|file| convert(file, environment));
        config.map_err(|problem| ConfigError::Line {
            path: path.to_owned(),
            line: problem.at.map_or(1, |at| line(text, at.start)),
            problem: problem.text,
        })
    }
}

/// The line of a place, counted from 1.
fn line(text: &str, place: usize) -> usize {
    let before = text.as_bytes().iter().take(place);
    before.filter(|byte| **byte == b'\n').count() + 1
}

fn convert(file: File, environment: Environment<'_>) -> Result<Config, Problem> {
    let limits = &file.limits;
    let server = ServerSettings {
        listen: file.server.listen,
        tls: file.server.tls.map(|tls| TlsSettings {
            certificate: tls.certificate,
            key: tls.key,
        }),
        limits: Limits {
            connections: limits.connections,
            connections_per_client: limits.connections_per_client,
            requests_per_client: limits.requests_per_client,
            rate: Rate::new(limits.requests_per_second, limits.requests_burst),
            header_size: usize::try_from(limits.header_size.0).unwrap_or(usize::MAX),
            header_time: limits.header_time.0,
            idle: limits.idle.0,
            keep_alive: limits.keep_alive.0,
        },
        proxies: file.server.proxies.into_iter().map(|proxy| proxy.0).collect(),
        drain: file.server.drain.0,
    };
    let api = ApiSettings {
        max_manifest: file.manifests.max_size.0,
        max_blob: file.storage.max_blob.0,
        sparse: file.manifests.sparse,
        redirect: storage::redirect(&file.storage)?,
        ..ApiSettings::default()
    };
    let mut store = storage::store(file.storage, api.max_manifest, environment)?;
    store.places = places::places(file.places, &store, environment)?;
    Ok(Config {
        copies: places::copies(file.copies, &store.places, &file.deduplication)?,
        store,
        server,
        api,
        collect_every: file.collection.every.0,
        log_format: file.log.format,
        indexing: file.indexing,
        deduplication: file.deduplication,
        upstreams: file.upstream,
        mirrors: sound(file.mirrors, MirrorSettings::check)?,
        auth: file.auth.map(auth).transpose()?,
        audit: file.audit,
        webhooks: sound(file.webhooks, WebhookSettings::check)?,
        immutability: Immutability::new(file.immutable),
        retention: sound(file.retention, RetentionRule::check)?,
        quotas: file.quotas,
        mode: Mode {
            serving: file.mode.serving,
            reason: file.mode.reason,
        },
    })
}

fn auth(auth: Spanned<AuthSettings>) -> Result<AuthSettings, Problem> {
    let problems = auth.get_ref().problems();
    match problems.is_empty() {
        true => Ok(auth.into_inner()),
        false => Err(Problem {
            at: Some(auth.span()),
            text: problems.join("; "),
        }),
    }
}

/// The values of a list, if all of them can be used.
fn sound<T, E: std::fmt::Display>(
    listed: Vec<Spanned<T>>,
    check: impl Fn(&T) -> Result<(), E>,
) -> Result<Vec<T>, Problem> {
    let sound = |value: Spanned<T>| match check(value.get_ref()) {
        Ok(()) => Ok(value.into_inner()),
        Err(error) => Err(Problem {
            at: Some(value.span()),
            text: error.to_string(),
        }),
    };
    listed.into_iter().map(sound).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use xebec_store::{DatabaseConfig, ObjectsConfig};

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let environment =
            |name: &str| (name == "SECRET").then(|| "host=db.example password=s3cr3t".to_owned());
        Config::parse(text, Path::new("r.toml"), &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_right() {
        let usual = Config::usual();
        assert_eq!(usual.server.listen, ["127.0.0.1:5000"]);
        assert_eq!(usual.server.limits, Limits::default());
        assert_eq!(usual.collect_every, Duration::from_secs(3600));
        assert_eq!(usual.store.root, Path::new("/var/lib/xebec-registry"));
    }

    #[test]
    fn the_file_of_the_documents_is_the_defaults() {
        let text = include_str!("../../../../docs/registry.toml");
        let (written, usual) = (parse(text).unwrap(), Config::usual());
        assert_eq!(format!("{written:?}"), format!("{usual:?}"));
        // The settings that are commented out there are right, too.
        let all: Vec<&str> = text
            .lines()
            .map(|line| match line.strip_prefix("#: ") {
                Some(example) => example,
                None => line,
            })
            .collect();
        let all = all
            .join("\n")
            .replace("_env = \"XEBEC_REGISTRY_", "_env = \"SECRET\" # \"")
            // Only then clients are sent to a public endpoint.
            .replace("redirect = \"0s\"", "redirect = \"15m\"")
            // Only then copies are kept in files.
            .replace("enabled = false", "enabled = true");
        parse(&all).unwrap();
    }

    #[test]
    fn the_files_of_the_manifests_are_right() {
        let alone = include_str!("../../../../packaging/kubernetes/registry/registry.toml");
        let nodes = include_str!("../../../../packaging/kubernetes/registry-nodes/registry.toml");
        let environment = |name: &str| Some(format!("postgres://{name}@localhost/x"));
        for text in [alone, nodes] {
            let config = Config::parse(text, Path::new("r.toml"), &environment).unwrap();
            assert!(config.auth.is_some());
            // The pods have two minutes, of which five seconds pass before they are told.
            assert!(config.server.drain < Duration::from_secs(110));
        }
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| parse(text).unwrap_err();
        let at = |text: &str, line: usize, part: &str| {
            let error = error(text);
            assert!(error.starts_with(&format!("r.toml:{line}: ")), "{error}");
            assert!(error.contains(part), "{error}");
        };
        at("[server]\nlisten = [\":5000\"]\nlisen = 1\n", 3, "lisen");
        at("[limits]\n\nidle = \"soon\"", 3, "soon");
        at("[limits]\nheader_size = \"big\"", 2, "big");
        at(
            "[server]\nproxies = [\n \"10.0.0.0/8\",\n \"10.0.0.0/99\"]",
            4,
            "10.0.0.0/99",
        );
        at("[server\n", 1, "");
        at("[storage.postgres]\nurl_env = \"NOT_SET\"", 2, "NOT_SET");
        at(
            "[storage.s3]\nbucket = \"b\"\nsecret_key_env = \"NOT_SET\"",
            3,
            "NOT_SET",
        );
        at("[log]\nformat = \"yaml\"", 2, "yaml");
        let postgres = "[storage.postgres]\nurl_env = \"SECRET\"";
        at(&format!("{postgres}\ntls = \"on\""), 3, "verify");
        at(
            &format!("{postgres}\nca_file = \"a\"\ntls = \"off\""),
            4,
            "ca_file",
        );
        at(
            "[storage.postgres]\n\nurl = \"host=a sslmode=disable\"",
            3,
            "sslmode=disable",
        );
        let socket = "[storage.postgres]\nurl = \"host=/run/postgresql\"";
        at(&format!("{socket}\ntls = \"verify\""), 3, "socket");
        at(
            "[storage.postgres]\nurl = \"host=a sslmode=verify-full\"",
            2,
            "sslmode",
        );
        at("[storage]\nredirect = \"1h\"", 2, "[storage.s3]");
        let bucket = "[storage.s3]\nbucket = \"b\"";
        for (lasting, part) in [("59s", "1m at least"), ("8d", "7d at most"), ("soon", "soon")] {
            at(&format!("[storage]\nredirect = \"{lasting}\"\n{bucket}"), 2, part);
        }
        let public = |address: &str| format!("{bucket}\npublic_endpoint = \"{address}\"");
        let sent = "[storage]\nredirect = \"15m\"\n";
        for address in [
            "",
            "s3.lan",
            "//s3.lan",
            "ftp://s3.lan",
            "https://",
            "https://:443",
            "https://s3.lan:99999",
            "https://s3.lan/bucket",
            "https://s3.lan?a",
            "https://s3.lan/#a",
            "https://anna@s3.lan",
            "https://anna:secret@s3.lan",
            "https://s3 .lan",
        ] {
            at(&format!("{sent}{}", public(address)), 5, "and nothing after it");
        }
        at(&public("https://s3.lan"), 3, "set redirect in [storage]");
        at(
            &format!("[storage]\nredirect = \"0s\"\n{}", public("https://s3.lan")),
            5,
            "set redirect in [storage]",
        );
        at("[[mirror]]\nsource = \"r.lan\"\nevery = \"often\"", 3, "often");
        at("\n[[mirror]]\nsource = \"https://r.lan\"", 2, "https://r.lan");
        at("\n[[retention]]\nrepositories = \"**\"", 2, "says nothing");
        at(
            "[[retention]]\nrepositories = \"**\"\nkeep_newest = 0",
            1,
            "at least 1",
        );
        at(
            "[[upstream]]\nprefix = \"a\"\nregistry = \"b\"\nkeep = \"much\"",
            4,
            "much",
        );
    }

    #[test]
    fn clients_are_sent_to_the_bucket_for_as_long_as_the_file_says() {
        let redirect = |text: &str| {
            let config = parse(text).unwrap();
            // An object that clients may be reading by an address stays as long as that.
            assert_eq!(
                config.store.addresses_last,
                config.api.redirect.unwrap_or_default()
            );
            config.api.redirect
        };
        let bucket = "[storage.s3]\nbucket = \"b\"";
        for (lasting, seconds) in [("1m", 60), ("15m", 900), ("7d", 604_800)] {
            let text = format!("[storage]\nredirect = \"{lasting}\"\n{bucket}");
            assert_eq!(redirect(&text), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(redirect(bucket), None);
        assert_eq!(redirect("[storage]\nredirect = \"0s\""), None);
        for (written, meant) in [
            ("https://s3.example.com", "https://s3.example.com"),
            ("http://10.0.0.7:9000/", "http://10.0.0.7:9000"),
            ("http://[::1]:9000", "http://[::1]:9000"),
        ] {
            let text = format!("[storage]\nredirect = \"1m\"\n{bucket}\npublic_endpoint = \"{written}\"");
            let objects = parse(&text).unwrap().store.objects;
            assert!(
                matches!(&objects, ObjectsConfig::S3 { public_endpoint: Some(address), .. } if address == meant),
                "{written}"
            );
        }
    }

    #[test]
    fn requests_a_second_have_no_limit_unless_one_is_given() {
        let rate = |text: &str| parse(text).unwrap().server.limits.rate;
        assert_eq!(rate("[limits]\nrequests_burst = 5"), None);
        assert_eq!(rate("[limits]\nrequests_per_second = 5"), Rate::new(5, 50));
        assert_eq!(
            rate("[limits]\nrequests_per_second = 5\nrequests_burst = 9"),
            Rate::new(5, 9)
        );
    }

    #[test]
    fn secrets_come_from_the_environment_and_are_not_shown() {
        let config = parse(
            "[storage.s3]\nbucket = \"b\"\naccess_key_env = \"SECRET\"\nsecret_key_env = \"SECRET\"\n[storage.postgres]\nurl_env = \
             \"SECRET\"",
        );
        let config = config.unwrap();
        assert!(
            matches!(&config.store.database, DatabaseConfig::Postgres { url, .. } if url.ends_with("password=s3cr3t"))
        );
        assert!(!format!("{config:?}").contains("s3cr3t"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
