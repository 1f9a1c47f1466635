//! Blobs of an upstream. A blob that is not here is fetched whole, once, for all clients that wait for it, and each is sent what has
//! come so far.
//!
//! A range that is far from what has come is fetched by itself and passed on: a host that reads one page of a large layer does not
//! wait for the layer. The whole blob is fetched behind it all the same (unless the configuration says otherwise): ranges have no
//! digest of their own, so only a whole blob can be verified and kept, and its index needs all of it. The next reader then finds it
//! here.
//!
//! How many are fetched at the same time is bounded, and how many wait. One for which there is no room beside the store's reserve is passed
//! on and not kept.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use tokio::sync::SemaphorePermit;
use xebec_store::{Blob, Digest, RepositoryName};

use crate::download;
use crate::error::UpstreamError;
use crate::fetch::{Fetch, room_for};
use crate::spool::Spool;
use crate::upstreams::{Upstream, known};

/// A range that begins so many bytes after what has come is waited for: that is sooner than a request of its own.
const NEAR: u64 = 1 << 20;
/// Blobs that are fetched or wait for that, of one upstream. Of those that wait, only those are fetched that somebody still reads.
const MOST_FETCHES: usize = 256;
/// Sizes that are remembered, so that an upstream is not asked again before a blob is fetched.
const MOST_SIZES: usize = 100_000;

/// Where a blob of an upstream is.
pub enum Found {
    /// In the store.
    Here(Blob),
    /// At the upstream, with so many bytes.
    There(u64),
}

impl Upstream {
    /// Where a blob is that the store's repository lacks.
    ///
    /// # Errors
    /// When the upstream lacks it too, or does not say.
    pub async fn blob(&self, repository: &RepositoryName, digest: &Digest) -> Result<Found, UpstreamError> {
        if let Some(fetch) = self.fetch_under_way(repository, digest) {
            return Ok(Found::There(fetch.size()));
        }
        // That the upstream's repository has it is also what allows another repository's copy to be used for this one.
        let size = self.size(repository, digest).await?;
        let elsewhere = self.store().any_blob(digest).await?;
        if let Some(elsewhere) = elsewhere.filter(|blob| blob.size == size)
            && self.store().is_whole(&elsewhere).await?
            && let Some(blob) = self.store().adopt_blob(repository, digest).await?
        {
            return Ok(Found::Here(blob));
        }
        Ok(Found::There(size))
    }

    async fn size(&self, repository: &RepositoryName, digest: &Digest) -> Result<u64, UpstreamError> {
        let key = (repository.clone(), digest.clone());
        let sizes = || self.state().sizes.lock();
        if let Some(size) = sizes().get(&key) {
            return Ok(*size);
        }
        self.may_ask(repository, &digest.to_string())?;
        let upstream = self.clone();
        let ask = || {
            let (repository, digest) = key.clone();
            async move {
                let theirs = upstream.theirs(&repository)?;
                let size = upstream.client().blob_size(&theirs, &known(&digest)?).await;
                upstream.noted(&repository, &digest.to_string(), size)
            }
        };
        let size = self.state().asked_sizes.answer(key.clone(), ask).await?;
        let mut sizes = sizes();
        if sizes.len() >= MOST_SIZES {
            sizes.clear();
        }
        sizes.insert(key, size);
        Ok(size)
    }

    /// A blob that the repository has, with its object.
    pub(super) async fn whole(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
    ) -> Result<Option<Blob>, UpstreamError> {
        match self.store().peek_blob(repository, digest).await? {
            Some(blob) if self.store().is_whole(&blob).await? => Ok(Some(blob)),
            _ => Ok(None),
        }
    }

    fn fetch_under_way(&self, repository: &RepositoryName, digest: &Digest) -> Option<Fetch> {
        let fetches = self.state().fetches.lock();
        fetches.get(&(repository.clone(), digest.clone())).cloned()
    }

    /// Fetches a blob of so many bytes, or joins a fetch that is under way.
    ///
    /// # Errors
    /// If this host has no room for it, too many are fetched already, or the upstream is known to be away.
    pub async fn fetch(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        size: u64,
    ) -> Result<Fetch, UpstreamError> {
        let key = (repository.clone(), digest.clone());
        let (room, beside) = (self.store().room().await, self.store().has_objects_in_root());
        let mut fetches = self.state().fetches.lock();
        if let Some(fetch) = fetches.get(&key) {
            return Ok(fetch.clone());
        }
        self.may_ask(repository, &digest.to_string())?;
        if fetches.len() >= MOST_FETCHES {
            return Err(UpstreamError::Busy(fetches.len(), self.registry().to_owned()));
        }
        let promised: u64 = fetches.values().map(|fetch| fetch.needs(beside)).sum();
        if room.saturating_sub(promised) < room_for(size, beside) {
            return Err(UpstreamError::NoRoom(size));
        }
        let spool = Spool::new(&self.store().config().root, size);
        let spool = spool.map_err(|error| UpstreamError::Host {
            doing: "make a file for a blob that comes in, below the root directory",
            reason: error.to_string(),
        })?;
        let spool = Arc::new(spool);
        let fetch = Fetch::new(spool.clone());
        fetches.insert(key.clone(), fetch.clone());
        tokio::spawn(self.clone().fetch_into(key, spool));
        Ok(fetch)
    }

    async fn fetch_into(self, key: (RepositoryName, Digest), spool: Arc<Spool>) {
        let (repository, digest) = &key;
        let result = match self.turn(&spool).await {
            Some(_turn) => download::run(&self, repository, digest, &spool).await,
            None => Err(UpstreamError::Busy(MOST_FETCHES, self.registry().to_owned())),
        };
        if let Err(error) = &result {
            tracing::warn!(%repository, %digest, "a blob was not fetched: {error}");
            // The size that the upstream gave may be wrong, too.
            let mut sizes = self.state().sizes.lock();
            sizes.remove(&key);
        }
        let mut fetches = self.state().fetches.lock();
        fetches.remove(&key);
        drop(fetches);
        // Last: a caller that hears of a failure and asks again starts a new fetch.
        spool.end(result);
    }

    /// Waits until a blob is to be fetched; `None` if there were others before it, and the clients that asked for it have gone away
    /// meanwhile.
    async fn turn(&self, spool: &Arc<Spool>) -> Option<SemaphorePermit<'_>> {
        let turns = &self.state().turns;
        if let Ok(turn) = turns.try_acquire() {
            return Some(turn);
        }
        let turn = turns.acquire().await.ok()?;
        // The task that asks this has one, and the list of fetches; each reader has another.
        (Arc::strong_count(spool) > 2).then_some(turn)
    }

    /// Fetches a blob into the store, unless it is there, and waits for that: for work in the background, of which little is done at
    /// the same time.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub async fn bring(&self, repository: &RepositoryName, digest: &Digest) -> Result<Blob, UpstreamError> {
        let _turn = self.state().behind.acquire().await;
        if let Some(blob) = self.whole(repository, digest).await? {
            return Ok(blob);
        }
        if let Found::There(size) = self.blob(repository, digest).await? {
            self.fetch(repository, digest, size).await?.ended().await?;
        }
        let blob = self.store().peek_blob(repository, digest).await?;
        blob.ok_or_else(|| UpstreamError::NotFound(format!("{digest} was deleted while it came in")))
    }

    /// The bytes `range` of a blob of `size` bytes that is not here.
    ///
    /// # Errors
    /// When they cannot be fetched. A later failure is an item of the stream.
    pub async fn read(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        size: u64,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, UpstreamError> {
        let is_near = |fetch: &Fetch| range.start <= fetch.here().saturating_add(NEAR);
        let fetch = match self.fetch_under_way(repository, digest) {
            Some(fetch) => Some(fetch),
            None if self.settings().whole || range == (0..size) => {
                match self.fetch(repository, digest, size).await {
                    Ok(fetch) => Some(fetch),
                    Err(error @ UpstreamError::NoRoom(_)) => {
                        tracing::warn!(%repository, %digest, "passed on and not kept: {error}");
                        None
                    }
                    Err(error) => return Err(error),
                }
            }
            None => None,
        };
        if let Some(fetch) = fetch.filter(|fetch| range == (0..size) || is_near(fetch)) {
            return Ok(Box::pin(fetch.read(range)));
        }
        self.read_there(repository, digest, size, range).await
    }

    /// The same straight from the upstream.
    async fn read_there(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        size: u64,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, UpstreamError> {
        let theirs = self.theirs(repository)?;
        let opened = self
            .client()
            .blob_range_stream(&theirs, &known(digest)?, size, range)
            .await;
        let stream = self.noted(repository, &digest.to_string(), opened)?;
        Ok(Box::pin(in_pieces(stream)))
    }
}

fn in_pieces(stream: xebec_oci::BlobStream) -> impl Stream<Item = io::Result<Bytes>> + Send {
    futures_util::stream::try_unfold(stream, |mut stream| async move {
        let part = stream.next_part().await.map_err(io::Error::other)?;
        Ok(part.map(|part| (part, stream)))
    })
}
