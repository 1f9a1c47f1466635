//! One request on its way through the API.

use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{HOST, HeaderName, USER_AGENT};
use hyper::http::request::Parts;
use xebec_access::{Action, Caller, Need, Peer};
use xebec_store::{Digest, RepositoryName, Tag};

use crate::body::RequestBody;
use crate::error::ApiError;
use crate::memory::Room;
use crate::request::Query;
use crate::state::Registry;
use xebec_events::{Event, EventKind, Origin};

/// The id of a request, which the server puts into its extensions.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

/// A request, as handlers get it.
pub(crate) struct Call<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) parts: &'a Parts,
    pub(crate) query: Query,
    pub(crate) caller: Caller,
    pub(crate) body: &'a mut RequestBody,
}

impl Call<'_> {
    /// The value of a header, if it is text.
    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        header(&self.parts.headers, name)
    }

    /// Room in memory for so many bytes.
    pub(crate) async fn room(&self, bytes: u64) -> Result<Room, ApiError> {
        self.registry.memory.room(self.parts, bytes).await
    }

    /// The same, if there is some now: for work that others wait for.
    pub(crate) fn room_now(&self, bytes: u64) -> Option<Room> {
        self.registry.memory.room_now(self.parts, bytes)
    }

    /// Whether the caller may also do this.
    pub(crate) fn may(&self, repository: &RepositoryName, action: Action) -> bool {
        let need = Need {
            repository: repository.to_string(),
            action,
        };
        self.registry.guard.may(&self.caller, &need)
    }

    /// Tells all listeners what happened.
    pub(crate) fn tell(&self, kind: EventKind, repository: &RepositoryName, what: What<'_>) {
        if self.registry.listeners.is_empty() {
            return;
        }
        self.registry.tell(&Event {
            kind,
            time: SystemTime::now(),
            repository: repository.to_string(),
            digest: what.digest.map(Digest::to_string),
            tags: what.tags.iter().map(Tag::to_string).collect(),
            media_type: what.media_type.map(str::to_owned),
            size: what.size,
            from: what.from.map(RepositoryName::to_string),
            origin: self.origin(),
        });
    }

    fn origin(&self) -> Origin {
        let text = |name| self.header(name).unwrap_or_default().to_owned();
        let extensions = &self.parts.extensions;
        Origin {
            user: self.caller.name.clone(),
            peer: extensions.get::<Peer>().map(|peer| peer.0),
            request_id: extensions
                .get::<RequestId>()
                .map(|id| id.0.clone())
                .unwrap_or_default(),
            host: match self.parts.uri.authority() {
                Some(authority) => authority.to_string(),
                None => text(HOST),
            },
            user_agent: text(USER_AGENT),
            method: self.parts.method.to_string(),
        }
    }
}

/// The subject of an event.
#[derive(Default)]
pub(crate) struct What<'a> {
    pub(crate) digest: Option<&'a Digest>,
    pub(crate) tags: &'a [Tag],
    pub(crate) media_type: Option<&'a str>,
    pub(crate) size: Option<u64>,
    pub(crate) from: Option<&'a RepositoryName>,
}

/// The value of a header, if it is text.
pub(crate) fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The result of a handler.
pub(crate) type Outcome = Result<super::reply::Answer, ApiError>;
