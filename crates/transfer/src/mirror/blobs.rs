//! Blobs of the other registry: fetched once, compared with their digests, and never when they are here.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use xebec_kernel::keyed_lock::KeyedLock;
use xebec_oci::{BlobStream, ClientError};
use xebec_store::{AppendError, Digest, Store};

use super::names::Pair;
use super::rate::Rate;
use super::source::{MOST_WAITS, Source, Trouble, patient};
use crate::tally::Tally;

/// Those of all repositories of one source.
pub(super) struct Blobs {
    pub(super) store: Store,
    pub(super) source: Source,
    pub(super) tally: Arc<Tally>,
    pub(super) rate: Arc<Rate>,
    /// Those that are fetched at the same time.
    pub(super) at_once: Semaphore,
    pub(super) turns: KeyedLock<Digest>,
}

impl Blobs {
    /// Sees that the repository here has a blob, whose manifest says its size.
    pub(super) async fn bring(&self, pair: &Pair, digest: &Digest, size: u64) -> Result<(), Trouble> {
        let _turn = self.turns.take(digest.clone()).await;
        if self.store.blob(&pair.here, digest).await?.is_some() {
            self.tally.add(|moved| moved.blobs_here += 1);
            return Ok(());
        }
        let known: xebec_format::digest::Digest = digest
            .to_string()
            .parse()
            .map_err(|_| Trouble::Skip(format!("{digest}: other registries are asked for sha256 only")))?;
        if self.store.any_blob(digest).await?.is_some() {
            // Another repository here has it. This one gets it if the other registry has it in that repository, too.
            patient(|| self.source.client.blob_size(&pair.there, &known)).await?;
            if self.store.adopt_blob(&pair.here, digest).await?.is_some() {
                self.tally.add(|moved| moved.blobs_here += 1);
                return Ok(());
            }
        }
        let _place = self.at_once.acquire().await;
        self.tally.add(|moved| moved.expected_bytes += size);
        let mut waits = 0;
        while let Err(trouble) = self.fetch(pair, digest, &known, size).await {
            // The limit was met in the middle of the blob.
            match trouble.limit().filter(|_| waits < MOST_WAITS) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(trouble),
            }
            waits += 1;
        }
        self.tally.add(|moved| moved.blobs += 1);
        Ok(())
    }

    async fn fetch(
        &self,
        pair: &Pair,
        digest: &Digest,
        known: &xebec_format::digest::Digest,
        size: u64,
    ) -> Result<(), Trouble> {
        let stream = patient(|| self.source.client.blob_stream(&pair.there, known, size, 0)).await?;
        let id = self.store.begin_upload(&pair.here).await?;
        let broken = Arc::new(Mutex::new(None));
        let body = paid(stream, self.rate.clone(), self.tally.clone(), broken.clone());
        let kept = match self.store.append(&pair.here, &id, None, body).await {
            Ok(_) => self
                .store
                .finish_upload(&pair.here, &id, digest)
                .await
                .map(drop)
                .map_err(Trouble::from),
            Err(AppendError::Store(error)) => Err(error.into()),
            Err(error) => {
                let cause = broken.lock().take();
                Err(cause.map_or_else(|| Trouble::Skip(error.to_string()), Trouble::from))
            }
        };
        if kept.is_err() {
            // One whose bytes are wrong is ended already.
            self.store.cancel_upload(&pair.here, &id).await?;
        }
        kept
    }
}

/// The parts that come, counted, and no faster than they may. The error that broke the stream off is left in `broken`.
fn paid(
    stream: BlobStream,
    rate: Arc<Rate>,
    tally: Arc<Tally>,
    broken: Arc<Mutex<Option<ClientError>>>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    futures_util::stream::try_unfold(stream, move |mut stream| {
        let (rate, tally, broken) = (rate.clone(), tally.clone(), broken.clone());
        async move {
            match stream.next_part().await {
                Ok(Some(part)) => {
                    rate.pay(part.len()).await;
                    tally.add(|moved| moved.bytes += part.len() as u64);
                    Ok(Some((part, stream)))
                }
                Ok(None) => Ok(None),
                Err(error) => {
                    let text = error.to_string();
                    *broken.lock() = Some(error);
                    Err(io::Error::other(text))
                }
            }
        }
    })
}
