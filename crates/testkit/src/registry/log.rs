//! The log of requests and their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The registry and its token server.
    Registry,
    /// Where it redirects blobs to.
    Cdn,
}

/// The facts about a request that are known before it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Which server got it.
    pub place: Place,
    /// Number of the connection it came by, counted from 0.
    pub connection: u64,
    /// Whether that connection speaks HTTP/2.
    pub http2: bool,
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// Its query, or empty.
    pub query: String,
    /// Its `Range`.
    pub range: Option<String>,
    /// Its `Authorization`.
    pub authorization: Option<String>,
}

/// A request with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// The request.
    pub head: RequestHead,
    /// Status of the answer; 0 if there was none.
    pub status: u16,
    /// Bytes of the body that were handed to the connection.
    pub bytes_sent: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    head: RequestHead,
    status: u16,
    bytes_sent: Arc<AtomicU64>,
}

impl Entry {
    pub(super) fn new(head: RequestHead, status: u16, bytes_sent: Arc<AtomicU64>) -> Self {
        Self {
            head,
            status,
            bytes_sent,
        }
    }

    pub(super) fn read(&self) -> LoggedRequest {
        LoggedRequest {
            head: self.head.clone(),
            status: self.status,
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
        }
    }
}
