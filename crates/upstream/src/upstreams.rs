//! The upstreams of a registry, and the known state of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use xebec_oci::{Client, ClientError, Repository};
use xebec_store::{Digest, RepositoryName, Store, Tag};

use crate::absent::Absent;
use crate::counts::Counts;
use crate::error::UpstreamError;
use crate::fetch::Fetch;
use crate::health::Health;
use crate::names;
use crate::settings::{SettingsError, UpstreamSettings};
use crate::single::Single;

/// Blobs that are fetched at the same time though no client waits for them.
const BEHIND: usize = 2;

/// Blobs that are fetched at the same time. Fewer than the streams that a client of registries has at once, so that ranges come beside.
const FETCHED: usize = 12;

type Place = (RepositoryName, Digest);

/// All upstreams. It is cheap to clone.
#[derive(Clone, Default)]
pub struct Upstreams {
    by_prefix: Arc<BTreeMap<String, Upstream>>,
}

/// Tells tags that may not be moved.
pub type Immutable = Arc<dyn Fn(&RepositoryName, &Tag) -> bool + Send + Sync>;

/// One upstream. It is cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    state: Arc<State>,
    immutable: Immutable,
}

pub(super) struct State {
    settings: UpstreamSettings,
    client: Client,
    store: Store,
    pub(super) health: Health,
    pub(super) counts: Counts,
    pub(super) absent: Absent,
    /// Tags, and manifests by digest, that are being asked for.
    pub(super) asked_manifests: Single<(RepositoryName, String), ()>,
    pub(super) asked_sizes: Single<Place, u64>,
    /// The answer: how many are in the list and not here yet.
    pub(super) asked_referrers: Single<Place, usize>,
    pub(super) sizes: Mutex<HashMap<Place, u64>>,
    pub(super) fetches: Mutex<HashMap<Place, Fetch>>,
    /// When the list of what refers to a manifest was fetched.
    pub(super) listed: Mutex<HashMap<Place, Instant>>,
    pub(super) behind: Semaphore,
    /// Of blobs that are fetched.
    pub(super) turns: Semaphore,
    /// Told when a manifest has come.
    pub(super) arrived: Arc<Notify>,
}

impl Upstreams {
    /// Upstreams with these settings, which put what they fetch into `store` and tell `arrived` when a manifest has come. Nothing is
    /// asked yet.
    ///
    /// # Errors
    /// If settings cannot be used.
    pub fn new(
        settings: &[UpstreamSettings],
        store: &Store,
        arrived: &Arc<Notify>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let mut by_prefix = BTreeMap::new();
        for settings in settings {
            let prefix = settings.prefix.clone();
            if !prefix.is_empty() && prefix.parse::<RepositoryName>().is_err() {
                return Err(SettingsError::Prefix(prefix));
            }
            let upstream = Upstream::new(settings, store, arrived, &variable)?;
            if by_prefix.insert(prefix.clone(), upstream).is_some() {
                return Err(SettingsError::Twice(prefix));
            }
        }
        Ok(Self {
            by_prefix: Arc::new(by_prefix),
        })
    }

    /// The same, which move none of these tags once they are here.
    #[must_use]
    pub fn keeping(self, immutable: &Immutable) -> Self {
        let with = |upstream: &Upstream| Upstream {
            immutable: immutable.clone(),
            ..upstream.clone()
        };
        let all = self.by_prefix.iter();
        Self {
            by_prefix: Arc::new(
                all.map(|(prefix, upstream)| (prefix.clone(), with(upstream)))
                    .collect(),
            ),
        }
    }

    /// All of them, by their prefixes.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Upstream)> {
        self.by_prefix
            .iter()
            .map(|(prefix, upstream)| (prefix.as_str(), upstream))
    }

    /// The upstream that a repository is of: the one with the longest prefix.
    pub fn of(&self, repository: &RepositoryName) -> Option<&Upstream> {
        let fits = self
            .by_prefix
            .iter()
            .filter(|(prefix, _)| names::below(prefix, repository.as_str()).is_some());
        fits.max_by_key(|(prefix, _)| prefix.len())
            .map(|(_, upstream)| upstream)
    }

    /// The path of a request as this server knows it, of one that was sent as to a mirror of an upstream; `None`: it is as it should be.
    pub fn path(&self, path: &str, query: &str) -> Option<String> {
        if self.by_prefix.is_empty() {
            return None;
        }
        let prefix_of = |registry: &str| {
            let mut upstreams = self.by_prefix.values();
            let found = upstreams.find(|upstream| upstream.registry().eq_ignore_ascii_case(registry))?;
            Some(found.settings().prefix.clone())
        };
        names::as_here(path, query, prefix_of, |prefix| {
            self.by_prefix.contains_key(prefix)
        })
    }
}

impl Upstream {
    fn new(
        settings: &UpstreamSettings,
        store: &Store,
        arrived: &Arc<Notify>,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let prefix = settings.prefix.clone();
        if Repository::new(&settings.registry, "a").is_err() {
            let registry = settings.registry.clone();
            return Err(SettingsError::Registry { prefix, registry });
        }
        let client = Client::new(settings.client(variable)?);
        let client = client.map_err(|error| SettingsError::Client {
            prefix,
            reason: error.to_string(),
        })?;
        Ok(Self {
            immutable: Arc::new(|_, _| false),
            state: Arc::new(State {
                client,
                store: store.clone(),
                health: Health::default(),
                counts: Counts::default(),
                absent: Absent::new(settings.negative_ttl),
                asked_manifests: Single::default(),
                asked_sizes: Single::default(),
                asked_referrers: Single::default(),
                sizes: Mutex::default(),
                fetches: Mutex::default(),
                listed: Mutex::default(),
                behind: Semaphore::new(BEHIND),
                turns: Semaphore::new(FETCHED),
                arrived: arrived.clone(),
                settings: settings.clone(),
            }),
        })
    }

    /// Whether a tag may not be moved.
    pub(super) fn is_immutable(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        (self.immutable)(repository, tag)
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn settings(&self) -> &UpstreamSettings {
        &self.state.settings
    }

    /// The counts of the questions that it was asked.
    pub fn counts(&self) -> &Counts {
        &self.state.counts
    }

    /// Whether it is left alone now, since it is away or limits requests.
    pub fn is_left_alone(&self) -> bool {
        self.state.health.trouble().is_some()
    }

    /// Its host, with its port if it has one.
    pub fn registry(&self) -> &str {
        &self.state.settings.registry
    }

    pub(super) fn client(&self) -> &Client {
        &self.state.client
    }

    pub(super) fn store(&self) -> &Store {
        &self.state.store
    }

    pub(super) fn health(&self) -> &Health {
        &self.state.health
    }

    /// The name of a repository there.
    pub(super) fn theirs(&self, repository: &RepositoryName) -> Result<Repository, UpstreamError> {
        let name = names::below(&self.settings().prefix, repository.as_str()).unwrap_or_default();
        Repository::new(self.registry(), name).map_err(|error| UpstreamError::NotFound(error.to_string()))
    }

    /// The error of a failed call to this upstream.
    pub(super) fn failed(&self, error: &ClientError) -> UpstreamError {
        UpstreamError::of(self.registry(), error)
    }

    /// Whether the upstream is to be asked for something now.
    pub(super) fn may_ask(&self, repository: &RepositoryName, what: &str) -> Result<(), UpstreamError> {
        if self.state.absent.has(repository, what) {
            let registry = self.registry();
            return Err(UpstreamError::NotFound(format!(
                "the upstream {registry} was asked a moment ago and does not have {what} of {repository}"
            )));
        }
        self.state.health.trouble().map_or(Ok(()), Err)
    }

    /// Whether a manifest may be fetched now: that is what registries count that limit pulls. Questions without a body go on, so that a
    /// new allowance is noticed, and so do blobs of images whose manifests have come.
    pub(super) fn may_fetch(&self, theirs: &Repository) -> Result<(), UpstreamError> {
        let used_up = self.state.client.used_up_for(theirs);
        used_up.map_or(Ok(()), |after| {
            Err(UpstreamError::limited(self.registry(), after))
        })
    }

    /// Notes the result of a call for something, for the next ones, and returns it.
    pub(super) fn noted<T>(
        &self,
        repository: &RepositoryName,
        what: &str,
        result: Result<T, ClientError>,
    ) -> Result<T, UpstreamError> {
        let result = result.map_err(|error| self.failed(&error));
        self.state.health.note(&result);
        self.state.counts.asked(&result);
        if let Err(UpstreamError::NotFound(_)) = &result {
            self.state.absent.note(repository, what);
        }
        result
    }
}

/// A digest as the client of registries knows it.
pub(super) fn known(digest: &Digest) -> Result<xebec_format::digest::Digest, UpstreamError> {
    let known = digest.to_string().parse();
    known.map_err(|_| UpstreamError::NotFound(format!("{digest}: upstreams are asked for sha256 only")))
}
