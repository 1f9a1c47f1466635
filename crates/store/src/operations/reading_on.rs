//! Reads that go on elsewhere: a place that hangs or fails in the middle of an object is left, and the next copy is read from where that one stopped.
//!
//! Promise: each copy is begun once at most, so a read ends, and a client gets each byte once. What it gets may be of several copies; it has the digest.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use xebec_objects::{BlobReader, within};
use xebec_placement::PlaceName;

use crate::places::worse;
use crate::store::Store;

/// A copy that is being read.
pub(super) struct Opened {
    /// What no other copy of the object is called.
    pub(super) copy: String,
    pub(super) pieces: BlobReader,
}

/// Pieces of one place. It is noted as away when it gives none for as long as a place is waited for, or fails; its error comes as it is then.
pub(super) fn watched(store: Store, place: PlaceName, pieces: BlobReader) -> BlobReader {
    BlobReader::new(stream::try_unfold(
        (store, place, pieces),
        |(store, place, mut pieces)| async move {
            let next = async { pieces.next().await.transpose() };
            let next = within(store.inner.config.place_patience, next).await;
            let piece = store.noted(&place, next)?;
            Ok(piece.map(|piece| (piece, (store, place, pieces))))
        },
    ))
}

/// An object that is being read.
struct Reading {
    store: Store,
    name: String,
    /// The bytes that nobody has got yet.
    left: Range<u64>,
    /// The copies that have failed, and the one that is read.
    begun: BTreeSet<String>,
    /// The failure that says most so far.
    failed: Option<io::Error>,
    pieces: BlobReader,
}

/// The bytes of a range of an object, of which a copy was opened. When that fails, others are read.
pub(super) fn going_on(store: Store, name: &str, range: Range<u64>, opened: Opened) -> BlobReader {
    let reading = Reading {
        store,
        name: name.to_owned(),
        left: range,
        begun: BTreeSet::from([opened.copy]),
        failed: None,
        pieces: opened.pieces,
    };
    BlobReader::new(stream::try_unfold(reading, |mut reading| async move {
        let piece = reading.next().await?;
        Ok(piece.map(|piece| (piece, reading)))
    }))
}

impl Reading {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let error = match self.pieces.next().await {
                None => return Ok(None),
                Some(Ok(piece)) => {
                    self.left.start += piece.len() as u64;
                    return Ok(Some(piece));
                }
                Some(Err(error)) => error,
            };
            let Range { start, end } = self.left;
            let next = self.store.open_named(&self.name, start..end, &self.begun).await;
            let Opened { copy, pieces } = match next {
                Ok(opened) => opened,
                // That there is no other copy says less than why one failed.
                Err(none) if none.kind() == io::ErrorKind::NotFound => {
                    return Err(worse(self.failed.take(), error));
                }
                Err(other) => return Err(worse(Some(worse(self.failed.take(), error)), other)),
            };
            tracing::warn!(
                "a copy of {} broke off before byte {start}, and the next one is read: {error}",
                self.name
            );
            self.failed = Some(worse(self.failed.take(), error));
            self.begun.insert(copy);
            self.pieces = pieces;
        }
    }
}
