//! Bytes of an object copied to places, from the first source that has right ones.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use xebec_objects::{Finished, Hasher, Note, Objects, Writer, new_key, within};
use xebec_placement::erasure::{Cutter, Layout};
use xebec_placement::{Code, PlaceName};

use super::reading::Source;
use crate::database::{DatabaseError, Transaction};
use crate::error::{Result, StoreError};
use crate::recipes::Draft;
use crate::records::drafts;
use crate::replicas::{Held, Part, Replica};
use crate::store::{Store, now};

/// So many bytes are passed on at once.
const BATCH: usize = 1 << 20;
/// A place that takes in nothing of an object for so long takes in nothing. What it writes late is garbage: no other object has that key.
const PATIENCE: Duration = Duration::from_secs(600);

/// An object on a place that is being written, and its record.
pub(super) struct Writing {
    place: PlaceName,
    part: Part,
    draft: Draft,
    writer: Option<Writer>,
}

impl Writing {
    /// Its writer, which comes back unless it fails.
    fn take(&mut self) -> Result<Writer> {
        let writer = self.writer.take();
        writer.ok_or_else(|| at(&self.place, io::Error::other("its writer has failed")))
    }
}

impl Store {
    /// Writes an object to the main place, and has it recorded in one transaction, by the key that it got. None if that records nothing: then what was written
    /// is garbage.
    ///
    /// # Errors
    /// If no source has right bytes, the disk has no room but its reserve, or the database fails.
    pub(super) async fn write_home(
        &self,
        held: &Held,
        sources: &[Source],
        mut record: impl FnMut(&mut dyn Transaction, &str) -> Result<bool, DatabaseError> + Send + 'static,
    ) -> Result<Option<Draft>> {
        self.check_room().await?;
        let parts = [(PlaceName::main(), Part::Whole)];
        let mut writings = Vec::new();
        if let Err(error) = self.write_parts(held, &parts, sources, &mut writings).await {
            self.give_up(&writings).await;
            return Err(error);
        }
        let Some(draft) = writings.into_iter().next().map(|writing| writing.draft) else {
            return Ok(None);
        };
        let key = draft.object.clone();
        let is_recorded = self
            .write_records("put an object on the main place", move |tx| record(tx, &key))
            .await?;
        if !is_recorded {
            self.drop_draft(&draft).await?;
        }
        Ok(is_recorded.then_some(draft))
    }

    /// What was begun is garbage.
    pub(super) async fn give_up(&self, writings: &[Writing]) {
        for writing in writings {
            let draft = writing.draft.clone();
            let given_up = self
                .write_records("give up a replica", move |tx| drafts::give_up(tx, &draft, now()))
                .await;
            if let Err(error) = given_up {
                tracing::warn!("{error}; a collection removes it later");
            }
        }
    }

    /// Writes these parts from the first source that has right bytes. What is begun and does not come to an end stands in `writings`.
    pub(super) async fn write_parts(
        &self,
        held: &Held,
        parts: &[(PlaceName, Part)],
        sources: &[Source],
        writings: &mut Vec<Writing>,
    ) -> Result<Vec<Replica>> {
        let mut failure = None;
        // Before anything is begun on others.
        for (place, _) in parts {
            self.objects_to_write(place)
                .await
                .map_err(|source| at(place, source))?;
        }
        for source in sources {
            for (place, part) in parts {
                writings.push(self.begin_writing(held, place.clone(), *part).await?);
            }
            match self.pass_on(held, source, writings).await {
                Ok(()) => {
                    let mut made = Vec::new();
                    for writing in writings {
                        made.push(self.complete(held, writing).await?);
                    }
                    return Ok(made);
                }
                Err(PassedOn::NotRead(error)) => {
                    tracing::warn!("{error}; the next place is asked");
                    failure = Some(error);
                    self.give_up(&std::mem::take(writings)).await;
                }
                Err(PassedOn::NotWritten(error)) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            failed(
                "read an object to copy it",
                &held.name,
                io::ErrorKind::NotFound.into(),
            )
        }))
    }

    /// Its record comes first, so that a collection finds it when nobody completes it: after `upload_timeout`.
    async fn begin_writing(&self, held: &Held, place: PlaceName, part: Part) -> Result<Writing> {
        let objects = self
            .objects_to_write(&place)
            .await
            .map_err(|source| at(&place, source))?;
        let object = new_key().map_err(|source| at(&place, source))?;
        let size = match part {
            Part::Whole => held.size,
            Part::Shard { code, .. } => Layout::new(code, held.size).shard_size(),
        };
        let draft = Draft { object, size };
        let (begun, at_place) = (draft.clone(), place.clone());
        let is_begun = self
            .write_records("begin a replica", move |tx| {
                drafts::begin_at(tx, &at_place, &begun, now())
            })
            .await?;
        if !is_begun {
            return Err(at(
                &place,
                io::Error::other("it was forgotten as lost; try again"),
            ));
        }
        let writer = within(PATIENCE, open_writer(objects, &draft.object)).await;
        let mut writing = Writing {
            place,
            part,
            draft,
            writer: None,
        };
        match writer {
            Ok(writer) => writing.writer = Some(writer),
            Err(source) => {
                let error = at(&writing.place, source);
                self.give_up(&[writing]).await;
                return Err(error);
            }
        }
        Ok(writing)
    }

    /// Passes all bytes of an object on to all that are being written, and compares them with its digest.
    async fn pass_on(&self, held: &Held, source: &Source, writings: &mut [Writing]) -> Result<(), PassedOn> {
        let not_read = |error: io::Error| match source.place() {
            // Its place is away, for others, too.
            Some(place) if error.kind() == io::ErrorKind::TimedOut => PassedOn::NotRead(at(&place, error)),
            _ => PassedOn::NotRead(failed("read an object to copy it", &held.name, error)),
        };
        let mut pieces = self.read_source(source, 0..held.size).await.map_err(not_read)?;
        let mut hasher = Hasher::new(held.checksum.algorithm());
        let mut cutters: Vec<Cutter> = writings
            .iter()
            .filter_map(|writing| match writing.part {
                Part::Whole => None,
                Part::Shard { code, .. } => Some(Cutter::new(code, held.size)),
            })
            .collect();
        cutters.dedup_by_key(|cutter| cutter.code());
        let (mut batch, mut length) = (Vec::new(), 0);
        while let Some(piece) = pieces.next().await.transpose().map_err(not_read)? {
            hasher.update(&piece);
            length += piece.len();
            batch.push(piece);
            if length >= BATCH {
                self.write_batch(&std::mem::take(&mut batch), &mut cutters, writings)
                    .await?;
                length = 0;
            }
        }
        self.write_batch(&batch, &mut cutters, writings).await?;
        let found = hasher.finish();
        if found == held.checksum {
            return Ok(());
        }
        if let Err(error) = self.note_wrong_source(source).await? {
            tracing::warn!("what has wrong bytes is not noted: {error}");
        }
        let error = format!("its bytes have digest {found}, not {}", held.checksum);
        Err(not_read(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    /// Notes which replicas have wrong bytes or none, so that they are not read the next time; how many there are, or why nobody knows that.
    pub(super) async fn note_wrong_source(&self, source: &Source) -> Result<io::Result<u64>> {
        Ok(match source {
            Source::Replica(replica) => self.note_wrong_replica(replica).await?.map(u64::from),
            Source::Shards(shards) => Ok(self.scrub_some(shards.replicas()).await?),
            Source::Main(_) | Source::Restored(_) => Ok(0),
        })
    }

    async fn write_batch(
        &self,
        batch: &[Bytes],
        cutters: &mut [Cutter],
        writings: &mut [Writing],
    ) -> Result<()> {
        let bytes_of = |shard: Vec<Vec<u8>>| shard.into_iter().map(Bytes::from).collect();
        let units: Vec<(Code, Vec<Vec<Bytes>>)> = cutters
            .iter_mut()
            .map(|cutter| {
                (
                    cutter.code(),
                    cutter.cut(batch).into_iter().map(bytes_of).collect(),
                )
            })
            .collect();
        for writing in writings {
            let pieces = match writing.part {
                Part::Whole => batch.to_vec(),
                Part::Shard { code, index } => units
                    .iter()
                    .find(|(of, _)| *of == code)
                    .and_then(|(_, shards)| shards.get(usize::from(index)).cloned())
                    .unwrap_or_default(),
            };
            if !pieces.is_empty() {
                self.write_pieces(writing, pieces).await?;
            }
        }
        Ok(())
    }

    async fn write_pieces(&self, writing: &mut Writing, pieces: Vec<Bytes>) -> Result<()> {
        let written = within(PATIENCE, writing.take()?.write(pieces)).await;
        let writer = written.map_err(|source| at(&writing.place, source))?;
        self.note_writing(writing, writer).await
    }

    /// Notes what the record has to hold before more is written.
    async fn note_writing(&self, writing: &mut Writing, mut writer: Writer) -> Result<()> {
        if let Some(note) = writer.unrecorded() {
            let (place, draft, noted) = (writing.place.clone(), writing.draft.clone(), note.clone());
            let is_noted = self
                .write_records("note how far a replica is", move |tx| {
                    drafts::note(tx, &place, &draft, &noted, now())
                })
                .await?;
            if !is_noted {
                return Err(at(&writing.place, io::Error::other("it took too long")));
            }
            writing.draft.object = note.object;
        }
        writing.writer = Some(writer);
        Ok(())
    }

    /// The object of a replica is whole and durable; its draft has the key of the replica now.
    async fn complete(&self, held: &Held, writing: &mut Writing) -> Result<Replica> {
        let settled = within(PATIENCE, writing.take()?.settled(true)).await;
        let settled = settled.map_err(|source| at(&writing.place, source))?;
        self.note_writing(writing, settled).await?;
        let writer = writing.take()?;
        let broken = |source| at(&writing.place, source);
        let Finished {
            object,
            size,
            hasher,
            released,
        } = within(PATIENCE, writer.complete()).await.map_err(broken)?;
        // What was written to a directory since its disk is gone does not count.
        self.look_again(&writing.place).await.map_err(broken)?;
        let note = Note {
            object: object.clone(),
            size,
            progress: None,
            released,
        };
        let (place, draft) = (writing.place.clone(), writing.draft.clone());
        self.write_records("note that a replica is whole", move |tx| {
            drafts::note(tx, &place, &draft, &note, now())
        })
        .await?;
        writing.draft.object = object.clone();
        Ok(Replica {
            key: object,
            place: writing.place.clone(),
            object: held.name.clone(),
            part: writing.part,
            size,
            checksum: hasher.finish(),
            whole: held.size,
            is_damaged: false,
        })
    }
}

/// Why an object was not passed on.
enum PassedOn {
    /// Another source may do.
    NotRead(StoreError),
    /// It would not.
    NotWritten(StoreError),
}

impl From<StoreError> for PassedOn {
    fn from(error: StoreError) -> Self {
        Self::NotWritten(error)
    }
}

async fn open_writer(objects: &Objects, key: &str) -> io::Result<Writer> {
    match objects.begin(key) {
        Some(writer) => Ok(writer),
        None => objects.resume(key, None).await,
    }
}

pub(super) fn at(place: &PlaceName, source: io::Error) -> StoreError {
    StoreError::Place {
        place: place.clone(),
        source,
    }
}

pub(super) fn wrong_bytes(key: &str) -> io::Error {
    let text = format!("the object {key} has wrong bytes; `xebec-registry scrub` mends it from another copy");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

pub(super) fn failed(doing: &'static str, key: &str, source: io::Error) -> StoreError {
    StoreError::Object {
        doing,
        key: key.to_owned(),
        source,
    }
}
