//! Objects read by their names, from the best place that has them: the main one, then whole replicas, then shards. What is on a place that did not answer a
//! short while ago comes after all that is elsewhere.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use xebec_objects::{BlobReader, Objects, is_absence, new_key, within, worse};
use xebec_placement::PlaceName;

use super::shards::{self, Shards};
use crate::error::StoreError;
use crate::model::Blob;
use crate::places::{MARK, Place};
use crate::records::intact::main_key;
use crate::records::replicas;
use crate::replicas::{Part, Replica};
use crate::store::{Store, now};

/// A mark has no more bytes.
const LONGEST_MARK: u64 = 256;

/// Where all of an object may be read.
#[derive(Clone)]
pub(super) enum Source {
    /// On the main place, under this key.
    Main(String),
    Replica(Replica),
    Shards(Shards),
    /// By the recipe of a blob that is not intact.
    Restored(Blob),
}

impl Source {
    /// What no other copy of the same object is called: its key, or those of its shards.
    pub(super) fn copy(&self) -> String {
        match self {
            Self::Main(key) => key.clone(),
            Self::Replica(replica) => replica.key.clone(),
            Self::Shards(shards) => {
                let keys: Vec<&str> = shards.replicas().map(|replica| replica.key.as_str()).collect();
                keys.join(",")
            }
            Self::Restored(blob) => blob.digest.to_string(),
        }
    }

    /// The place that has all of it.
    pub(super) fn place(&self) -> Option<PlaceName> {
        match self {
            Self::Main(_) => Some(PlaceName::main()),
            Self::Replica(replica) => Some(replica.place.clone()),
            Self::Shards(_) | Self::Restored(_) => None,
        }
    }

    /// Has somebody look into it if a reader found it cut short or gone. Of shards, their reader says which.
    pub(super) fn look_into(&self, store: &Store, name: &str, error: &io::Error) {
        match self {
            Self::Main(_) => store.look_into_soon(name, None, error),
            Self::Replica(replica) => store.look_into_soon(name, Some(replica), error),
            Self::Shards(_) | Self::Restored(_) => {}
        }
    }

    /// The places beside the main one that have it or a part of it.
    pub(super) fn places(&self) -> BTreeSet<PlaceName> {
        match self {
            Self::Replica(replica) => BTreeSet::from([replica.place.clone()]),
            Self::Shards(shards) => shards.replicas().map(|replica| replica.place.clone()).collect(),
            Self::Main(_) | Self::Restored(_) => BTreeSet::new(),
        }
    }

    /// Whether it cannot be read without places that are like this.
    pub(super) fn needs(&self, is_such: impl Fn(&PlaceName) -> bool) -> bool {
        match self {
            Self::Replica(replica) => is_such(&replica.place),
            Self::Shards(shards) => !shards.suffice_without(|replica| is_such(&replica.place)),
            Self::Main(_) | Self::Restored(_) => false,
        }
    }
}

/// Pieces of one place. It is noted as away when it gives none for as long as a place is waited for, or fails; its error comes as it is then.
fn watched(store: Store, place: PlaceName, pieces: BlobReader) -> BlobReader {
    BlobReader::new(stream::try_unfold(
        (store, place, pieces),
        |(store, place, mut pieces)| async move {
            let next = async { pieces.next().await.transpose() };
            let next = within(store.place_patience(), next).await;
            let piece = store.noted(&place, next)?;
            Ok(piece.map(|piece| (piece, (store, place, pieces))))
        },
    ))
}

impl Store {
    /// The best copy of an object that is not one of these; none if there is no other. The records are asked only when the main place is not the best.
    pub(super) async fn next_copy(&self, name: &str, but: &BTreeSet<String>) -> io::Result<Option<Source>> {
        let main = main_key(name).filter(|key| !but.contains(*key));
        let main = main.map(|key| Source::Main(key.to_owned()));
        if main.is_some() && !self.inner.places.is_avoided(&PlaceName::main()) {
            return Ok(main);
        }
        let mut others = self.other_sources(name).await?.into_iter();
        Ok(others.find(|source| !but.contains(&source.copy())).or(main))
    }

    /// Where all of an object may be read, beside the main place: the best first.
    pub(super) async fn other_sources(&self, name: &str) -> io::Result<Vec<Source>> {
        let replicas = self.replicas_of(name).await?;
        let whole = replicas.iter().filter(|found| found.part == Part::Whole);
        let mut sources: Vec<Source> = whole.cloned().map(Source::Replica).collect();
        sources.extend(Shards::complete(&replicas).into_iter().map(Source::Shards));
        // The order of those that are alike stays.
        sources.sort_by_key(|source| source.needs(|place| self.inner.places.is_avoided(place)));
        Ok(sources)
    }

    /// Reads a range of an object from there. A place that gives nothing for long is given up.
    pub(super) async fn read_source(&self, source: &Source, range: Range<u64>) -> io::Result<BlobReader> {
        match source {
            Source::Main(key) => self.read_at(&PlaceName::main(), key, range).await,
            Source::Replica(replica) => self.read_replica(replica, range).await,
            Source::Shards(shards) => self.read_shards(shards, range).await,
            Source::Restored(blob) => match self.inner.restorer.get() {
                Some(restorer) => {
                    let read = restorer.read(&self.giving_up(), blob, range);
                    read.await.map_err(io::Error::other)
                }
                None => Err(io::Error::other(StoreError::NoRestorer(blob.digest.clone()))),
            },
        }
    }

    /// The same, but of one place: that is waited for.
    pub(super) async fn begin_source(&self, source: &Source, range: Range<u64>) -> io::Result<BlobReader> {
        match source {
            Source::Main(key) => self.inner.objects.read(key, range).await,
            Source::Replica(replica) => {
                let objects = self.objects_of(&replica.place).await?;
                objects.read(&replica.key, range).await
            }
            Source::Shards(_) | Source::Restored(_) => self.read_source(source, range).await,
        }
    }

    /// The sound replicas of an object, those included on places that the configuration does not name any more: to read one of these is an error, and no
    /// sign that the object is lost.
    pub(crate) async fn replicas_of(&self, name: &str) -> io::Result<Vec<Replica>> {
        let name = name.to_owned();
        let found = self
            .read_records("find replicas", move |tx| replicas::of_object(tx, &name))
            .await;
        let mut found = found.map_err(io::Error::other)?;
        found.retain(|replica| !replica.is_damaged);
        Ok(found)
    }

    /// Reads a range of a replica.
    pub(super) async fn read_replica(&self, replica: &Replica, range: Range<u64>) -> io::Result<BlobReader> {
        self.read_at(&replica.place, &replica.key, range).await
    }

    /// Reads a range of an object on a place, which is given up if it gives nothing for long.
    pub(super) async fn read_at(
        &self,
        place: &PlaceName,
        key: &str,
        range: Range<u64>,
    ) -> io::Result<BlobReader> {
        let read = async { self.objects_of(place).await?.read(key, range).await };
        let pieces = self.noted(place, within(self.place_patience(), read).await)?;
        Ok(watched(self.clone(), place.clone(), pieces))
    }

    /// How many bytes an object has on a place, which is given up in the same way; none if it is not there.
    pub(super) async fn size_at(&self, place: &PlaceName, key: &str) -> io::Result<Option<u64>> {
        let look = async { self.objects_of(place).await?.size(key).await };
        self.noted(place, within(self.place_patience(), look).await)
    }

    pub(crate) fn place_patience(&self) -> Duration {
        self.inner.config.place_patience
    }

    /// Notes of a place whether it has answered.
    pub(crate) fn noted<T>(&self, place: &PlaceName, answer: io::Result<T>) -> io::Result<T> {
        if answer.as_ref().is_err_and(|error| !is_absence(error)) && !self.inner.places.is_empty() {
            self.inner.places.note_failure(place);
        }
        answer
    }

    async fn read_shards(&self, shards: &Shards, range: Range<u64>) -> io::Result<BlobReader> {
        let end = range.end.min(shards.size());
        let range = range.start.min(end)..end;
        // The first piece shows whether there are enough of them.
        let mut pieces = shards::pieces(self.clone(), shards.clone(), range).boxed();
        let first = match pieces.next().await {
            Some(first) => Some(Ok(first?)),
            None => None,
        };
        Ok(BlobReader::new(stream::iter(first).chain(pieces)))
    }

    /// Whether an object of so many bytes is on the main place, or on others: whole, or in enough shards. The bytes are not read. Places are asked in the order
    /// in which they are read.
    pub(crate) async fn is_somewhere(&self, name: &str, size: u64) -> io::Result<bool> {
        let key = main_key(name);
        let is_alone = self.inner.places.is_empty();
        let later = key.is_some() && self.inner.places.is_avoided(&PlaceName::main());
        let mut failed = None;
        if let Some(key) = key.filter(|_| !later) {
            match self.is_on_main(key, size, is_alone).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        }
        let mut replicas = self.replicas_of(name).await?;
        replicas.sort_by_key(|replica| self.inner.places.is_avoided(&replica.place));
        // Main is asked once more if it has given nothing for long and nobody else has it.
        let is_slow = failed
            .as_ref()
            .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        let is_last = replicas.is_empty();
        let later = later || (is_slow && is_last);
        let mut there = Vec::new();
        for replica in replicas {
            match self.is_replica_there(&replica).await {
                Ok(true) if replica.part == Part::Whole => return Ok(true),
                Ok(true) => there.push(replica),
                Ok(false) => {}
                Err(error) => failed = Some(worse(failed, error)),
            }
            if !Shards::complete(&there).is_empty() {
                return Ok(true);
            }
        }
        match key.filter(|_| later) {
            Some(key) => match self.is_on_main(key, size, is_last).await {
                Ok(false) => failed.map_or(Ok(false), Err),
                found => found.map_err(|error| worse(failed, error)),
            },
            None => failed.map_or(Ok(false), Err),
        }
    }

    /// Where nobody else has it, nobody can do more than wait.
    async fn is_on_main(&self, key: &str, size: u64, waits: bool) -> io::Result<bool> {
        let found = match waits && !self.gives_up {
            true => self.inner.objects.size(key).await,
            false => self.size_at(&PlaceName::main(), key).await,
        };
        Ok(found? == Some(size))
    }

    /// Whether a replica is there and has as many bytes as its record says.
    pub(super) async fn is_replica_there(&self, replica: &Replica) -> io::Result<bool> {
        Ok(self.size_at(&replica.place, &replica.key).await? == Some(replica.size))
    }

    /// The objects of a place that is known to be the right one.
    ///
    /// # Errors
    /// If the configuration has no such place, it does not answer, or it has not the mark that the records know.
    pub(crate) async fn objects_of(&self, name: &PlaceName) -> io::Result<&Objects> {
        if name.is_main() {
            return Ok(&self.inner.objects);
        }
        let Some(place) = self.inner.places.get(name) else {
            let advice = format!(
                "the configuration has no [[place]] {name}; name it there, or have it forgotten by `xebec-registry copies --lost {name}`"
            );
            return Err(io::Error::other(advice));
        };
        if !place.is_seen() {
            within(self.place_patience(), self.see(name, place)).await?;
            place.see();
        }
        Ok(&place.objects)
    }

    /// The same for those who write: however short ago the mark was seen, the disk may not be there any more.
    pub(super) async fn objects_to_write(&self, name: &PlaceName) -> io::Result<&Objects> {
        self.look_again(name).await?;
        self.objects_of(name).await
    }

    /// Sees whether a place has its mark now, and not only a short while ago.
    pub(super) async fn look_again(&self, name: &PlaceName) -> io::Result<()> {
        if let Some(place) = self.inner.places.get(name) {
            place.forget();
        }
        self.objects_of(name).await.map(drop)
    }

    /// Compares the mark of a place with the records. A place that the store has never used gets one.
    async fn see(&self, name: &PlaceName, place: &Place) -> io::Result<()> {
        let wanted = name.clone();
        let known = self
            .read_records("find the mark of a place", move |tx| {
                replicas::mark_of(tx, &wanted)
            })
            .await
            .map_err(io::Error::other)?;
        let found = match &known {
            Some(_) => read_mark(&place.objects).await.map_err(|error| {
                io::Error::other(format!(
                    "{error}; mount or repair it, or, if what it had is lost, have it forgotten by `xebec-registry copies --lost {name}`"
                ))
            }),
            // Its directory need not be there yet. If it cannot be read, it may have another registry's.
            None => {
                place.objects.make().await?;
                read_mark(&place.objects).await
            }
        };
        match (known, found?) {
            (Some(known), Some(found)) if known == found => Ok(()),
            (None, None) => self.take_into_use(name, place).await,
            (Some(known), None) => self.mark_again(name, place, known).await,
            (_, Some(_)) => Err(io::Error::other(format!(
                "it belongs to another registry, or to an earlier database of this one: its file `{MARK}` has other bytes; \
                 give this registry a directory or prefix of its own"
            ))),
        }
    }

    async fn take_into_use(&self, name: &PlaceName, place: &Place) -> io::Result<()> {
        let mark = new_key()?;
        let (wanted, recorded) = (name.clone(), mark.clone());
        let is_first = self
            .write_records("take a place into use", move |tx| {
                replicas::use_place(tx, &wanted, &recorded, now())
            })
            .await
            .map_err(io::Error::other)?;
        match is_first {
            true => put_mark(place, mark).await,
            // Another process does the same, and its mark counts.
            false => Err(io::Error::other("another process takes it into use; try again")),
        }
    }

    /// A place without its mark lacks nothing if the store has nothing there: a process has ended before it wrote the mark.
    async fn mark_again(&self, name: &PlaceName, place: &Place, known: String) -> io::Result<()> {
        let wanted = name.clone();
        let is_used = self
            .read_records("see whether a place is in use", move |tx| {
                replicas::is_used(tx, &wanted)
            })
            .await
            .map_err(io::Error::other)?;
        match is_used {
            false => put_mark(place, known).await,
            true => Err(io::Error::other(format!(
                "what it had is not there: its file `{MARK}` is missing; mount or repair it, or have it forgotten by \
                 `xebec-registry copies --lost {name}`"
            ))),
        }
    }
}

async fn put_mark(place: &Place, mark: String) -> io::Result<()> {
    place.objects.make().await?;
    place.objects.put(MARK, vec![mark.into_bytes().into()]).await
}

pub(super) async fn read_mark(objects: &Objects) -> io::Result<Option<String>> {
    let Some(size) = objects.size(MARK).await? else {
        return Ok(None);
    };
    let mut mark = Vec::new();
    let mut pieces = objects.read(MARK, 0..size.min(LONGEST_MARK)).await?;
    while let Some(piece) = pieces.next().await {
        mark.extend_from_slice(&piece?);
    }
    Ok(Some(String::from_utf8_lossy(&mark).into_owned()))
}
