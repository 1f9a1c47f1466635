//! Proves a recipe: the blob is restored from what is stored, and has its digest.

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use xebec_store::{Blob, Hasher, Store};

use crate::error::DedupError;
use crate::making;
use crate::objects::Objects;
use crate::opened::{self, Indexes};
use crate::plain::Frames;
use crate::threads::Threads;

/// Units that are made at the same time.
const AT_ONCE: usize = 2;
/// Memory for frames and indexes.
const FRAMES: u64 = 64 << 20;
const INDEXES: u64 = 16 << 20;

/// Restores a blob from the objects of a recipe, which need not be recorded yet, and compares its digest.
///
/// # Errors
/// [`DedupError::NotExact`] if it is another one; others if an object cannot be read or is damaged.
pub(crate) async fn prove(
    store: &Store,
    blob: &Blob,
    objects: &Objects,
    threads: &Threads,
) -> Result<(), DedupError> {
    // Nothing that is in memory counts: what is read here is what is stored.
    let (frames, indexes) = (Frames::new(FRAMES), Indexes::new(INDEXES));
    let opened = Arc::new(opened::open(store, &indexes, blob, objects, threads).await?);
    let (frames, opened) = (&frames, &opened);
    let units = (0..opened.units.len()).map(|number| making::make(store, frames, opened, number, threads));
    let mut units = stream::iter(units).buffered(AT_ONCE);
    let (mut hasher, mut size) = (Hasher::new(blob.digest.algorithm()), 0);
    while let Some(bytes) = units.try_next().await? {
        size += bytes.len() as u64;
        let hashed = threads.run(&blob.digest, move || {
            hasher.update(&bytes);
            hasher
        });
        hasher = hashed.await?;
    }
    let found = hasher.finish();
    match found == blob.digest && size == blob.size {
        true => Ok(()),
        false => Err(DedupError::not_exact(
            &blob.digest,
            format!("{size} bytes with the digest {found} come out"),
        )),
    }
}
