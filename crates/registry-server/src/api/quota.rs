//! Room for what a client sends, by the quotas of the repository's prefixes: asked for before the bytes come, and while they come if the
//! client does not say how many.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::CONTENT_LENGTH;
use xebec_policy::quota::{QuotaExceeded, Reservation};
use xebec_store::RepositoryName;

use super::call::Call;
use super::failure;
use crate::body::RequestBody;
use crate::error::{ApiError, Code};

/// A request does not wait longer than this until what is stored may be added up again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Makes room for `bytes` in a repository, or for what comes if nobody says how much; nothing if no quota counts for it.
pub(crate) async fn room(
    call: &Call<'_>,
    repository: &RepositoryName,
    bytes: Option<u64>,
) -> Result<Option<Reservation>, ApiError> {
    let quotas = &call.registry.quotas;
    if !quotas.cover(repository.as_str()) {
        return Ok(None);
    }
    let asked = Instant::now();
    add_up(call, repository, None).await?;
    // A body whose size nobody has announced cannot be tried again when it turns out to be too much.
    if bytes.is_some() || !quotas.is_close(repository.as_str()) {
        let admitted = quotas.admit(repository.as_str(), bytes.unwrap_or(0));
        if let Ok(room) = admitted {
            return Ok(Some(room));
        }
    }
    add_up(call, repository, Some(asked)).await?;
    let admitted = quotas.admit(repository.as_str(), bytes.unwrap_or(0));
    admitted.map(Some).map_err(|error| refused(&error))
}

/// Adds up what is stored, where the last sum is too old. A request that comes meanwhile waits for it, and begins none itself.
async fn add_up(
    call: &Call<'_>,
    repository: &RepositoryName,
    since: Option<Instant>,
) -> Result<(), ApiError> {
    let (registry, of) = (call.registry, repository.as_str());
    let due = registry.quotas.due(of, since);
    let Some(wait) = due.iter().map(|due| due.wait).max() else {
        return Ok(());
    };
    tokio::time::sleep(wait.min(LONGEST_PAUSE)).await;
    let _one = registry.adding_up.lock().await;
    while let Some(due) = registry.quotas.due(of, since).into_iter().next() {
        let usage = registry.store.usage(&due.prefix).await;
        let usage = usage.map_err(|error| failure::of("adding up what is stored", &error))?;
        let bytes = usage.bytes.saturating_add(usage.uploads);
        registry.quotas.added_up(&due, bytes);
    }
    Ok(())
}

/// How many bytes the client says that it sends.
pub(crate) fn announced(call: &Call<'_>) -> Option<u64> {
    call.header(CONTENT_LENGTH)?.parse().ok()
}

fn refused(error: &QuotaExceeded) -> ApiError {
    ApiError::new(Code::Denied, error.to_string())
}

/// A body that takes room as it comes.
pub(crate) struct Counted<'a> {
    body: &'a mut RequestBody,
    /// Nothing for a body whose room was made before.
    room: Option<&'a mut Reservation>,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(body: &'a mut RequestBody, room: Option<&'a mut Reservation>) -> Self {
        Self { body, room }
    }
}

impl Stream for Counted<'_> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut *self.body).poll_next(context);
        if let (Poll::Ready(Some(Ok(bytes))), Some(room)) = (&polled, &mut self.room)
            && let Err(error) = room.grow(bytes.len() as u64)
        {
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::QuotaExceeded, error))));
        }
        polled
    }
}
