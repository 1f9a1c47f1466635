//! HTTP as Xebec needs it: connections, one request, one answer whose body has to keep coming.
//!
//! Connection pools: one through the proxies that the environment names, one that never uses a proxy, for loopback hosts, and one for each
//! kind of registry with hosts that such registries named ([`super::reach`]). Redirects are not followed here and bodies are never decoded
//! here, because a range of a decoded body would mean nothing.

use std::error::Error as _;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue,
};
use reqwest::{Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::authority::authority;
use super::headers::{self, ContentRange};
use super::names::{Names, NoAddress};
use super::reach::{self, OutOfReach, Reach, Way, Within};
use crate::client::stats::Counters;
use crate::config::{Budget, ClientConfig, is_loopback};
use crate::error::{ClientError, Fault};

/// How much of an error's body is read and shown.
const MAX_ERROR_BODY: usize = 4 << 10;
/// Flow-control window of one HTTP/2 stream. The default of 64 KiB holds a fast line back at any distance.
const HTTP2_WINDOW: u32 = 4 << 20;
/// Slowest upload that is waited for, in bytes a second: 1 Mbit/s.
const LEAST_UPLOAD_RATE: u64 = 125_000;
/// Idle connections are closed after this; registries in clouds close theirs after 60 to 350 s.
const IDLE_CONNECTION: Duration = Duration::from_secs(55);

/// The connection pools.
pub(crate) struct Pools {
    proxied: reqwest::Client,
    direct: reqwest::Client,
    /// For hosts that registries named, by how near these are; made when they are first wanted.
    told: [OnceLock<Result<reqwest::Client, String>>; 4],
    /// Says as `proxied` does what goes through a proxy.
    proxies: Matcher,
    tls: rustls::ClientConfig,
    budget: Budget,
    user_agent: String,
    internal_hosts: Vec<String>,
}

impl std::fmt::Debug for Pools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pools").finish_non_exhaustive()
    }
}

impl Pools {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let tls = tls_config(&config.ca_files)?;
        let (budget, user_agent) = (&config.budget, &config.user_agent);
        let builder = || builder(&tls, budget, user_agent).dns_resolver(Names::by_system());
        let build = |builder: reqwest::ClientBuilder| {
            builder
                .build()
                .map_err(|error| ClientError::Config(root_cause(&error)))
        };
        Ok(Self {
            proxied: build(builder())?,
            direct: build(builder().no_proxy())?,
            told: Default::default(),
            proxies: Matcher::from_system(),
            budget: budget.clone(),
            user_agent: user_agent.clone(),
            internal_hosts: config.internal_hosts.clone(),
            tls,
        })
    }

    /// The pool for `url`: never a proxy to this machine itself.
    ///
    /// # Errors
    /// When a registry named it that may not.
    pub(crate) fn for_url(&self, url: &Url, way: Way) -> Result<&reqwest::Client, Fault> {
        reach::check(way, url, &self.internal_hosts)?;
        match way {
            _ if is_loopback(&authority(url)) => Ok(&self.direct),
            Way::Told(by) if !self.is_proxied(url) && !reach::is_listed(url, &self.internal_hosts) => {
                self.told_by(by)
            }
            _ => Ok(&self.proxied),
        }
    }

    /// The pool for hosts that registries which are this near named.
    fn told_by(&self, by: Reach) -> Result<&reqwest::Client, Fault> {
        let nothing = || Fault::Protocol(format!("there is no pool for registries {by}"));
        let pool = self.told.get(by as usize).ok_or_else(nothing)?;
        let made = pool.get_or_init(|| {
            let within = Within::new(Names::told(), by);
            let builder = builder(&self.tls, &self.budget, &self.user_agent);
            let builder = builder.no_proxy().dns_resolver(std::sync::Arc::new(within));
            builder.build().map_err(|error| root_cause(&error))
        });
        made.as_ref().map_err(|reason| Fault::Protocol(reason.clone()))
    }

    fn is_proxied(&self, url: &Url) -> bool {
        let uri = url.as_str().parse();
        uri.is_ok_and(|uri| self.proxies.intercept(&uri).is_some())
    }

    /// How near the server is that gave an answer. One behind a proxy may be anywhere.
    pub(crate) fn reach_of(&self, answer: &Answer) -> Reach {
        let url = answer.url();
        if !is_loopback(&authority(url)) && self.is_proxied(url) {
            return Reach::Internet;
        }
        let peer = answer.response.remote_addr();
        peer.map_or(Reach::Internet, |peer| Reach::of(peer.ip()))
    }
}

/// The settings that all pools have in common.
fn builder(tls: &rustls::ClientConfig, budget: &Budget, user_agent: &str) -> reqwest::ClientBuilder {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls.clone())
        .user_agent(user_agent)
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(budget.connect_timeout)
        .pool_idle_timeout(IDLE_CONNECTION)
        .tcp_keepalive(Duration::from_secs(30))
        .tcp_nodelay(true)
        .http2_initial_stream_window_size(HTTP2_WINDOW)
        .http2_initial_connection_window_size(HTTP2_WINDOW * 4)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .retry(reqwest::retry::never())
}

/// The system's certificate authorities, read once: there are more than a hundred, which takes some milliseconds.
static SYSTEM_AUTHORITIES: LazyLock<rustls::RootCertStore> = LazyLock::new(|| {
    let mut roots = rustls::RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "some of the system's certificate authorities cannot be read");
    }
    roots.add_parsable_certificates(system.certs);
    roots
});

/// Reads what the first client would otherwise read while somebody waits for it. Blocks.
pub fn read_authorities() {
    LazyLock::force(&SYSTEM_AUTHORITIES);
}

/// TLS 1.2 and 1.3 by ring, with the system's authorities and those the user named.
fn tls_config(ca_files: &[impl AsRef<Path>]) -> Result<rustls::ClientConfig, ClientError> {
    let mut roots = SYSTEM_AUTHORITIES.clone();
    for path in ca_files {
        let path = path.as_ref();
        let fail = |reason: String| ClientError::CaFile {
            path: path.to_owned(),
            reason,
        };
        let mut found = 0;
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))? {
            let certificate = certificate.map_err(|error| fail(error.to_string()))?;
            roots.add(certificate).map_err(|error| fail(error.to_string()))?;
            found += 1;
        }
        if found == 0 {
            return Err(fail("it has no PEM certificate".to_owned()));
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Config(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Sends one request and waits for the head of its answer.
pub(crate) async fn execute(
    pools: &Pools,
    request: reqwest::Request,
    way: Way,
    budget: &Budget,
    counters: &Counters,
) -> Result<Answer, Fault> {
    let pool = pools.for_url(request.url(), way)?;
    counters.request();
    // The answer to a body comes when all of it is sent.
    let sending = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let limit = budget.response_timeout + Duration::from_secs(sending.unwrap_or(0) / LEAST_UPLOAD_RATE);
    let response = tokio::time::timeout(limit, pool.execute(request))
        .await
        .map_err(|_| Fault::Timeout("answer", limit))?
        .map_err(|error| fault_of(&error))?;
    let encoded = response
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(|v| !v.as_bytes().is_empty() && v != "identity");
    if encoded && response.status().is_success() {
        // Asked again, another server behind the same name may do better.
        return Err(Fault::WrongRange(
            "the registry or a proxy compressed the answer although it was asked not to".to_owned(),
        ));
    }
    Ok(Answer {
        expected: response.content_length(),
        response,
        counters: counters.clone(),
        received: 0,
        stall_window: budget.stall_window,
        stall_bytes: budget.stall_bytes,
        window_bytes: 0,
        waited: Duration::ZERO,
        _permit: None,
    })
}

/// An answer whose body is read part by part.
#[derive(Debug)]
pub(crate) struct Answer {
    response: Response,
    counters: Counters,
    /// `Content-Length`, if there is one.
    expected: Option<u64>,
    received: u64,
    stall_window: Duration,
    stall_bytes: u64,
    window_bytes: u64,
    /// Time spent waiting for bytes in this window; the consumer's own time does not count.
    waited: Duration,
    /// The place among the requests under way, held until the body is read or dropped.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Answer {
    /// One with this body, by the budget that clients have by default.
    #[cfg(test)]
    pub(crate) fn of_body(body: reqwest::Body) -> Self {
        let budget = crate::config::Budget::default();
        Self {
            response: hyper::Response::new(body).into(),
            counters: Counters::default(),
            expected: None,
            received: 0,
            stall_window: budget.stall_window,
            stall_bytes: budget.stall_bytes,
            window_bytes: 0,
            waited: Duration::ZERO,
            _permit: None,
        }
    }

    /// Keeps `permit` as long as this answer is read.
    pub(crate) fn holding(self, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            _permit: permit,
            ..self
        }
    }

    /// The same of a body in which something comes within each `silence`, however little. It holds no place.
    pub(crate) fn trickling(self, silence: Duration) -> Self {
        Self {
            stall_window: silence,
            stall_bytes: 1,
            _permit: None,
            ..self
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub(crate) fn url(&self) -> &Url {
        self.response.url()
    }

    pub(crate) fn version(&self) -> reqwest::Version {
        self.response.version()
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    pub(crate) fn content_length(&self) -> Option<u64> {
        self.expected
    }

    pub(crate) fn content_range(&self) -> Option<ContentRange> {
        headers::content_range(self.headers().get(CONTENT_RANGE)?.to_str().ok()?)
    }

    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// If the connection breaks, the body ends early, or too little comes in a window of time.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let before = Instant::now();
        let left = self.stall_window.saturating_sub(self.waited);
        let part = tokio::time::timeout(left, self.response.chunk()).await;
        self.waited += before.elapsed();
        let part = match part {
            Ok(Ok(part)) => part,
            Ok(Err(error)) => return Err(self.broken(&error)),
            Err(_) => {
                return Err(Fault::Stalled {
                    bytes: self.window_bytes,
                    window: self.stall_window,
                });
            }
        };
        let Some(part) = part else {
            return match self.expected {
                Some(expected) if self.received < expected => Err(Fault::Truncated {
                    expected,
                    got: self.received,
                }),
                _ => Ok(None),
            };
        };
        let length = part.len() as u64;
        self.counters.received(length);
        self.received += length;
        self.window_bytes += length;
        if self.window_bytes >= self.stall_bytes {
            (self.window_bytes, self.waited) = (0, Duration::ZERO);
        }
        Ok(Some(part))
    }

    fn broken(&self, error: &reqwest::Error) -> Fault {
        match self.expected {
            Some(expected) if self.received < expected => Fault::Truncated {
                expected,
                got: self.received,
            },
            _ => fault_of(error),
        }
    }

    /// The whole body, if it is not longer than `limit`.
    pub(crate) async fn body(mut self, limit: u64) -> Result<Bytes, Fault> {
        if self.expected.is_some_and(|expected| expected > limit) {
            return Err(Fault::TooLarge { limit });
        }
        let mut body = BytesMut::with_capacity(usize::try_from(self.expected.unwrap_or(0)).unwrap_or(0));
        while let Some(part) = self.chunk().await? {
            if body.len() as u64 + part.len() as u64 > limit {
                return Err(Fault::TooLarge { limit });
            }
            body.extend_from_slice(&part);
        }
        Ok(body.freeze())
    }

    /// The fault that an unsuccessful answer means.
    pub(crate) async fn into_fault(mut self) -> Fault {
        let code = self.status().as_u16();
        let retry_after = headers::retry_after(self.headers(), SystemTime::now());
        let mut body = Vec::new();
        // The explanation is a courtesy; without it the status still says enough.
        while let Ok(Some(part)) = self.chunk().await {
            body.extend_from_slice(&part);
            if body.len() >= MAX_ERROR_BODY {
                break;
            }
        }
        body.truncate(MAX_ERROR_BODY);
        Fault::Status {
            code,
            message: error_message(&body),
            retry_after,
        }
    }

    /// The codes in the body of an error (distribution specification, `errors`); none if it is something else. Reads a short
    /// body to its end, so that the connection can be used again.
    pub(crate) async fn error_codes(mut self) -> Vec<String> {
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BODY
            && let Ok(Some(part)) = self.chunk().await
        {
            body.extend_from_slice(&part);
        }
        let errors: Result<Errors, _> = serde_json::from_slice(&body);
        errors.map_or_else(
            |_| Vec::new(),
            |Errors { errors }| errors.into_iter().map(|error| error.code).collect(),
        )
    }

    /// Reads a short body to its end, so that the connection can be used again.
    pub(crate) async fn discard(mut self) {
        while self.received < MAX_ERROR_BODY as u64 && matches!(self.chunk().await, Ok(Some(_))) {}
    }
}

/// The body of an error.
#[derive(serde::Deserialize)]
struct Errors {
    errors: Vec<Entry>,
}

#[derive(serde::Deserialize)]
struct Entry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The message in the body of an error: the distribution specification's `errors`, or the start of a plain text.
pub(crate) fn error_message(body: &[u8]) -> String {
    if let Ok(Errors { errors }) = serde_json::from_slice(body) {
        let texts: Vec<String> = errors
            .iter()
            .take(3)
            .map(|e| format!("{}: {}", e.code, e.message))
            .collect();
        return shorten(&texts.join("; "));
    }
    let text = String::from_utf8_lossy(body);
    // An HTML error page explains nothing.
    if text.trim_start().starts_with('<') {
        String::new()
    } else {
        shorten(text.trim())
    }
}

fn shorten(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(200).collect()
}

/// Tells apart what went wrong below HTTP.
pub(crate) fn fault_of(error: &reqwest::Error) -> Fault {
    let cause = root_cause(error);
    if let Some(tls) = find_cause::<rustls::Error>(error)
        && !matches!(tls, rustls::Error::General(_))
    {
        return Fault::Tls(tls.to_string());
    }
    if let Some(OutOfReach(reason)) = find_cause::<OutOfReach>(error) {
        return Fault::Protocol(reason.clone());
    }
    if let Some(NoAddress::Unknown(host)) = find_cause::<NoAddress>(error) {
        return Fault::UnknownHost(host.clone());
    }
    if error.is_connect() {
        return match find_cause::<std::io::Error>(error) {
            Some(error) if is_known_at_once(error.kind()) => Fault::NobodyThere(cause),
            _ => Fault::Connect(cause),
        };
    }
    if error.is_timeout() {
        return Fault::Broken("timed out".to_owned());
    }
    if error.is_builder() {
        return Fault::Protocol(cause);
    }
    Fault::Broken(cause)
}

/// Whether the network said that nobody is there, instead of saying nothing.
fn is_known_at_once(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// The error of type `T` somewhere below `error`.
pub(crate) fn find_cause<T: std::error::Error + 'static>(error: &reqwest::Error) -> Option<&T> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<T>() {
            return Some(found);
        }
        next = below(cause);
    }
    None
}

/// The next error below. An I/O error may have one as its payload, which `source` skips.
fn below<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a (dyn std::error::Error + 'static)> {
    match error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(payload) => Some(payload),
        None => error.source(),
    }
}

/// The innermost error, which says what really happened.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
