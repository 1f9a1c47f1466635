//! Where the keys of an issuer come from, and how they are kept fresh without a restart.
//!
//! Keys are fetched when the first token comes, and again in the background when they are old. After a quiet time they may be so old that
//! a key has been withdrawn long since: then a token waits for the fetch, but not long. A token that names an unknown key makes
//! one fetch at once, since the issuer may have begun to use a new key; such fetches are bounded in number, so that forged names
//! cost the issuer nothing. While the issuer is away, the last good keys count for a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, Url};
use serde::Deserialize;
use tokio::time::Instant;

use crate::jwk::{KeySet, KeySetError, MAX_SET};
use crate::outgoing::{self, OutgoingError};

/// Keys from an address are fetched again after this time.
const REFRESH_ADDRESS: Duration = Duration::from_secs(300);

/// Keys that are older are not used before a fetch has been tried.
const STALE_ADDRESS: Duration = Duration::from_secs(600);

/// How long a token waits for that. An issuer that hangs is as one that is away.
const PATIENCE: Duration = Duration::from_secs(3);

/// An address is asked no more often than this, whatever tokens name.
const RETRY_ADDRESS: Duration = Duration::from_secs(10);

/// A file is looked at no more often than this.
const RETRY_FILE: Duration = Duration::from_secs(1);

/// The largest discovery document that is read, in bytes.
const MAX_DISCOVERY: usize = 64 * 1024;

/// Where keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In a file, as a JSON Web Key Set or PEM.
    File(PathBuf),
    /// At an address, as a JSON Web Key Set.
    Address(Url),
    /// At the address that the issuer's discovery document names (OpenID Connect Discovery 1.0, 4).
    Issuer(String),
}

/// Why there are no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// The address gave no answer that can be used.
    #[error("the keys of the issuer are away: {0}")]
    Away(OutgoingError),
    /// The file cannot be read.
    #[error("the file of keys {0} cannot be read: {1}")]
    File(PathBuf, String),
    /// The answer is no set of keys.
    #[error("the keys of the issuer cannot be used: {0}")]
    Unsound(KeySetError),
    /// The discovery document is not the issuer's.
    #[error("the discovery document of {issuer} cannot be used: {cause}")]
    Discovery {
        /// Of which issuer.
        issuer: String,
        /// Why.
        cause: String,
    },
    /// Nothing was tried yet.
    #[error("the keys of the issuer were not fetched yet")]
    NotYet,
}

/// The keys of one issuer.
#[derive(Debug)]
pub struct KeySource {
    location: Location,
    client: Client,
    /// A file with a token for the issuer's own host: Kubernetes asks for one.
    token_file: Option<PathBuf>,
    /// How long the last good keys count while no new ones come.
    keep: Duration,
    state: Mutex<State>,
    /// One fetch at a time; the others wait for it and use what it brought.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    keys: Option<(Arc<KeySet>, Instant)>,
    tried: Option<Instant>,
    failure: KeysError,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl KeySource {
    /// Keys from this place.
    pub fn new(location: Location, client: Client, token_file: Option<PathBuf>, keep: Duration) -> Arc<Self> {
        Arc::new(Self {
            location,
            client,
            token_file,
            keep,
            state: Mutex::new(State {
                keys: None,
                tried: None,
                failure: KeysError::NotYet,
            }),
            fetching: tokio::sync::Mutex::new(()),
        })
    }

    /// The keys for a token that names `kid`.
    ///
    /// # Errors
    /// If there are none: the issuer gave none, and the last good ones are too old.
    pub async fn keys(self: &Arc<Self>, kid: Option<&str>) -> Result<Arc<KeySet>, KeysError> {
        let (refresh, retry) = self.pace();
        let (usable, age, may_try) = {
            let state = self.state();
            let usable = state
                .keys
                .as_ref()
                .filter(|(keys, had)| had.elapsed() < self.keep && kid.is_none_or(|kid| keys.knows(kid)));
            let age = state.keys.as_ref().map(|(_, had)| had.elapsed());
            let may_try = state.tried.is_none_or(|tried| tried.elapsed() >= retry);
            (
                usable.map(|(keys, _)| Arc::clone(keys)),
                age.unwrap_or_default(),
                may_try,
            )
        };
        let Some(keys) = usable else {
            if may_try {
                self.fetch(retry).await;
            }
            return self.last_good();
        };
        if age < refresh || !may_try {
            return Ok(keys);
        }
        if matches!(self.location, Location::File(_)) {
            // It takes no time, and a key that was taken out shall count no more at once.
            self.fetch(retry).await;
            return self.last_good();
        }
        let source = Arc::clone(self);
        let fetching = async move { source.fetch(retry).await };
        if age >= STALE_ADDRESS {
            // It goes on when nobody waits any more.
            drop(tokio::time::timeout(PATIENCE, tokio::spawn(fetching)).await);
            return self.last_good();
        }
        if self.fetching.try_lock().is_ok() {
            drop(tokio::spawn(fetching));
        }
        Ok(keys)
    }

    fn pace(&self) -> (Duration, Duration) {
        match self.location {
            Location::File(_) => (RETRY_FILE, RETRY_FILE),
            Location::Address(_) | Location::Issuer(_) => (REFRESH_ADDRESS, RETRY_ADDRESS),
        }
    }

    fn last_good(&self) -> Result<Arc<KeySet>, KeysError> {
        let state = self.state();
        match &state.keys {
            Some((keys, had)) if had.elapsed() < self.keep => Ok(Arc::clone(keys)),
            _ => Err(state.failure.clone()),
        }
    }

    async fn fetch(&self, retry: Duration) {
        let _one = self.fetching.lock().await;
        // Another request fetched while this one waited.
        if self.state().tried.is_some_and(|tried| tried.elapsed() < retry) {
            return;
        }
        let fetched = self.fetch_now().await;
        let mut state = self.state();
        // Only now: until there is an answer, a request that needs a key waits for it.
        state.tried = Some(Instant::now());
        match fetched {
            Ok(keys) => state.keys = Some((Arc::new(keys), Instant::now())),
            Err(error) => {
                tracing::warn!(%error, location = ?self.location, "no new keys of an issuer of tokens");
                state.failure = error;
            }
        }
    }

    async fn fetch_now(&self) -> Result<KeySet, KeysError> {
        let bytes = match &self.location {
            Location::File(path) => {
                let unreadable = |cause: String| KeysError::File(path.clone(), cause);
                let file = path.clone();
                let limit = u64::try_from(MAX_SET).unwrap_or(u64::MAX);
                let read =
                    tokio::task::spawn_blocking(move || xebec_kernel::file::read_limited(&file, limit));
                let read = read.await.map_err(|error| unreadable(error.to_string()))?;
                read.map_err(|error| unreadable(error.to_string()))?
            }
            Location::Address(url) => self.get(url, url, MAX_SET).await?,
            Location::Issuer(issuer) => {
                let (own, keys) = self.discover(issuer).await?;
                self.get(&keys, &own, MAX_SET).await?
            }
        };
        KeySet::parse(&bytes).map_err(KeysError::Unsound)
    }

    /// The issuer's own address, and that of its keys.
    async fn discover(&self, issuer: &str) -> Result<(Url, Url), KeysError> {
        let unsound = |cause: String| KeysError::Discovery {
            issuer: issuer.to_owned(),
            cause,
        };
        let at = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let own = outgoing::address(&at).map_err(KeysError::Away)?;
        let bytes = self.get(&own, &own, MAX_DISCOVERY).await?;
        let document: Discovery =
            serde_json::from_slice(&bytes).map_err(|error| unsound(error.to_string()))?;
        if document.issuer != issuer {
            return Err(unsound(format!("it says that it is of {:?}", document.issuer)));
        }
        let keys = outgoing::address(&document.jwks_uri).map_err(|error| unsound(error.to_string()))?;
        Ok((own, keys))
    }

    /// The token goes to the host of `own` only, whatever a document names.
    async fn get(&self, url: &Url, own: &Url, limit: usize) -> Result<Vec<u8>, KeysError> {
        let token = match &self.token_file {
            Some(path) if outgoing::same_host(url, own) => {
                let read = tokio::fs::read_to_string(path).await;
                Some(read.map_err(|error| KeysError::File(path.clone(), error.to_string()))?)
            }
            _ => None,
        };
        let token = token.as_deref().map(str::trim);
        outgoing::get(&self.client, url, token, limit)
            .await
            .map_err(KeysError::Away)
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}
