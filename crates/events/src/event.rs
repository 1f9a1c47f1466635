//! Events: what happened to the contents of the registry, for the parts that log it or pass it on.
//!
//! The API tells each [`Listener`] after the client has got what it asked for, or what it sent is on the disk. A listener must not wait:
//! what takes time goes into a queue of its own.

use std::net::SocketAddr;
use std::time::SystemTime;

use crate::deletion::Gone;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A manifest was read.
    PullManifest,
    /// A blob, or a part of one, was read.
    PullBlob,
    /// A manifest was written, perhaps with tags.
    PushManifest,
    /// A blob was written.
    PushBlob,
    /// A blob was taken over from another repository.
    MountBlob,
    /// A manifest was deleted, with its tags.
    DeleteManifest,
    /// A blob was deleted.
    DeleteBlob,
    /// A tag was deleted; its manifest stays.
    DeleteTag,
}

/// The user that asked, and the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The user's name; none for somebody who did not log in.
    pub user: Option<String>,
    /// The other end of the connection.
    pub peer: Option<SocketAddr>,
    /// The request's id, which is in its answer and in the log, too.
    pub request_id: String,
    /// The host that the client asked, as it named it.
    pub host: String,
    /// The client's own word on what it is.
    pub user_agent: String,
    /// The method of the request.
    pub method: String,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub kind: EventKind,
    /// When.
    pub time: SystemTime,
    /// In which repository.
    pub repository: String,
    /// Of which manifest or blob.
    pub digest: Option<String>,
    /// Under which tags.
    pub tags: Vec<String>,
    /// The media type, where it is known.
    pub media_type: Option<String>,
    /// The number of bytes, where it is known.
    pub size: Option<u64>,
    /// The repository that a blob was taken over from.
    pub from: Option<String>,
    /// By whom.
    pub origin: Origin,
}

/// A part of the registry that hears of events.
pub trait Listener: Send + Sync {
    /// Takes note of an event, at once.
    fn happened(&self, event: &Event);

    /// Takes note of what the registry itself has deleted by a rule, at once.
    fn let_go(&self, _gone: &Gone) {}
}

/// The longest text of one field that is written down or passed on, in characters. Fields that clients fill have no limit of their own.
const MAX_FIELD: usize = 300;

/// A text that is no longer than one field may be.
pub(crate) fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_FIELD);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
