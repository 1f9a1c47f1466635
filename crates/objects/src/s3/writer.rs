//! An object that is written in parts, a few of them at the same time.
//!
//! Bytes that are too few for a part are an object of their own. No key gets a second content: a server may store late what a node has
//! sent that died, or that tried again, and would overwrite by it what came after.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{ObjectStoreExt, PutPayload};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::bucket::{Bucket, from_store};
use super::progress::{Multipart, Progress};
use crate::digest::Hasher;
use crate::note::{Finished, Note, Released, new_key};

/// The first parts have so many bytes: the least that S3 allows. A writer holds one part in memory, and those that are on their way.
const PART: usize = 5 << 20;
/// So many parts of that size are on their way for one object at most, and fewer that are larger. One that is larger than all of these
/// goes alone, while nothing is taken in.
const MOST_ON_THEIR_WAY: usize = 4;
/// After so many parts their size doubles, so that the largest blobs need fewer than the 10,000 that S3 allows.
const PARTS_OF_A_SIZE: usize = 1000;

/// An object of S3 that is being written, at its end.
pub struct PartWriter {
    bucket: Bucket,
    /// The key for bytes that are too few for a part. It is this writer's alone, and written once.
    key: String,
    is_written: bool,
    progress: Progress,
    /// Has hashed the tail, too.
    hasher: Hasher,
    tail: BytesMut,
    /// Parts that were begun and are not known to be stored, in order. They come after those in the progress, and before the tail.
    sent: VecDeque<Sent>,
    /// How many bytes of the tail are in the object that the progress names.
    stored: Option<usize>,
    /// The record does not say yet what it has to.
    is_unrecorded: bool,
    /// The objects with bytes that are too few for a part, as the record has them.
    recorded: Vec<Released>,
}

/// A part on its way. Dropped, it is given up.
struct Sent {
    part: Bytes,
    put: JoinHandle<io::Result<String>>,
    _room: OwnedSemaphorePermit,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.put.abort();
    }
}

/// How much room a part takes, in parts of the first size.
fn room_of(part: &Bytes) -> usize {
    part.len().div_ceil(PART)
}

fn part_size(parts: usize) -> usize {
    PART << (parts / PARTS_OF_A_SIZE).min(7)
}

/// The note for the record of an upload that somebody else goes on with. From then on the upload has a key that nobody has written to.
pub(crate) fn take_over(key: &str, progress: Option<&[u8]>) -> io::Result<Note> {
    let progress = Progress::of_record(key, progress)?;
    let multipart = progress.multipart.as_ref().map(|multipart| &*multipart.key);
    let is_used = [multipart, progress.tail_key.as_deref()].contains(&Some(key));
    let unused = Released {
        key: key.to_owned(),
        size: 0,
    };
    Ok(Note {
        object: new_key()?,
        size: progress.size + progress.tail,
        progress: Some(progress.to_bytes()),
        released: if is_used { Vec::new() } else { vec![unused] },
    })
}

impl PartWriter {
    /// Begins an object with a key that nobody has written to.
    pub(crate) fn begin(bucket: &Bucket, key: &str) -> Self {
        Self::new(bucket, key, Progress::new())
    }

    fn new(bucket: &Bucket, key: &str, progress: Progress) -> Self {
        let mut writer = Self {
            bucket: bucket.clone(),
            key: key.to_owned(),
            is_written: false,
            hasher: progress.hasher.clone(),
            progress,
            tail: BytesMut::new(),
            sent: VecDeque::new(),
            stored: None,
            is_unrecorded: false,
            recorded: Vec::new(),
        };
        writer.recorded = writer.owned();
        writer
    }

    /// Goes on from what a record says since [`take_over`]. If its last bytes are not in the store, they count as never sent.
    pub(crate) async fn resume(bucket: &Bucket, key: &str, progress: Option<&[u8]>) -> io::Result<Self> {
        let mut writer = Self::new(bucket, key, Progress::of_record(key, progress)?);
        let progress = &writer.progress;
        if let Some(key) = progress.tail_key.as_ref().filter(|_| progress.tail > 0) {
            match bucket.client.get(&bucket.path(key)).await {
                Ok(found) => writer
                    .tail
                    .extend_from_slice(&found.bytes().await.map_err(from_store)?),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(from_store(error)),
            }
            // A later request of an earlier version may have stored more of it, and not have come to say so.
            writer
                .tail
                .truncate(usize::try_from(progress.tail).unwrap_or(usize::MAX));
            writer.stored = Some(writer.tail.len());
        }
        writer.hasher.update(&writer.tail);
        Ok(writer)
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn size(&self) -> u64 {
        let sent: usize = self.sent.iter().map(|sent| sent.part.len()).sum();
        self.progress.size + (sent + self.tail.len()) as u64
    }

    /// How many bytes it holds in memory while no part is on its way.
    pub(crate) fn in_memory(&self) -> usize {
        self.tail.len()
    }

    /// The objects that this has, beside that of the multipart upload.
    fn owned(&self) -> Vec<Released> {
        let multipart = self.progress.multipart.as_ref().map(|multipart| &multipart.key);
        let tail = self.progress.tail_key.as_ref().filter(|tail| **tail != self.key);
        let keys = [Some(&self.key), tail].into_iter().flatten();
        keys.filter(|key| Some(*key) != multipart)
            .map(|key| Released {
                key: key.clone(),
                size: self.progress.tail * u64::from(Some(key) == self.progress.tail_key.as_ref()),
            })
            .collect()
    }

    /// A note of the bytes that are in the store, for the record.
    fn note(&mut self) -> Note {
        let owned = self.owned();
        let is_released = |was: &Released| owned.iter().all(|is| is.key != was.key);
        let mut released = std::mem::take(&mut self.recorded);
        released.retain(is_released);
        self.recorded = owned;
        Note {
            object: self.key.clone(),
            size: self.progress.size + self.progress.tail,
            progress: Some(self.progress.to_bytes()),
            released,
        }
    }

    /// The note that has to be recorded before more is written: a multipart upload that the record does not name would be forgotten by
    /// a kill.
    pub(crate) fn unrecorded(&mut self) -> Option<Note> {
        std::mem::take(&mut self.is_unrecorded).then(|| self.note())
    }

    pub(crate) async fn write(mut self, pieces: Vec<Bytes>) -> io::Result<Self> {
        for piece in pieces {
            self.hasher.update(&piece);
            self.tail.extend_from_slice(&piece);
        }
        // Parts that have been stored meanwhile are to be recorded.
        while self.sent.front().is_some_and(|sent| sent.put.is_finished())
            && let Some(first) = self.sent.pop_front()
        {
            self.settle(first).await?;
        }
        if self.tail.len() < self.next_size() {
            return Ok(self);
        }
        if self.progress.multipart.is_none() {
            let key = new_key()?;
            let path = self.bucket.path(&key);
            let id = self.bucket.client.create_multipart(&path).await;
            let id = id.map_err(from_store)?;
            self.progress.multipart = Some(Multipart { key, id });
            self.is_unrecorded = true;
            return Ok(self);
        }
        self.send_full().await?;
        Ok(self)
    }

    /// Sends what is enough for a part.
    async fn send_full(&mut self) -> io::Result<()> {
        while self.tail.len() >= self.next_size() {
            let part = self.tail.split_to(self.next_size()).freeze();
            // The part has the bytes of the tail that were stored. The record leads to the tail's object until it has the part.
            self.stored = None;
            self.send(part).await?;
        }
        Ok(())
    }

    /// The size of the part that the tail becomes.
    fn next_size(&self) -> usize {
        part_size(self.progress.parts.len() + self.sent.len())
    }

    /// Sends a part. If there is room for it beside those on their way, this does not wait until it is stored.
    async fn send(&mut self, part: Bytes) -> io::Result<()> {
        let number = self.progress.parts.len() + self.sent.len();
        loop {
            if let Some(room) = self.room(&part) {
                let put = tokio::spawn(self.put(part.clone(), number));
                self.sent.push_back(Sent {
                    part,
                    put,
                    _room: room,
                });
                return Ok(());
            }
            let Some(first) = self.sent.pop_front() else {
                let content_id = self.put(part.clone(), number).await?;
                self.stored_part(&part, content_id);
                return Ok(());
            };
            self.settle(first).await?;
        }
    }

    fn room(&self, part: &Bytes) -> Option<OwnedSemaphorePermit> {
        let taken: usize = self.sent.iter().map(|sent| room_of(&sent.part)).sum();
        let wanted = room_of(part);
        let is_room = taken + wanted <= MOST_ON_THEIR_WAY;
        let wanted = u32::try_from(wanted).ok().filter(|_| is_room)?;
        Arc::clone(&self.bucket.ahead).try_acquire_many_owned(wanted).ok()
    }

    /// Stores a part, and returns what the store calls it.
    fn put(&self, part: Bytes, number: usize) -> impl Future<Output = io::Result<String>> + Send + use<> {
        let (bucket, multipart) = (self.bucket.clone(), self.progress.multipart.clone());
        async move {
            let none = || io::Error::other("no multipart upload was begun");
            let Multipart { key, id } = multipart.ok_or_else(none)?;
            let (path, part) = (bucket.path(&key), PutPayload::from(part));
            let client = bucket.to_put(part.content_length());
            let put = client.put_part(&path, &id, number, part);
            put.await.map(|part| part.content_id).map_err(from_store)
        }
    }

    /// Waits until the first of the parts on their way is stored.
    async fn settle(&mut self, mut first: Sent) -> io::Result<()> {
        let content_id = (&mut first.put).await.map_err(io::Error::other)??;
        self.stored_part(&first.part, content_id);
        Ok(())
    }

    fn stored_part(&mut self, part: &Bytes, content_id: String) {
        self.progress.hasher.update(part);
        self.progress.size += part.len() as u64;
        self.progress.parts.push(content_id);
        self.progress.tail = 0;
        self.progress.tail_key = None;
        self.is_unrecorded = true;
    }

    /// Waits until all parts are stored, of an object whose multipart upload is recorded if there is one. A tail that is larger than a
    /// part would not be in the store for a while, when its first part is there and recorded.
    ///
    /// The record has to have these parts, and the key for what comes after them, before [`PartWriter::sync`] or, if nothing more will be
    /// written, [`PartWriter::complete`].
    pub(crate) async fn settled(mut self, is_last: bool) -> io::Result<Self> {
        if self.progress.multipart.is_some() {
            self.send_full().await?;
        }
        self.settle_all().await?;
        let is_there = match is_last {
            // The bytes after the parts will be a part.
            true => self.progress.multipart.is_some() || self.is_whole(),
            false => self.is_stored(),
        };
        if self.is_written && !is_there {
            self.key = new_key()?;
            self.is_written = false;
            self.is_unrecorded = true;
        }
        Ok(self)
    }

    /// Whether all after the parts is in the store. An empty object is stored, too, unless there are parts.
    fn is_stored(&self) -> bool {
        match self.stored {
            Some(stored) => stored == self.tail.len(),
            None => self.tail.is_empty() && self.progress.multipart.is_some(),
        }
    }

    /// Whether all bytes of an object without parts are under its key.
    fn is_whole(&self) -> bool {
        self.is_stored() && self.progress.tail_key.as_ref() == Some(&self.key)
    }

    async fn settle_all(&mut self) -> io::Result<()> {
        while let Some(first) = self.sent.pop_front() {
            self.settle(first).await?;
        }
        Ok(())
    }

    /// Stores what is in memory, when no part is on its way and the record has all. It has to say what this returns.
    pub(crate) async fn sync(mut self) -> io::Result<(Self, Note)> {
        if !self.sent.is_empty() || self.is_unrecorded {
            return Err(io::Error::other("parts are not recorded"));
        }
        if !self.is_stored() {
            self.store_tail().await?;
        }
        let note = self.note();
        Ok((self, note))
    }

    /// Stores the tail under the key that the record has for it.
    async fn store_tail(&mut self) -> io::Result<()> {
        if self.is_written {
            return Err(io::Error::other("another object has this key"));
        }
        self.is_written = true;
        let tail = Bytes::copy_from_slice(&self.tail);
        self.bucket.put(&self.key, tail).await?;
        self.stored = Some(self.tail.len());
        self.progress.tail = self.tail.len() as u64;
        self.progress.tail_key = Some(self.key.clone());
        Ok(())
    }

    /// Makes the object, of a writer that has settled for the last time and is recorded.
    pub(crate) async fn complete(mut self) -> io::Result<Finished> {
        let size = self.size();
        let object = match self.progress.multipart.clone() {
            None if self.is_whole() => self.key.clone(),
            None => {
                self.store_tail().await?;
                self.key.clone()
            }
            Some(multipart) => {
                let completed = self.put_together(&multipart).await;
                // Somebody may have come as far, and died before that was recorded.
                let is_whole = match &completed {
                    Ok(()) => true,
                    Err(_) => self.bucket.size(&multipart.key).await? == Some(size),
                };
                completed.or_else(|error| if is_whole { Ok(()) } else { Err(error) })?;
                multipart.key
            }
        };
        let (key, is_written) = (self.key, self.is_written);
        let mut released = self.recorded;
        released.retain(|was| was.key != object && (was.key != key || is_written));
        Ok(Finished {
            object,
            size,
            hasher: self.hasher,
            released,
        })
    }

    /// Makes the object of its parts, and of the tail as the last.
    async fn put_together(&mut self, multipart: &Multipart) -> io::Result<()> {
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.send(tail).await?;
        }
        self.settle_all().await?;
        let parts = self.progress.parts.iter().map(|content_id| PartId {
            content_id: content_id.clone(),
        });
        let path = self.bucket.path(&multipart.key);
        let completed = self
            .bucket
            .client
            .complete_multipart(&path, &multipart.id, parts.collect())
            .await;
        completed.map(|_| ()).map_err(from_store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_blob_fits_in_the_parts_that_there_may_be() {
        let sizes = (0..10_000).map(|part| part_size(part) as u64);
        assert!(sizes.sum::<u64>() > 1 << 40);
        assert_eq!(part_size(999), PART);
        assert_eq!(part_size(1000), 2 * PART);
    }
}
