//! An object that is written in parts, a few of them at the same time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{ObjectStoreExt, PutPayload};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::bucket::{Bucket, from_store};
use super::progress::{Progress, beside};
use crate::digest::Hasher;

/// The first parts have so many bytes: the least that S3 allows. A writer holds one part in memory, and those that are on their way.
const PART: usize = 5 << 20;
/// So many parts of that size are on their way for one object at most, and fewer that are larger. One that is larger than all of these
/// goes alone, while nothing is taken in.
const MOST_ON_THEIR_WAY: usize = 4;
/// After so many parts their size doubles, so that the largest blobs need fewer than the 10,000 that S3 allows.
const PARTS_OF_A_SIZE: usize = 1000;

/// An object of S3 that is being written, at its end.
pub(crate) struct PartWriter {
    bucket: Bucket,
    key: String,
    progress: Progress,
    /// Has hashed the tail, too.
    hasher: Hasher,
    tail: BytesMut,
    /// Parts that were begun and are not known to be stored, in order. They come after those in the progress, and before the tail.
    sent: VecDeque<Sent>,
    /// How many bytes of the tail are in the store.
    stored: usize,
    /// The record does not say yet what it has to.
    is_unrecorded: bool,
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

impl PartWriter {
    /// Goes on from what a record says. If its last bytes are not in the store, they count as never sent.
    pub(crate) async fn resume(bucket: &Bucket, key: &str, progress: Option<&[u8]>) -> io::Result<Self> {
        let parse = |text| Progress::parse(text).ok_or_else(|| io::Error::other("its record is damaged"));
        let progress = progress.map_or_else(|| Ok(Progress::new()), parse)?;
        let mut tail = BytesMut::new();
        if progress.tail > 0 {
            match bucket.client.get(&progress.tail_path(bucket, key)).await {
                Ok(found) => tail.extend_from_slice(&found.bytes().await.map_err(from_store)?),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(from_store(error)),
            }
            // A later request may have stored more of it, and not have come to say so.
            tail.truncate(usize::try_from(progress.tail).unwrap_or(usize::MAX));
        }
        let mut hasher = progress.hasher.clone();
        hasher.update(&tail);
        Ok(Self {
            bucket: bucket.clone(),
            key: key.to_owned(),
            progress,
            hasher,
            stored: tail.len(),
            tail,
            sent: VecDeque::new(),
            is_unrecorded: false,
        })
    }

    pub(in crate::objects) fn size(&self) -> u64 {
        let sent: usize = self.sent.iter().map(|sent| sent.part.len()).sum();
        self.progress.size + (sent + self.tail.len()) as u64
    }

    pub(in crate::objects) fn recorded(&self) -> u64 {
        self.progress.size + self.progress.tail
    }

    /// What the record has to say before more is written: a multipart upload that it does not name would be forgotten by a kill.
    pub(in crate::objects) fn unrecorded(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.is_unrecorded).then(|| self.progress.to_bytes())
    }

    pub(in crate::objects) async fn write(mut self, pieces: Vec<Bytes>) -> io::Result<Self> {
        for piece in pieces {
            self.hasher.update(&piece);
            self.tail.extend_from_slice(&piece);
        }
        // What has been stored meanwhile is to be recorded.
        while self.sent.front().is_some_and(|sent| sent.put.is_finished())
            && let Some(first) = self.sent.pop_front()
        {
            self.settle(first).await?;
        }
        if self.tail.len() < self.next_size() {
            return Ok(self);
        }
        if self.progress.multipart.is_none() {
            let begun = self
                .bucket
                .client
                .create_multipart(&self.bucket.path(&self.key))
                .await;
            self.progress.multipart = Some(begun.map_err(from_store)?);
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
            // What was stored of the tail is in the part. The record goes on to lead there until it has the part.
            self.stored = 0;
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
        let (client, path) = (Arc::clone(&self.bucket.client), self.bucket.path(&self.key));
        let multipart = self.progress.multipart.clone();
        async move {
            let multipart = multipart.ok_or_else(|| io::Error::other("no multipart upload was begun"))?;
            let put = client.put_part(&path, &multipart, number, PutPayload::from(part));
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
        self.is_unrecorded = true;
    }

    /// Waits until all parts are stored, of an object whose multipart upload is recorded if there is one. A tail that is larger than a
    /// part would not be in the store for a while, when its first part is there and recorded.
    ///
    /// The record has to have these parts before [`PartWriter::sync`]: until then it leads to the tail that came after earlier ones.
    pub(in crate::objects) async fn settled(mut self) -> io::Result<Self> {
        if self.progress.multipart.is_some() {
            self.send_full().await?;
        }
        self.settle_all().await?;
        Ok(self)
    }

    async fn settle_all(&mut self) -> io::Result<()> {
        while let Some(first) = self.sent.pop_front() {
            self.settle(first).await?;
        }
        Ok(())
    }

    /// Stores what is in memory, when no part is on its way and the record has all. It has to say what this returns.
    pub(in crate::objects) async fn sync(mut self) -> io::Result<(Self, Vec<u8>)> {
        if !self.sent.is_empty() || self.is_unrecorded {
            return Err(io::Error::other("parts are not recorded"));
        }
        self.store_tail().await?;
        let progress = self.progress.to_bytes();
        Ok((self, progress))
    }

    async fn store_tail(&mut self) -> io::Result<()> {
        // An empty object is stored, too, unless there are parts.
        let is_stored =
            self.stored == self.tail.len() && (!self.tail.is_empty() || self.progress.multipart.is_some());
        if !is_stored {
            let path = self.progress.tail_path(&self.bucket, &self.key);
            let tail = Bytes::copy_from_slice(&self.tail);
            let put = self.bucket.client.put(&path, tail.into()).await;
            put.map_err(from_store)?;
            self.stored = self.tail.len();
        }
        self.progress.tail = self.tail.len() as u64;
        Ok(())
    }

    pub(in crate::objects) async fn complete(mut self) -> io::Result<(u64, Hasher)> {
        let size = self.size();
        let Some(multipart) = self.progress.multipart.clone() else {
            self.store_tail().await?;
            return Ok((size, self.hasher));
        };
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.send(tail).await?;
        }
        self.settle_all().await?;
        // Before the object is whole: afterwards nothing says that there is a tail.
        self.bucket.remove(&beside(&self.bucket, &self.key)).await?;
        let parts = self.progress.parts.iter().map(|content_id| PartId {
            content_id: content_id.clone(),
        });
        let path = self.bucket.path(&self.key);
        let completed = self
            .bucket
            .client
            .complete_multipart(&path, &multipart, parts.collect())
            .await;
        completed.map_err(from_store)?;
        Ok((size, self.hasher))
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
