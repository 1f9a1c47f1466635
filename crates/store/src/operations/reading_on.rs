//! Reads that go on elsewhere: a copy that gives nothing, or fails in the middle of an object, is left for one that gives something.
//!
//! Promise: each copy gives bytes once at most, and a client gets each byte once. What it gets may be of several copies; it has the digest. A copy that is
//! slow is left only for another one that has begun to answer. While there is none, it is waited for, as if no other place were configured, as long as its
//! place has its mark. Those who work in the background give up instead ([`Store::giving_up`]).

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, Either};
use futures_util::{FutureExt as _, StreamExt, stream};
use tokio::time::timeout;
use xebec_objects::{BlobReader, stalled, within, worse};
use xebec_placement::PlaceName;

use super::reading::Source;
use crate::records::intact::main_key;
use crate::store::Store;

/// A copy that is being read.
pub(super) struct Opened {
    source: Source,
    pieces: BlobReader,
}

/// What came of waiting for a copy.
enum Came<T> {
    /// What it gave.
    Answer(io::Result<T>),
    /// It gave nothing, and this one has begun to.
    Other(Opened),
}

/// An object that is being read.
struct Reading {
    store: Store,
    name: String,
    /// The bytes that nobody has got yet.
    left: Range<u64>,
    /// The copies that have failed or were left, and the one that is read.
    begun: BTreeSet<String>,
    /// The failure that says most so far.
    failed: Option<io::Error>,
    opened: Opened,
}

impl Store {
    /// Reads a range of an object, which has these bytes. A copy that breaks off is followed by the next one.
    ///
    /// # Errors
    /// `NotFound` if it is nowhere. Otherwise that of the first place that did not answer.
    pub(crate) async fn read_named(&self, name: &str, range: Range<u64>) -> io::Result<BlobReader> {
        let main = main_key(name).filter(|_| self.inner.places.is_empty() && !self.gives_up);
        if let Some(key) = main {
            // Nobody can do more than wait.
            return self.inner.objects.read(key, range).await;
        }
        let opened = self
            .open_named(name, range.clone(), &BTreeSet::new(), true)
            .await?;
        let reading = Reading {
            store: self.clone(),
            name: name.to_owned(),
            left: range,
            begun: BTreeSet::from([opened.source.copy()]),
            failed: None,
            opened,
        };
        let pieces = stream::try_unfold(reading, |mut reading| async move {
            let piece = reading.next().await?;
            Ok(piece.map(|piece| (piece, reading)))
        });
        Ok(BlobReader::new(pieces))
    }

    /// Begins to read a copy that is not one of these. One that gives nothing is waited for while no other does, or given up.
    fn open_named<'a>(
        &'a self,
        name: &'a str,
        range: Range<u64>,
        but: &'a BTreeSet<String>,
        waits: bool,
    ) -> BoxFuture<'a, io::Result<Opened>> {
        async move {
            let (mut begun, mut failed) = (but.clone(), None);
            while let Some(source) = self.next_copy(name, &begun).await? {
                begun.insert(source.copy());
                let opening = self.begin_source(&source, range.clone());
                let came = match source.place() {
                    Some(place) if waits => self.wait_for(name, range.clone(), &begun, &place, opening).await,
                    Some(place) => {
                        Came::Answer(self.noted(&place, within(self.place_patience(), opening).await))
                    }
                    None => Came::Answer(opening.await),
                };
                match came {
                    Came::Answer(Ok(pieces)) => return Ok(Opened { source, pieces }),
                    Came::Answer(Err(error)) => {
                        source.look_into(self, name, &error);
                        failed = Some(worse(failed, error));
                    }
                    Came::Other(opened) => return Ok(opened),
                }
            }
            Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
        }
        .boxed()
    }

    /// Waits for what a copy gives. When that takes longer than places are waited for, its place is noted as away, and another copy is opened while this one
    /// may still answer.
    async fn wait_for<T>(
        &self,
        name: &str,
        range: Range<u64>,
        begun: &BTreeSet<String>,
        place: &PlaceName,
        work: impl Future<Output = io::Result<T>> + Send,
    ) -> Came<T> {
        let mut work = pin!(work);
        loop {
            let patience = self.place_patience();
            if let Ok(answer) = timeout(patience, work.as_mut()).await {
                return Came::Answer(self.noted(place, answer));
            }
            let hung = self.noted(place, Err(stalled(patience)));
            let other = self.open_named(name, range.clone(), begun, false);
            match future::select(work.as_mut(), other).await {
                Either::Left((answer, _)) => return Came::Answer(self.noted(place, answer)),
                Either::Right((Ok(opened), _)) => return Came::Other(opened),
                Either::Right((Err(_), _)) => {}
            }
            if self.gives_up || self.look_again(place).await.is_err() {
                return Came::Answer(hung);
            }
        }
    }
}

impl Reading {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Self {
            store,
            name,
            left,
            begun,
            failed,
            opened,
        } = self;
        loop {
            let (place, pieces) = (opened.source.place(), &mut opened.pieces);
            let next = async { pieces.next().await.transpose() };
            let came = match place {
                Some(place) => store.wait_for(name, left.clone(), begun, &place, next).await,
                None => Came::Answer(next.await),
            };
            let (error, other) = match came {
                Came::Answer(Ok(piece)) => {
                    left.start += piece.as_ref().map_or(0, |piece| piece.len() as u64);
                    return Ok(piece);
                }
                Came::Other(other) => (stalled(store.place_patience()), Ok(other)),
                Came::Answer(Err(error)) => {
                    opened.source.look_into(store, name, &error);
                    (error, store.open_named(name, left.clone(), begun, true).await)
                }
            };
            let other = match other {
                Ok(other) => other,
                // That there is no other copy says less than why one failed.
                Err(none) if none.kind() == io::ErrorKind::NotFound => {
                    return Err(worse(failed.take(), error));
                }
                Err(last) => return Err(worse(Some(worse(failed.take(), error)), last)),
            };
            let at = left.start;
            tracing::warn!("a copy of {name} broke off before byte {at}, and the next one is read: {error}");
            *failed = Some(worse(failed.take(), error));
            begun.insert(other.source.copy());
            *opened = other;
        }
    }
}
