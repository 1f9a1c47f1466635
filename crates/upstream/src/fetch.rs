//! A blob that is on its way from an upstream, as its readers see it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;

use crate::error::UpstreamError;
use crate::spool::Spool;

/// A blob that is coming in.
#[derive(Clone)]
pub struct Fetch {
    spool: Arc<Spool>,
}

/// The room that so many bytes of a blob take until it is kept: twice as much if objects are `beside` the spool.
pub(super) fn room_for(bytes: u64, beside: bool) -> u64 {
    bytes.saturating_mul(if beside { 2 } else { 1 })
}

impl Fetch {
    pub(super) fn new(spool: Arc<Spool>) -> Self {
        Self { spool }
    }

    /// How many bytes the blob has.
    pub fn size(&self) -> u64 {
        self.spool.size()
    }

    /// How much room it takes until it is kept: in the spool, and a second time if objects are `beside` it.
    pub(super) fn needs(&self, beside: bool) -> u64 {
        room_for(self.size().saturating_sub(self.here()), beside)
    }

    /// How many of them are here.
    pub(super) fn here(&self) -> u64 {
        self.spool.here()
    }

    /// Waits until the blob is in the store.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub async fn ended(&self) -> Result<(), UpstreamError> {
        self.spool.ended().await
    }

    /// A range, as it comes.
    pub fn read(&self, range: Range<u64>) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        self.spool.read(range)
    }
}
