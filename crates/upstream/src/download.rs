//! One blob on its way from an upstream: into the store, and into a spool that clients read from meanwhile.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use parking_lot::Mutex;
use xebec_oci::BlobStream;
use xebec_store::{AppendError, Blob, Digest, RepositoryName, StoreError, UploadId};

use crate::error::UpstreamError;
use crate::spool::Spool;
use crate::upstreams::{Upstream, known};

/// Brings the blob into the store, and meanwhile into the spool. The caller tells its readers what it came to.
pub(super) async fn run(
    upstream: &Upstream,
    repository: &RepositoryName,
    digest: &Digest,
    spool: &Arc<Spool>,
) -> Result<(), UpstreamError> {
    // It may have come between the moment when a client missed it and this one.
    if let Some(blob) = upstream.whole(repository, digest).await? {
        return copy(upstream, &blob, spool).await;
    }
    let theirs = upstream.theirs(repository)?;
    let opened = upstream
        .client()
        .blob_stream(&theirs, &known(digest)?, spool.size(), 0)
        .await;
    let opened = opened.map_err(|error| upstream.failed(&error));
    upstream.health().note(&opened);
    upstream.counts().asked(&opened);
    let stream = opened?;
    let store = upstream.store();
    let id = store.begin_upload(repository).await?;
    let kept = keep(upstream, repository, &id, digest, spool, stream).await;
    if kept.is_err()
        && let Err(error) = store.cancel_upload(repository, &id).await
    {
        tracing::debug!("{error}");
    }
    kept
}

/// Puts a blob that is here into the spool, for readers who wait for it.
async fn copy(upstream: &Upstream, blob: &Blob, spool: &Arc<Spool>) -> Result<(), UpstreamError> {
    let failed = |error: io::Error| UpstreamError::Host {
        doing: "read a blob that is here",
        reason: error.to_string(),
    };
    let mut stream = upstream.store().read(blob, 0..blob.size).await?;
    let mut at = 0;
    while let Some(part) = stream.next().await {
        let part = part.map_err(failed)?;
        spool.add(at, &part).map_err(failed)?;
        at += part.len() as u64;
    }
    Ok(())
}

async fn keep(
    upstream: &Upstream,
    repository: &RepositoryName,
    id: &UploadId,
    digest: &Digest,
    spool: &Arc<Spool>,
    stream: BlobStream,
) -> Result<(), UpstreamError> {
    let broken = Arc::new(Mutex::new(None));
    let body = tee(upstream.clone(), stream, spool.clone(), broken.clone());
    let store = upstream.store();
    match store.append(repository, id, None, body).await {
        Ok(_) => {}
        Err(AppendError::Store(error)) => return Err(error.into()),
        Err(error) => {
            let cause = broken.lock().take();
            return Err(cause.unwrap_or_else(|| UpstreamError::Host {
                doing: "keep a blob",
                reason: error.to_string(),
            }));
        }
    }
    match store.finish_upload(repository, id, digest).await {
        Ok(_) => Ok(()),
        Err(StoreError::DigestMismatch { found, .. }) => Err(UpstreamError::Wrong {
            registry: upstream.registry().to_owned(),
            reason: format!("content with digest {found} instead of {digest}"),
        }),
        Err(error) => Err(error.into()),
    }
}

/// The parts of a stream, each after it was put into the spool. The error that breaks it off is left in `broken`.
fn tee(
    upstream: Upstream,
    stream: BlobStream,
    spool: Arc<Spool>,
    broken: Arc<Mutex<Option<UpstreamError>>>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let state = (stream, 0_u64);
    futures_util::stream::try_unfold(state, move |(mut stream, at)| {
        let (upstream, spool, broken) = (upstream.clone(), spool.clone(), broken.clone());
        async move {
            let part = match stream.next_part().await {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(None),
                Err(error) => {
                    let error = upstream.failed(&error);
                    upstream.health().note::<()>(&Err(error.clone()));
                    *broken.lock() = Some(error.clone());
                    return Err(io::Error::other(error));
                }
            };
            upstream.counts().came(part.len());
            let end = at + part.len() as u64;
            let kept = part.clone();
            let adding = tokio::task::spawn_blocking(move || spool.add(at, &kept));
            adding.await.map_err(io::Error::other)??;
            Ok(Some((part, (stream, end))))
        }
    })
}
