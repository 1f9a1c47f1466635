//! How much memory fills may take: for bytes that were fetched and are not decoded yet, and for what is being decoded.
//!
//! The author of an index can make spans that take 64 MiB of their blob, and 300 MiB while they are decoded, and any container may
//! read many of them at once. So each layer may have [`LAYER_FETCHED`] of fetched bytes, and all together [`FETCHED`]. Decoding
//! waits for [`DECODED`], and holds it no longer than it takes. Bytes come at the pace of a registry, so that a few slow layers
//! could hold all of [`FETCHED`]: so each layer may fetch one group of usual size whatever others hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Source bytes that one request asks for at most. Larger requests save round trips but hold readers of their
/// first bytes up for as long as the last ones take: 4 MiB is 0.3 s at 100 Mbit/s.
pub(super) const GROUP_SOURCE_BYTES: u64 = 4 << 20;

/// Bytes that were fetched for all layers: room for 128 groups of [`GROUP_SOURCE_BYTES`] on their way, which is more than a fast link
/// needs to be busy.
const FETCHED: u64 = 512 << 20;
/// The same of one layer: a span of the largest kind and its windows, or 32 groups.
const LAYER_FETCHED: u64 = 128 << 20;
/// Bytes that are being decoded, plain and as they are placed in the data space: one span of the largest kind, or some spans of
/// usual size (1 MiB) for each thread that decodes.
const DECODED: u64 = 384 << 20;
/// Bytes that one group of a layer may take beside all others: those of a usual group, with its windows.
const USUAL: u64 = GROUP_SOURCE_BYTES + (1 << 20);
/// The unit of the semaphores, in bytes: a semaphore has no room to count single bytes.
const UNIT: u64 = 4 << 10;

/// The memory that all layers share.
#[derive(Debug)]
pub struct Memory {
    fetched: Arc<Semaphore>,
    decoded: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            fetched: semaphore(FETCHED),
            decoded: semaphore(DECODED),
        }
    }
}

/// The part of the memory that one layer may take.
#[derive(Debug)]
pub(super) struct Share {
    all: Arc<Memory>,
    own: Arc<Semaphore>,
    /// For one group beside all others.
    beside: Arc<Semaphore>,
}

/// Memory that is taken until this goes.
#[derive(Debug)]
#[must_use]
pub(super) struct Taken {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Share {
    pub(super) fn of(all: Arc<Memory>) -> Self {
        Self {
            all,
            own: semaphore(LAYER_FETCHED),
            beside: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits until so many bytes may be fetched.
    pub(super) async fn fetch(&self, bytes: u64) -> Taken {
        let own = take(&self.own, bytes, LAYER_FETCHED).await;
        let all = take(&self.all.fetched, bytes, FETCHED);
        let other = if bytes <= USUAL {
            tokio::select! {
                biased;
                all = all => all,
                beside = take(&self.beside, 1, UNIT) => beside,
            }
        } else {
            all.await
        };
        Taken {
            _permits: [own, other],
        }
    }

    /// Waits for the memory of a decoding that gives so many bytes.
    pub(super) async fn decode(&self, bytes: u64) -> Taken {
        let all = take(&self.all.decoded, bytes, DECODED).await;
        Taken {
            _permits: [all, None],
        }
    }
}

fn units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX)
}

fn semaphore(bytes: u64) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(units(bytes)))
}

/// Takes so many bytes of memory, at most `all`: a request for more than there is takes all.
async fn take(from: &Arc<Semaphore>, bytes: u64, all: u64) -> Option<OwnedSemaphorePermit> {
    let units = u32::try_from(units(bytes.min(all))).unwrap_or(u32::MAX);
    // It is never closed.
    from.clone().acquire_many_owned(units).await.ok()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_layer_has_its_share_and_a_group_beside_it() {
        let memory = Arc::new(Memory::default());
        let large = 64 << 20;
        let shares: Vec<Share> = (0..5).map(|_| Share::of(memory.clone())).collect();
        let mut held = Vec::new();
        for share in &shares[..4] {
            held.push(share.fetch(large).await);
            held.push(share.fetch(large).await);
            assert!(share.fetch(UNIT).now_or_never().is_none(), "more than its share");
        }
        // All of it is gone; but a usual group goes, one at a time.
        let last = shares.last().unwrap();
        assert!(last.fetch(large).now_or_never().is_none());
        let usual = last.fetch(USUAL).now_or_never();
        assert!(usual.is_some());
        assert!(last.fetch(USUAL).now_or_never().is_none());
        drop(usual);
        assert!(last.fetch(USUAL).now_or_never().is_some());
        drop(held);
        assert!(last.fetch(large).now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_is_decoded_has_a_limit() {
        let share = Share::of(Arc::new(Memory::default()));
        let largest = share.decode(u64::MAX).await;
        assert!(share.decode(1).now_or_never().is_none());
        drop(largest);
        assert!(share.decode(1).now_or_never().is_some());
    }
}
