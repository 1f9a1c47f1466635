//! From "this path of that registry" to the head of an answer: scheme, proof, redirects.
//!
//! A request goes out with the proof its registry is known to want; one answer with status 401 is met by a new proof and a second
//! request. Redirects are followed by hand. The proof goes only to the registry itself, never to where it redirects. TLS is not given
//! up on the way. No host is asked that is nearer to this host than the registry ([`reach`]). The last URL is kept for the blob.

mod allowance;
pub(crate) mod attempts;
pub(crate) mod authority;
mod gate;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod names;
pub(crate) mod reach;
pub(crate) mod redirects;
pub(crate) mod registry;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
};
use reqwest::{Method, Url};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use xebec_format::digest::Digest;
use xebec_native::is_spoken;

use crate::auth::{Authenticator, Scope, parse_challenges};
use crate::client::call_options::{Patience, Wait};
use crate::client::stats::Counters;
use crate::config::{ClientConfig, is_loopback};
use crate::credentials::CredentialStore;
use crate::error::{ClientError, Fault};
use crate::memory::{self, RegistryMemory};
use allowance::Allowance;
use attempts::Attempts;
use authority::authority;
use http::{Answer, Pools, execute, fault_of, find_cause};
use reach::{Reach, Way};
use redirects::{BlobKey, Redirects, Target};
use registry::{Endpoint, Server, Servers};

/// Redirects followed for one request; docker follows ten, real registries need one or two.
const MAX_HOPS: usize = 5;
/// Time in which a loopback server must show whether it speaks TLS.
const SCHEME_TIMEOUT: Duration = Duration::from_secs(5);
/// Parts in which a file is sent.
const FILE_PART: usize = 128 << 10;

/// Everything below the calls of a client.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) config: ClientConfig,
    pub(crate) servers: Servers,
    pub(crate) auth: Authenticator,
    pub(crate) store: CredentialStore,
    pub(crate) memory: Arc<dyn RegistryMemory>,
    pools: Arc<Pools>,
    redirects: Redirects,
}

/// One request, in a form that can be sent again.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) place: Place,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Option<Payload>,
    pub(crate) scope: Scope,
    /// The blob, if the answer may come by a redirect that is worth keeping.
    pub(crate) blob: Option<Digest>,
    /// Whether it counts among the whole-blob streams.
    pub(crate) stream: bool,
    /// For so long the registry may work before it answers, beyond what the budget allows.
    pub(crate) slack: Duration,
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Path and query after `/v2/`.
    Path(String),
    /// The URL at which a registry wants the client to go on.
    Url(Url),
}

/// The body of a request.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A part of a file.
    File {
        /// The file.
        path: PathBuf,
        /// Where the part starts.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// A part of what is fetched from elsewhere while it is sent.
    Fetched {
        /// The source.
        source: Arc<dyn PayloadSource>,
        /// Where the part starts.
        offset: u64,
        /// Its length.
        length: u64,
    },
}

/// Bytes that are fetched when they are sent, and again if they are sent again.
pub(crate) trait PayloadSource: std::fmt::Debug + Send + Sync {
    /// Begins to fetch a part.
    fn fetch(
        &self,
        offset: u64,
        length: u64,
    ) -> Pin<Box<dyn Future<Output = Result<reqwest::Body, Fault>> + Send + '_>>;
}

impl Payload {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } | Self::Fetched { length, .. } => *length,
        }
    }

    async fn body(&self) -> Result<reqwest::Body, Fault> {
        let (path, offset, length) = match self {
            Self::Bytes(bytes) => return Ok(bytes.clone().into()),
            Self::File { path, offset, length } => (path, *offset, *length),
            Self::Fetched {
                source,
                offset,
                length,
            } => return source.fetch(*offset, *length).await,
        };
        let failed =
            |error: std::io::Error| Fault::Protocol(format!("cannot read {}: {error}", path.display()));
        let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
        file.seek(std::io::SeekFrom::Start(offset))
            .await
            .map_err(failed)?;
        let parts = futures_util::stream::try_unfold(file.take(length), |mut file| async move {
            let mut part = bytes::BytesMut::with_capacity(FILE_PART);
            let read = file.read_buf(&mut part).await?;
            Ok::<_, std::io::Error>((read > 0).then(|| (part.freeze(), file)))
        });
        Ok(reqwest::Body::wrap_stream(parts))
    }
}

impl Ask {
    /// A GET of `path` (after `/v2/`) in a repository.
    pub(crate) fn get(path: String, scope: Scope) -> Self {
        Self::new(Method::GET, Place::Path(path), scope)
    }

    pub(crate) fn new(method: Method, place: Place, scope: Scope) -> Self {
        let headers = HeaderMap::new();
        Self {
            method,
            place,
            headers,
            payload: None,
            scope,
            blob: None,
            stream: false,
            slack: Duration::ZERO,
        }
    }

    /// Adds a header. Values that cannot be sent are left out: all of them are made here.
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    pub(crate) fn payload(mut self, payload: Payload) -> Self {
        self.payload = Some(payload);
        self
    }
}

impl Transport {
    pub(crate) fn new(config: ClientConfig, memory: Arc<dyn RegistryMemory>) -> Result<Self, ClientError> {
        let pools = Arc::new(Pools::new(&config)?);
        let store = CredentialStore::new(
            config.docker_config.as_deref(),
            config.helper_directory.as_deref(),
            config.budget.helper_timeout,
        )
        .and_files(&config.docker_configs_before, &config.docker_configs_after)
        .and_providers(config.credential_providers.clone())
        .only(config.login.clone());
        let (budget, plain_http) = (config.budget.clone(), config.plain_http.clone());
        let settings = config.settings_file.clone();
        let auth = Authenticator::new(pools.clone(), budget, plain_http, store.clone(), settings);
        let servers = Servers::new(&config)?;
        Ok(Self {
            config,
            servers,
            auth,
            store,
            memory,
            pools,
            redirects: Redirects::default(),
        })
    }

    /// The tries of a new call.
    pub(crate) fn attempts(&self, counters: &Counters, patience: Patience) -> Attempts {
        Attempts::new(&self.config.budget, counters, patience)
    }

    /// Sends `ask` to `endpoint` when there is a place, and waits for the head of the answer, whatever its
    /// status.
    ///
    /// # Errors
    /// A [`Fault`] if no answer came, or none that may be used.
    pub(crate) async fn send(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        counters: &Counters,
    ) -> Result<Answer, Fault> {
        let namer = endpoint.server.authority.as_str().into();
        // On the heap: each call to a registry holds this future, some of them several times.
        let sent = Box::pin(self.send_as_is(endpoint, ask, counters));
        names::NAMER.scope(namer, sent).await
    }

    async fn send_as_is(&self, endpoint: &Endpoint, ask: &Ask, counters: &Counters) -> Result<Answer, Fault> {
        let server = &*endpoint.server;
        counters.waits(Wait::Place);
        let permit = server.gate.enter(ask.stream).await;
        counters.waits(Wait::Head);
        let key = ask.blob.map(|digest| BlobKey {
            authority: format!("{}{}", server.authority, server.prefix),
            repository: ask.scope.repository.clone(),
            digest,
        });
        if let Some(answer) = self.send_to_kept(key.as_ref(), ask, counters).await? {
            return Ok(answer.holding(permit));
        }
        let url = self.url(endpoint, &ask.place).await?;
        let (answer, named_by) = self.send_with_proof(server, ask, url, counters).await?;
        if is_at(server, answer.url()) {
            if let Some(allowance) = Allowance::read(answer.headers(), SystemTime::now()) {
                server.gate.allows(allowance);
            }
            if answer.header(xebec_native::HEADER).is_some_and(is_spoken) && server.is_native_due() {
                memory::note_native(&*self.memory, &server.name());
            }
        }
        if let Some(key) = key
            && authority(answer.url()) != server.authority
            && answer.status().is_success()
        {
            let life = headers::redirect_life(answer.url(), SystemTime::now());
            let target = Target {
                url: answer.url().clone(),
                named_by,
            };
            self.redirects.put(key, target, life);
        }
        Ok(answer.holding(permit))
    }

    /// Asks where the registry last sent us for this blob; `None` if that is unknown or no longer good.
    async fn send_to_kept(
        &self,
        key: Option<&BlobKey>,
        ask: &Ask,
        counters: &Counters,
    ) -> Result<Option<Answer>, Fault> {
        let Some((key, target)) = key.and_then(|key| Some((key, self.redirects.get(key)?))) else {
            return Ok(None);
        };
        let (url, way) = (target.url, Way::Told(target.named_by));
        match self.send_once(ask, url.clone(), way, None, counters).await {
            // Signature ended, or the object moved: the registry knows better.
            Ok(answer) if !matches!(answer.status().as_u16(), 300..=410) => Ok(Some(answer)),
            Ok(answer) => {
                self.redirects.forget(key, &url);
                answer.discard().await;
                Ok(None)
            }
            Err(fault) => {
                self.redirects.forget(key, &url);
                Err(fault)
            }
        }
    }

    async fn send_with_proof(
        &self,
        server: &Server,
        ask: &Ask,
        url: Url,
        counters: &Counters,
    ) -> Result<(Answer, Reach), Fault> {
        let proof = self.auth.header(server, &ask.scope, counters).await?;
        let (answer, by) = self
            .follow(server, ask, url.clone(), proof.as_deref(), counters)
            .await?;
        if answer.status() != 401 || !is_at(server, answer.url()) {
            return Ok((answer, by));
        }
        let wanted = answer.headers().get_all(WWW_AUTHENTICATE);
        let Some(challenge) = parse_challenges(wanted.iter().filter_map(|value| value.to_str().ok())) else {
            return Ok((answer, by));
        };
        if let Some(proof) = &proof {
            self.auth.refuse(server, &ask.scope, proof);
        }
        self.auth.learn(server, challenge);
        let renewed = self.auth.header(server, &ask.scope, counters).await?;
        if renewed.is_none() {
            return Ok((answer, by));
        }
        answer.discard().await;
        self.follow(server, ask, url, renewed.as_deref(), counters).await
    }

    /// Goes where the server sends this host. Beside the answer, returns how near the hosts are that led to it, of several the farthest.
    async fn follow(
        &self,
        server: &Server,
        ask: &Ask,
        mut url: Url,
        proof: Option<&str>,
        counters: &Counters,
    ) -> Result<(Answer, Reach), Fault> {
        // The host that redirects must be allowed to; the target can name no more than that host.
        let mut by = server.reach.get();
        for _ in 0..=MAX_HOPS {
            let is_registry = is_at(server, &url);
            let way = match is_registry {
                true => Way::Named,
                false => Way::Told(by),
            };
            let proof = proof.filter(|_| is_registry);
            let answer = self.send_once(ask, url.clone(), way, proof, counters).await?;
            let (reach, named_by) = (self.pools.reach_of(&answer), by);
            if is_registry {
                server.reach.set(reach);
                by = server.reach.get();
            } else {
                by = by.and(reach);
            }
            let reads = ask.method == Method::GET || ask.method == Method::HEAD;
            if !reads || !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((answer, named_by));
            }
            let location = answer.header(LOCATION.as_str()).unwrap_or_default();
            let next = url
                .join(location)
                .map_err(|_| Fault::Protocol(format!("redirect to {location:?}")))?;
            self.check_hop(by, &url, &next)?;
            counters.redirect();
            answer.discard().await;
            url = next;
        }
        Err(Fault::Protocol(format!(
            "more than {MAX_HOPS} redirects, the last to {}",
            authority(&url)
        )))
    }

    /// A redirect may not give up TLS, unless plain HTTP is allowed to where it leads, or both are on this host.
    fn check_hop(&self, by: Reach, from: &Url, to: &Url) -> Result<(), Fault> {
        let host = authority(to);
        match to.scheme() {
            "https" => Ok(()),
            "http" if from.scheme() == "http" || (by == Reach::Host && is_loopback(&host)) => Ok(()),
            "http" if self.servers.allows_plain_http(&host) => Ok(()),
            _ => Err(Fault::Protocol(format!(
                "redirect to {host} without TLS; to allow that, list it under plain_http in {}",
                self.config.settings_file.display()
            ))),
        }
    }

    async fn send_once(
        &self,
        ask: &Ask,
        url: Url,
        way: Way,
        proof: Option<&str>,
        counters: &Counters,
    ) -> Result<Answer, Fault> {
        let mut request = reqwest::Request::new(ask.method.clone(), url);
        *request.headers_mut() = ask.headers.clone();
        if let Some(proof) = proof {
            let mut value = HeaderValue::from_str(proof)
                .map_err(|_| Fault::Credentials("they cannot be sent in a header".to_owned()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let length = ask.payload.as_ref().map_or(0, Payload::length);
        if let Some(payload) = &ask.payload {
            *request.body_mut() = Some(payload.body().await?);
            request
                .headers_mut()
                .insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        counters.waits(Wait::Head);
        let mut budget = self.config.budget.clone();
        budget.response_timeout += ask.slack;
        let answer = execute(&self.pools, request, way, &budget, counters).await?;
        counters.waits(Wait::Body);
        counters.sent(length);
        Ok(answer)
    }

    /// The full URL of a place at `endpoint`.
    pub(crate) async fn url(&self, endpoint: &Endpoint, place: &Place) -> Result<Url, Fault> {
        let server = &*endpoint.server;
        let scheme = server
            .scheme
            .get_or_try_init(|| self.find_scheme(&server.authority))
            .await?;
        let path = match place {
            Place::Url(url) => return Ok(url.clone()),
            Place::Path(path) => path,
        };
        let text = format!("{scheme}://{}{}/v2/{path}", server.authority, server.prefix);
        let mut url: Url = text
            .parse()
            .map_err(|_| Fault::Protocol(format!("{text:?} is not a URL")))?;
        if let Some(registry) = &endpoint.mirror_of {
            // containerd's convention: mirrors of several registries tell them apart by this.
            url.query_pairs_mut().append_pair("ns", registry);
        }
        Ok(url)
    }

    /// TLS, except where plain HTTP is allowed. A loopback server is asked which one it speaks; one that speaks
    /// TLS is held to it, so that a bad certificate never leads to plain HTTP.
    async fn find_scheme(&self, authority: &str) -> Result<&'static str, Fault> {
        if self.servers.allows_plain_http(authority) {
            return Ok("http");
        }
        if !is_loopback(authority) {
            return Ok("https");
        }
        let ask = |scheme: &str| -> Result<_, Fault> {
            let text = format!("{scheme}://{authority}/v2/");
            let url: Url = text
                .parse()
                .map_err(|_| Fault::Protocol(format!("{text:?} is not a URL")))?;
            Ok(self.pools.for_url(&url, Way::Named)?.get(url).send())
        };
        match tokio::time::timeout(SCHEME_TIMEOUT, ask("https")?).await {
            Ok(Ok(_)) => return Ok("https"),
            Ok(Err(error)) => match find_cause::<rustls::Error>(&error) {
                Some(rustls::Error::InvalidMessage(_)) => return Ok("http"),
                Some(_) => return Err(fault_of(&error)),
                None if is_refused(&error) => return Err(fault_of(&error)),
                None => {}
            },
            Err(_) => {}
        }
        // It took the connection and said nothing that could be TLS.
        match tokio::time::timeout(SCHEME_TIMEOUT, ask("http")?).await {
            Ok(Ok(answer)) if answer.status() != 400 => Ok("http"),
            Ok(Ok(_)) => Err(Fault::Connect(
                "it speaks neither TLS nor plain HTTP as a registry".to_owned(),
            )),
            Ok(Err(error)) => Err(Fault::Connect(fault_of(&error).to_string())),
            Err(_) => Err(Fault::Timeout("answer", SCHEME_TIMEOUT)),
        }
    }
}

/// Whether a URL is the server's own, so that its proof may go there.
fn is_at(server: &Server, url: &Url) -> bool {
    let scheme = server.scheme.get();
    authority(url) == server.authority && scheme.is_none_or(|scheme| *scheme == url.scheme())
}

fn is_refused(error: &reqwest::Error) -> bool {
    find_cause::<std::io::Error>(error)
        .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}
