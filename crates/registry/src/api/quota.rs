//! Room for what a client sends, by the quotas of the repository's prefixes: asked for before the bytes come, and while they come if the
//! client does not say how many.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::CONTENT_LENGTH;
use xebec_policy::quota::{QuotaExceeded, Reservation};
use xebec_store::RepositoryName;

use super::call::Call;
use super::failure;
use crate::body::RequestBody;
use crate::error::{ApiError, Code};

/// Makes room for `bytes` in a repository; nothing if no quota counts for it.
pub(crate) async fn room(
    call: &Call<'_>,
    repository: &RepositoryName,
    bytes: u64,
) -> Result<Option<Reservation>, ApiError> {
    let quotas = &call.registry.quotas;
    let mut used = Vec::new();
    for quota in quotas.of(repository.as_str()) {
        let usage = call.registry.store.usage(&quota.prefix).await;
        let usage = usage.map_err(|error| failure::of("adding up what is stored", &error))?;
        used.push((quota.prefix.clone(), usage.bytes.saturating_add(usage.uploads)));
    }
    if used.is_empty() {
        return Ok(None);
    }
    let admitted = quotas.admit(repository.as_str(), bytes, |quota| {
        let stored = used.iter().find(|(prefix, _)| *prefix == quota.prefix);
        stored.map_or(0, |(_, bytes)| *bytes)
    });
    admitted.map(Some).map_err(|error| refused(&error))
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
