//! Makes a unit of a blob: plain bytes from packs, and the blob's bytes of these.

use std::sync::Arc;

use bytes::Bytes;
use xebec_store::Store;

use crate::error::DedupError;
use crate::opened::Opened;
use crate::plain::Frames;
use crate::threads::Threads;
use crate::units;

/// Makes a unit.
pub(crate) async fn make(
    store: &Store,
    frames: &Frames,
    opened: &Arc<Opened>,
    number: usize,
    threads: &Threads,
) -> Result<Bytes, DedupError> {
    let unit = opened.units[number].clone();
    let plain = frames.plain(store, opened, unit.needs.clone(), threads).await?;
    if opened.description.is_none() {
        return Ok(plain.into());
    }
    let of = opened.clone();
    let made = threads.run(&opened.digest, move || match &of.description {
        Some(description) => units::make(description, &of.places, &unit, &plain),
        None => Ok(plain),
    });
    let bytes = made
        .await?
        .map_err(|error| DedupError::of_restoring(&opened.digest, error))?;
    let wanted = &opened.units[number].bytes;
    match bytes.len() as u64 == wanted.end - wanted.start {
        true => Ok(bytes.into()),
        false => Err(DedupError::not_exact(
            &opened.digest,
            "a part of it has another length",
        )),
    }
}
