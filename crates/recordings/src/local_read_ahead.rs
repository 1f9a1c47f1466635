//! Pages that a service is about to read and that this host has, asked for from its disk at once.
//!
//! A host that was started again, or whose memory was needed otherwise, does not have them in memory. A service then reads them
//! one after the other, and the kernel, which cannot know what comes next, reads around each: of the data files 4 to 7
//! times as much comes into memory as the service touches. Asked for beforehand, exactly these pages come, while the view
//! is mounted and the container is made. Pages that are in memory cost some microseconds a run.

use std::num::NonZeroU64;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};
use tracing::debug;
use xebec_cache::layer::CachedLayer;
use xebec_format::PAGE_SIZE;

/// Asks for runs of pages (page numbers of the data space) of a layer's data file, without waiting for any of them. They
/// should be present: of a hole the kernel would keep zeros in memory until something is written there.
///
/// Blocks while the disk's queue is full. An error is no failure: pages come when they are read.
pub fn ask(layer: &CachedLayer, runs: &[Range<u64>]) {
    let Some(descriptor) = layer.descriptor() else {
        return;
    };
    for run in runs {
        let Some(length) = NonZeroU64::new(run.end.saturating_sub(run.start) * PAGE_SIZE) else {
            continue;
        };
        if let Err(error) = fadvise(descriptor, run.start * PAGE_SIZE, Some(length), Advice::WillNeed) {
            debug!("read {} ahead: {error}", layer.key());
            return;
        }
    }
}
