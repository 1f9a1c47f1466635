//! The registry client.
//!
//! A [`Client`] is cheap to clone; clones share connections, tokens, redirects and what was learned of each
//! registry. Every call tries mirrors first and then the registry, again and again within the budget of
//! [`crate::config::Budget`], and ends in content or in one [`ClientError`].

mod blob;
pub(crate) mod call_options;
mod failover;
mod head;
mod in_advance;
mod lists;
mod manifest;
mod native_push;
pub(crate) mod outage;
mod probe;
mod push;
mod range;
mod referrers;
mod resolve;
pub(crate) mod stats;
mod stream;
pub(crate) mod tags;
mod uploads;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use blob::{MAX_RANGE, RangeAnswer};
pub use call_options::{Observer, Wait};
pub use in_advance::pieces::PiecesInAdvance;
pub use in_advance::watch::{Change, NoWatch, Watch};
pub use in_advance::{NativeService, NoAnswers};
pub use manifest::FetchedManifest;
pub use native_push::{NativePush, NoPush};
pub use outage::{Listener, Outage, listening};
pub use probe::{AuthKind, ProbeReport};
pub use push::{BlobSource, BlobUpload, PushedManifest};
pub use resolve::{LocatedImage, ResolvedImage};
pub use stats::Stats;
pub use stream::BlobStream;
pub use uploads::Uploads;

use crate::config::ClientConfig;
use crate::error::{ClientError, Object, Target};
use crate::memory::{RegistryMemory, ShortMemory};
use crate::reference::Repository;
use crate::transport::Transport;
use call_options::{CallOptions, Patience};
use in_advance::answers::Answers;
use stats::Counters;

/// Reads from and writes to registries.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Arc<Transport>,
    counters: Counters,
    options: CallOptions,
    /// What a registry has answered in advance.
    answers: Option<Arc<Answers>>,
}

impl Client {
    /// A client with these settings. Nothing is sent yet.
    ///
    /// # Errors
    /// If a file with certificates cannot be read, or a mirror is not a URL.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        Self::remembering(config, Arc::new(ShortMemory::default()))
    }

    /// A client with these settings, that keeps in `memory` what it learns of registries.
    ///
    /// # Errors
    /// Those of [`Client::new`].
    pub fn remembering(config: ClientConfig, memory: Arc<dyn RegistryMemory>) -> Result<Self, ClientError> {
        Ok(Self {
            transport: Arc::new(Transport::new(config, memory)?),
            counters: Counters::default(),
            options: CallOptions::default(),
            answers: None,
        })
    }

    /// Forgets the logins and tokens that this client and all clones of it have: the next request looks for a login again.
    pub fn forget_logins(&self) {
        self.transport.auth.forget();
    }

    /// For how long the registry of `repository` allows no more requests, by its last answer (`RateLimit-Remaining`). `None`: it allows
    /// some, or does not say. The registry decides which requests count: Docker Hub counts manifests that are fetched.
    pub fn used_up_for(&self, repository: &Repository) -> Option<Duration> {
        let server = self.transport.servers.registry(repository.registry());
        server.gate.used_up_for()
    }

    /// The counts of requests and bytes of this client and all clones of it.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// The same client with counters of its own, which start at zero and count in this one's as well: for the
    /// figures of a single start.
    #[must_use]
    pub fn with_own_stats(&self) -> Self {
        Self {
            transport: self.transport.clone(),
            counters: self.counters.part(),
            options: self.options.clone(),
            answers: self.answers.clone(),
        }
    }

    /// The same client, whose calls try until `deadline`, beyond their budget: for programs that wait for a page and would not
    /// survive an error. Pauses between tries stay below a second, the first call that succeeds wakes all that wait for the same
    /// registry, and refused credentials are asked for again now and then.
    #[must_use]
    pub fn patient_until(&self, deadline: Instant) -> Self {
        self.with_patience(Patience::Until(deadline))
    }

    /// The same client, for the first question about an image of which nothing is known here: a registry at whose address nobody
    /// listens is given up after three seconds, and one that does not answer at all after thirty. One that answers that it is busy
    /// or broken is asked for as long as the budget says.
    #[must_use]
    pub fn for_first_contact(&self) -> Self {
        self.with_patience(Patience::FirstContact)
    }

    /// The same client, whose calls try twice within `time` at most: for callers with something to fall back on.
    #[must_use]
    pub fn hasty(&self, time: Duration) -> Self {
        self.with_patience(Patience::Hasty(time))
    }

    /// The same client, which asks these hosts (`host[:port]`, as [`Observer::received`] names them) only when no
    /// other is left: they sent wrong bytes.
    #[must_use]
    pub fn avoiding(&self, hosts: &[String]) -> Self {
        let mut client = self.clone();
        client.options.avoided = hosts.into();
        client
    }

    /// The same client with counters of its own, as [`Client::with_own_stats`], watched by `observer`. For one call
    /// at a time.
    #[must_use]
    pub fn observed(&self, observer: Arc<dyn Observer>) -> Self {
        let mut client = self.with_own_stats();
        client.counters = client.counters.observed(observer);
        client
    }

    fn with_patience(&self, patience: Patience) -> Self {
        let mut client = self.clone();
        client.options.patience = patience;
        client
    }

    /// Whether `registry`, or the first of its mirrors that was asked, answers a range request with that range;
    /// `None` until one was asked.
    pub fn ranges_honoured(&self, registry: &str) -> Option<bool> {
        let endpoints = self.transport.servers.readable(registry, true, true);
        endpoints
            .iter()
            .find_map(|endpoint| endpoint.server.honours_ranges.get())
    }

    fn target(&self, repository: &Repository, object: Object) -> Target {
        Target {
            registry: repository.registry().to_owned(),
            repository: Some(repository.name().to_owned()),
            object,
        }
    }
}
