//! The configuration file, as it is written. `docs/registry.toml` has every key with its meaning and its default.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;
use xebec_access::settings::AuthSettings;
use xebec_indexing::IndexingSettings;
use xebec_placement::PlaceName;
use xebec_policy::copies::CopyRule;
use xebec_policy::immutability::ImmutableRule;
use xebec_policy::mode::Serving;
use xebec_policy::quota::Quota;
use xebec_policy::retention::RetentionRule;
use xebec_settings::period::Period;
use xebec_settings::size::Size;
use xebec_settings::text::Text;
use xebec_transfer::MirrorSettings;
use xebec_upstream::UpstreamSettings;

use crate::deduplication::DeduplicationSettings;
use crate::server::Network;
use xebec_events::audit::AuditSettings;
use xebec_events::webhooks::WebhookSettings;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) server: Server,
    pub(super) limits: Limits,
    pub(super) storage: Storage,
    #[serde(rename = "place")]
    pub(super) places: Vec<Spanned<Place>>,
    pub(super) copies: Vec<Spanned<CopyRule>>,
    pub(super) collection: Collection,
    pub(super) manifests: Manifests,
    pub(super) log: Log,
    pub(super) indexing: IndexingSettings,
    pub(super) deduplication: DeduplicationSettings,
    pub(super) upstream: Vec<UpstreamSettings>,
    #[serde(rename = "mirror")]
    pub(super) mirrors: Vec<Spanned<MirrorSettings>>,
    pub(super) auth: Option<Spanned<AuthSettings>>,
    pub(super) audit: Option<AuditSettings>,
    pub(super) mode: ModeSettings,
    #[serde(rename = "webhook")]
    pub(super) webhooks: Vec<Spanned<WebhookSettings>>,
    #[serde(rename = "immutable")]
    pub(super) immutable: Vec<ImmutableRule>,
    #[serde(rename = "retention")]
    pub(super) retention: Vec<Spanned<RetentionRule>>,
    #[serde(rename = "quota")]
    pub(super) quotas: Vec<Quota>,
}

/// `[mode]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModeSettings {
    pub(super) serving: Serving,
    pub(super) reason: String,
}

/// `[server]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Server {
    pub(super) listen: Vec<String>,
    pub(super) tls: Option<Tls>,
    pub(super) proxies: Vec<Text<Network>>,
    pub(super) drain: Period,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:5000".to_owned()],
            tls: None,
            proxies: Vec::new(),
            drain: Period::seconds(600),
        }
    }
}

/// `[server.tls]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// `[limits]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) connections_per_client: usize,
    pub(super) requests_per_client: usize,
    pub(super) requests_per_second: u32,
    pub(super) requests_burst: u32,
    pub(super) header_size: Size,
    pub(super) header_time: Period,
    pub(super) idle: Period,
    pub(super) keep_alive: Period,
}

impl Default for Limits {
    fn default() -> Self {
        let usual = crate::server::Limits::default();
        Self {
            connections: usual.connections,
            connections_per_client: usual.connections_per_client,
            requests_per_client: usual.requests_per_client,
            requests_per_second: 0,
            requests_burst: 0,
            header_size: Size(usual.header_size as u64),
            header_time: Period(usual.header_time),
            idle: Period(usual.idle),
            keep_alive: Period(usual.keep_alive),
        }
    }
}

/// `[storage]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Storage {
    pub(super) root: PathBuf,
    pub(super) upload_timeout: Period,
    pub(super) grace: Period,
    pub(super) max_blob: Size,
    pub(super) reserve: Size,
    pub(super) redirect: Option<Spanned<Period>>,
    pub(super) postgres: Option<Postgres>,
    pub(super) s3: Option<S3>,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/var/lib/xebec-registry"),
            upload_timeout: Period::seconds(7 * 86_400),
            grace: Period::seconds(86_400),
            max_blob: Size(1 << 40),
            reserve: Size(512 << 20),
            redirect: None,
            postgres: None,
            s3: None,
        }
    }
}

/// `[storage.postgres]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Postgres {
    pub(super) url: Option<Spanned<String>>,
    pub(super) url_env: Option<Spanned<String>>,
    pub(super) tls: Option<Spanned<PostgresTls>>,
    pub(super) ca_file: Option<PathBuf>,
}

/// `tls` of `[storage.postgres]`
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PostgresTls {
    Verify,
    Off,
}

/// `[storage.s3]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct S3 {
    pub(super) endpoint: Option<String>,
    pub(super) public_endpoint: Option<Spanned<String>>,
    pub(super) bucket: String,
    #[serde(default)]
    pub(super) prefix: String,
    #[serde(default = "usual_region")]
    pub(super) region: String,
    pub(super) access_key_env: Option<Spanned<String>>,
    pub(super) secret_key_env: Option<Spanned<String>>,
}

/// `[[place]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub(super) name: Spanned<Text<PlaceName>>,
    pub(super) directory: Option<Spanned<PathBuf>>,
    pub(super) s3: Option<PlaceS3>,
}

/// `s3` of `[[place]]`: the keys of `[storage.s3]`, but for clients, who are not sent there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceS3 {
    endpoint: Option<String>,
    bucket: String,
    #[serde(default)]
    prefix: String,
    #[serde(default = "usual_region")]
    region: String,
    access_key_env: Option<Spanned<String>>,
    secret_key_env: Option<Spanned<String>>,
}

impl From<PlaceS3> for S3 {
    fn from(place: PlaceS3) -> Self {
        Self {
            endpoint: place.endpoint,
            public_endpoint: None,
            bucket: place.bucket,
            prefix: place.prefix,
            region: place.region,
            access_key_env: place.access_key_env,
            secret_key_env: place.secret_key_env,
        }
    }
}

fn usual_region() -> String {
    "us-east-1".to_owned()
}

/// `[collection]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Collection {
    pub(super) every: Period,
}

impl Default for Collection {
    fn default() -> Self {
        Self {
            every: Period::seconds(3600),
        }
    }
}

/// `[manifests]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Manifests {
    pub(super) max_size: Size,
    pub(super) sparse: bool,
}

impl Default for Manifests {
    fn default() -> Self {
        Self {
            max_size: Size(4 << 20),
            sparse: false,
        }
    }
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Log {
    pub(super) format: LogFormat,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object of JSON each.
    Json,
}
