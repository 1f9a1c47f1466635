//! Notifications of pushes, pulls and deletes, in the format of the CNCF registry
//! (`application/vnd.docker.distribution.events.v1+json`).
//!
//! Each receiver has a bounded queue and a task of its own, so that neither a request nor another receiver waits for one that is slow.
//! Events are sent in order, several in one request when several wait (`delivery`). Fields that clients fill are cut, as in the audit
//! log. A server that ends in order sends waiting events first; events that wait when it ends without warning are lost.
//!
//! With a secret, each request carries `X-Xebec-Signature-256: sha256=<hex>`, the HMAC-SHA256 of the body.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::watch;
use tokio::time::Instant;
use xebec_access::outgoing::{self, OutgoingError};
use xebec_kernel::clock;
use xebec_settings::pattern::RepositoryPattern;
use xebec_settings::period::Period;

pub use crate::counters::Counters;
use crate::delivery::Delivery;
use crate::event::{Event, EventKind, Listener, cut};

pub use crate::delivery::signature;

/// The media type of the body.
const MEDIA_TYPE: &str = "application/vnd.docker.distribution.events.v1+json";

/// `[[webhook]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// Where to.
    pub url: String,
    /// The kinds of events: `push`, `pull`, `delete`, `mount`.
    #[serde(default = "changes")]
    pub events: Vec<Kind>,
    /// Which repositories; all without it.
    pub repositories: Option<RepositoryPattern>,
    /// The environment variable that holds the secret for signatures.
    pub secret_env: Option<String>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Headers whose values are secret: each with the environment variable that holds its value.
    #[serde(default)]
    pub headers_env: BTreeMap<String, String>,
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
        self.headers(|_| Ok("secret".to_owned())).map(drop)
    }

    /// The headers of each request. `variable` reads a variable of the environment.
    fn headers(
        &self,
        variable: impl Fn(&str) -> Result<String, WebhookError>,
    ) -> Result<HeaderMap, WebhookError> {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str, is_secret: bool| {
            let header = HeaderName::try_from(name).ok();
            let header = header.zip(HeaderValue::try_from(value).ok());
            let (header, mut value) = header.ok_or_else(|| WebhookError::Header {
                url: self.url.clone(),
                name: name.to_owned(),
            })?;
            value.set_sensitive(is_secret);
            headers.insert(header, value);
            Ok::<(), WebhookError>(())
        };
        for (name, value) in &self.headers {
            add(name, value, false)?;
        }
        for (name, named) in &self.headers_env {
            add(name, &variable(named)?, true)?;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        Ok(headers)
    }

    /// The value of a variable that the settings name.
    fn variable(&self, name: &str) -> Result<String, WebhookError> {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        value.ok_or_else(|| WebhookError::Secret {
            url: self.url.clone(),
            variable: name.to_owned(),
        })
    }

    /// The sender to this receiver. `instance` names this process in events.
    fn delivery(&self, instance: &str) -> Result<Delivery, WebhookError> {
        let secret = self.secret_env.as_deref().map(|name| self.variable(name));
        Ok(Delivery {
            url: outgoing::address(&self.url)?,
            client: outgoing::client(self.ca_file.as_deref(), outgoing::Redirects::None)?,
            headers: self.headers(|name| self.variable(name))?,
            secret: secret.transpose()?.map(String::into_bytes),
            give_up_after: self.give_up_after.0,
            instance: instance.to_owned(),
            counters: Arc::default(),
        })
    }
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

/// Tells all receivers.
#[derive(Debug)]
pub struct Webhooks {
    receivers: Vec<Receiving>,
    /// Since when the registry ends. Each delivery watches it, until it has sent all.
    ending: watch::Sender<Option<Instant>>,
}

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
        let (ending, watched) = watch::channel(None);
        for receiver in settings {
            let delivery = receiver.delivery(instance)?;
            let (queue, events) = channel(receiver.queue.max(1));
            receivers.push(Receiving {
                url: delivery.url.clone(),
                events: receiver.events.clone(),
                repositories: receiver.repositories.clone(),
                queue,
                counters: Arc::clone(&delivery.counters),
            });
            drop(tokio::spawn(delivery.run(events, watched.clone())));
        }
        Ok(Arc::new(Self { receivers, ending }))
    }

    /// The counters of each receiver, by its host.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Counters)> {
        self.receivers
            .iter()
            .map(|receiver| (receiver.url.host_str().unwrap_or_default(), &*receiver.counters))
    }

    /// Takes no more events, and waits until those that wait are sent, but no longer than `within`. How many are not.
    pub async fn finish(&self, within: Duration) -> u64 {
        self.ending.send_replace(Some(Instant::now()));
        // Closed once no delivery watches any more.
        let sent = tokio::time::timeout(within, self.ending.closed()).await;
        let left = |receiver: &Receiving| receiver.counters.waiting.load(Ordering::Relaxed);
        match sent {
            Ok(()) => 0,
            Err(_) => self.receivers.iter().map(left).sum(),
        }
    }
}

impl Listener for Webhooks {
    fn happened(&self, event: &Event) {
        let kind = Kind::of(event.kind);
        for receiver in &self.receivers {
            let covered = receiver
                .repositories
                .as_ref()
                .is_none_or(|pattern| pattern.covers(&event.repository));
            if !covered || !receiver.events.contains(&kind) {
                continue;
            }
            for event in notifications(event, kind) {
                receiver.counters.waiting.fetch_add(1, Ordering::Relaxed);
                if receiver.queue.try_send(event).is_err() {
                    receiver.counters.waiting.fetch_sub(1, Ordering::Relaxed);
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
        "mediaType": event.media_type.as_deref().map(cut),
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
            "id": cut(&origin.request_id),
            "addr": origin.peer.map(|peer| peer.to_string()).unwrap_or_default(),
            "host": cut(&origin.host),
            "method": cut(&origin.method),
            "useragent": cut(&origin.user_agent),
        },
        "actor": match &origin.user {
            Some(name) => json!({"name": cut(name)}),
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
