//! Notifications of pushes, pulls and deletes, in the format of the CNCF registry
//! (`application/vnd.docker.distribution.events.v1+json`).
//!
//! Each receiver has a bounded queue and a task of its own, so that neither a request nor another receiver waits for one that is
//! slow. Events are sent in order, several in one request when several wait. What fails is sent again, later and later, for a time;
//! then it is dropped, counted and logged. Events that wait when the registry ends without warning are lost.
//!
//! With a secret, each request carries `X-Xebec-Signature-256: sha256=<hex>`, the HMAC-SHA256 of the body.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;
use xebec_access::outgoing::{self, OutgoingError};
use xebec_kernel::clock;
use xebec_settings::pattern::RepositoryPattern;
use xebec_settings::period::Period;

use crate::event::{Event, EventKind, Listener};

/// The media type of the body.
const MEDIA_TYPE: &str = "application/vnd.docker.distribution.events.v1+json";

/// The name of the header with the signature.
const SIGNATURE: HeaderName = HeaderName::from_static("x-xebec-signature-256");

/// The most events in one request.
const BATCH: usize = 100;

/// The first pause after a failure, which doubles each time up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often something is sent that the receiver says is wrong (4xx, but for 408, 425 and 429).
const TRIES_OF_REFUSED: u32 = 3;

/// `[[webhook]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// Where to.
    pub url: String,
    /// What about: `push`, `pull`, `delete`, `mount`.
    #[serde(default = "changes")]
    pub events: Vec<Kind>,
    /// Which repositories; all without it.
    pub repositories: Option<RepositoryPattern>,
    /// The environment variable that holds the secret for signatures.
    pub secret_env: Option<String>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Certificate authorities beside the system's.
    pub ca_file: Option<std::path::PathBuf>,
    /// How many events wait at most.
    #[serde(default = "queue")]
    pub queue: usize,
    /// How long an event is tried.
    #[serde(default = "one_hour")]
    pub give_up_after: Period,
}

impl WebhookSettings {
    /// Whether this can be carried out, as far as the file alone tells.
    ///
    /// # Errors
    /// See [`WebhookError`].
    pub fn check(&self) -> Result<(), WebhookError> {
        outgoing::address(&self.url)?;
        headers(self).map(drop)
    }
}

fn headers(settings: &WebhookSettings) -> Result<HeaderMap, WebhookError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let header = HeaderName::try_from(name)
            .ok()
            .zip(HeaderValue::try_from(value).ok());
        let (header, value) = header.ok_or_else(|| WebhookError::Header {
            url: settings.url.clone(),
            name: name.clone(),
        })?;
        headers.insert(header, value);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Ok(headers)
}

fn changes() -> Vec<Kind> {
    vec![Kind::Push, Kind::Delete, Kind::Mount]
}

fn queue() -> usize {
    1000
}

fn one_hour() -> Period {
    Period::seconds(3600)
}

/// A kind of event, by the CNCF registry's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A manifest or blob was written.
    Push,
    /// A manifest or blob was read.
    Pull,
    /// A manifest, blob or tag was deleted.
    Delete,
    /// A blob was taken over from another repository.
    Mount,
}

impl Kind {
    fn of(kind: EventKind) -> Self {
        match kind {
            EventKind::PullManifest | EventKind::PullBlob => Self::Pull,
            EventKind::PushManifest | EventKind::PushBlob => Self::Push,
            EventKind::MountBlob => Self::Mount,
            EventKind::DeleteManifest | EventKind::DeleteBlob | EventKind::DeleteTag => Self::Delete,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Delete => "delete",
            Self::Mount => "mount",
        }
    }
}

/// Why a receiver cannot be told anything.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Its address, or its authorities.
    #[error("[[webhook]]: {0}")]
    Outgoing(#[from] OutgoingError),
    /// The secret is not there.
    #[error(
        "[[webhook]] for {url}: the environment variable {variable} is not set, or empty; set it to the secret"
    )]
    Secret {
        /// Of which receiver.
        url: String,
        /// Which variable.
        variable: String,
    },
    /// A header that cannot be sent.
    #[error(
        "[[webhook]] for {url}: the header {name:?} cannot be sent; write a name and a value of printable ASCII"
    )]
    Header {
        /// Of which receiver.
        url: String,
        /// Which header.
        name: String,
    },
}

/// What happened to the events of one receiver.
#[derive(Debug, Default)]
pub struct Counters {
    /// Taken by the receiver.
    pub delivered: AtomicU64,
    /// Requests that failed.
    pub failed: AtomicU64,
    /// Given up, or too many for the queue.
    pub dropped: AtomicU64,
}

/// Tells all receivers.
#[derive(Debug)]
pub struct Webhooks(Vec<Receiving>);

#[derive(Debug)]
struct Receiving {
    url: Url,
    events: Vec<Kind>,
    repositories: Option<RepositoryPattern>,
    queue: Sender<Value>,
    counters: Arc<Counters>,
}

impl Webhooks {
    /// Begins to tell these. `instance` names this process in events.
    ///
    /// # Errors
    /// See [`WebhookError`].
    pub fn start(settings: &[WebhookSettings], instance: &str) -> Result<Arc<Self>, WebhookError> {
        let mut receivers = Vec::new();
        for receiver in settings {
            let delivery = Delivery::new(receiver, instance)?;
            let (queue, events) = channel(receiver.queue.max(1));
            receivers.push(Receiving {
                url: delivery.url.clone(),
                events: receiver.events.clone(),
                repositories: receiver.repositories.clone(),
                queue,
                counters: Arc::clone(&delivery.counters),
            });
            drop(tokio::spawn(delivery.run(events)));
        }
        Ok(Arc::new(Self(receivers)))
    }

    /// The counters of each receiver, by its host.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Counters)> {
        self.0
            .iter()
            .map(|receiver| (receiver.url.host_str().unwrap_or_default(), &*receiver.counters))
    }
}

impl Listener for Webhooks {
    fn happened(&self, event: &Event) {
        let kind = Kind::of(event.kind);
        for receiver in &self.0 {
            let covered = receiver
                .repositories
                .as_ref()
                .is_none_or(|pattern| pattern.covers(&event.repository));
            if !covered || !receiver.events.contains(&kind) {
                continue;
            }
            for event in notifications(event, kind) {
                if receiver.queue.try_send(event).is_err() {
                    let before = receiver.counters.dropped.fetch_add(1, Ordering::Relaxed);
                    // Said at the first, and then more and more rarely.
                    if before.wrapping_add(1).is_power_of_two() {
                        tracing::warn!(url = %receiver.url, dropped = before + 1, "a webhook's queue is full: events are dropped");
                    }
                }
            }
        }
    }
}

/// The event in the CNCF registry's format: one for each tag, since it has room for one.
fn notifications(event: &Event, kind: Kind) -> Vec<Value> {
    let tags: Vec<Option<&str>> = match event.tags.as_slice() {
        [] => vec![None],
        tags => tags.iter().map(|tag| Some(tag.as_str())).collect(),
    };
    tags.into_iter()
        .map(|tag| notification(event, kind, tag))
        .collect()
}

fn notification(event: &Event, kind: Kind, tag: Option<&str>) -> Value {
    let is_blob = matches!(
        event.kind,
        EventKind::PullBlob | EventKind::PushBlob | EventKind::MountBlob | EventKind::DeleteBlob
    );
    let what = if is_blob { "blobs" } else { "manifests" };
    let origin = &event.origin;
    let url = event
        .digest
        .as_ref()
        .map(|digest| format!("/v2/{}/{what}/{digest}", event.repository));
    let since = event.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut target = json!({
        "mediaType": event.media_type,
        "size": event.size,
        "length": event.size,
        "digest": event.digest,
        "repository": event.repository,
        "fromRepository": event.from,
        "url": url,
        "tag": tag,
    });
    if let Some(fields) = target.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    json!({
        "id": identifier(),
        "timestamp": clock::rfc3339_milliseconds(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        "action": kind.name(),
        "target": target,
        "request": {
            "id": origin.request_id,
            "addr": origin.peer.map(|peer| peer.to_string()).unwrap_or_default(),
            "host": origin.host,
            "method": origin.method,
            "useragent": origin.user_agent,
        },
        "actor": match &origin.user {
            Some(name) => json!({"name": name}),
            None => json!({}),
        },
    })
}

/// A random UUID: receivers know by it what they had before.
fn identifier() -> String {
    let hex = format!("{:032x}", fastrand::u128(..));
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-4{}-a{}-{}",
        part(0, 8),
        part(8, 12),
        part(13, 16),
        part(17, 20),
        part(20, 32)
    )
}

/// The HMAC-SHA256 of a body, as the header has it.
pub fn signature(secret: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), body);
    format!("sha256={}", hex::encode(tag.as_ref()))
}

/// What sends to one receiver.
struct Delivery {
    url: Url,
    client: Client,
    headers: HeaderMap,
    secret: Option<Vec<u8>>,
    give_up_after: Duration,
    instance: String,
    counters: Arc<Counters>,
}

/// How a request turned out.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    /// It may be taken later.
    Later(String),
    /// The receiver says that it is wrong.
    Refused(String),
}

impl Delivery {
    fn new(settings: &WebhookSettings, instance: &str) -> Result<Self, WebhookError> {
        let url = outgoing::address(&settings.url)?;
        let secret = settings.secret_env.as_ref().map(|variable| {
            let secret = std::env::var(variable).ok().filter(|secret| !secret.is_empty());
            secret
                .map(String::into_bytes)
                .ok_or_else(|| WebhookError::Secret {
                    url: settings.url.clone(),
                    variable: variable.clone(),
                })
        });
        Ok(Self {
            url,
            client: outgoing::client(settings.ca_file.as_deref(), outgoing::Redirects::None)?,
            headers: headers(settings)?,
            secret: secret.transpose()?,
            give_up_after: settings.give_up_after.0,
            instance: instance.to_owned(),
            counters: Arc::default(),
        })
    }

    async fn run(self, mut events: Receiver<Value>) {
        let mut batch = Vec::new();
        while events.recv_many(&mut batch, BATCH).await > 0 {
            for event in &mut batch {
                if let Some(fields) = event.as_object_mut() {
                    fields.insert(
                        "source".to_owned(),
                        json!({"addr": self.instance, "instanceID": self.instance}),
                    );
                }
            }
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            let body = json!({"events": batch}).to_string().into_bytes();
            let counter = if self.deliver(body).await {
                &self.counters.delivered
            } else {
                &self.counters.dropped
            };
            counter.fetch_add(count, Ordering::Relaxed);
            batch.clear();
        }
    }

    /// Whether the receiver took it in the end.
    async fn deliver(&self, body: Vec<u8>) -> bool {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut refused = 0;
        loop {
            let reason = match self.send(&body).await {
                Outcome::Taken => return true,
                Outcome::Later(reason) => reason,
                Outcome::Refused(reason) => {
                    refused += 1;
                    reason
                }
            };
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
            if refused == TRIES_OF_REFUSED || begun.elapsed() + pause > self.give_up_after {
                tracing::error!(url = %self.url, reason, "a webhook's events are given up");
                return false;
            }
            tracing::warn!(url = %self.url, reason, pause = ?pause, "a webhook's receiver takes no events; they are sent again");
            // Several nodes shall not come back at the same moment.
            tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn send(&self, body: &[u8]) -> Outcome {
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(body.to_vec());
        if let Some(secret) = &self.secret {
            request = request.header(SIGNATURE, signature(secret, body));
        }
        match request.send().await {
            Ok(response) => match response.status().as_u16() {
                200..=299 => Outcome::Taken,
                status @ (408 | 425 | 429 | 500..) => Outcome::Later(format!("it answers {status}")),
                status => Outcome::Refused(format!("it answers {status}")),
            },
            Err(error) => Outcome::Later(error.without_url().to_string()),
        }
    }
}
