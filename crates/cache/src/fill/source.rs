//! Where bytes come from, how long to try, and what can go wrong there.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::progress::Progress;

/// A future that can be sent to another thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Which of a layer's blobs a range is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blob {
    /// The layer blob itself.
    Layer,
    /// The windows section of the index.
    Windows,
}

/// How long a reader or command waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as the source finds right for a user at the keyboard.
    Brief,
    /// Until then, if what is wrong can pass.
    Until(Instant),
}

impl Patience {
    /// Until so long from now.
    pub fn lasting(time: Duration) -> Self {
        Self::Until(Instant::now() + time)
    }

    pub(super) fn lasts(self, time: Duration) -> bool {
        matches!(self, Self::Until(deadline) if Instant::now() + time < deadline)
    }
}

/// A request to a source.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which blob.
    pub blob: Blob,
    /// Which of its bytes.
    pub range: Range<u64>,
    /// How long to try.
    pub patience: Patience,
    /// Sources, as they are named in [`Fetched::sources`], that sent wrong bytes: they are asked last.
    pub avoid: Vec<String>,
    /// Tells what the request waits for.
    pub progress: Arc<Progress>,
}

/// The answer of a source.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The bytes.
    pub bytes: Bytes,
    /// Where they came from, and how many: hosts, or words for what was kept on this one.
    pub sources: Vec<(String, u64)>,
}

/// The kind of a source's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It can pass without a change on this host: an outage, a lost login.
    Passing,
    /// It cannot: there is no such blob, a certificate is not trusted.
    Lasting,
    /// Other bytes came than were asked for by digest.
    Wrong,
}

/// Why a source has no bytes.
#[derive(Clone, Debug)]
pub struct SourceError {
    /// Whether it is worth waiting.
    pub kind: FaultKind,
    /// A text for people that names the place.
    pub reason: String,
}

/// Where a layer's bytes come from: a registry, a local file, a peer.
pub trait Source: Send + Sync {
    /// Exactly the bytes that are asked for, unverified.
    fn read(&self, ask: Ask) -> BoxFuture<Result<Fetched, SourceError>>;
}
