//! An object that is written in parts.

use std::io;

use bytes::{Bytes, BytesMut};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{ObjectStoreExt, PutPayload};

use super::bucket::{Bucket, from_store};
use super::progress::Progress;
use crate::digest::Hasher;

/// The first parts have so many bytes: the least that S3 allows. A writer holds one part in memory.
const PART: usize = 5 << 20;
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
    /// How many bytes of the tail are in the store.
    stored: usize,
    /// The record does not say yet what it has to.
    is_unrecorded: bool,
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
            is_unrecorded: false,
        })
    }

    pub(in crate::objects) fn size(&self) -> u64 {
        self.progress.size + self.tail.len() as u64
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
        let size = part_size(self.progress.parts.len());
        if self.tail.len() < size {
            return Ok(self);
        }
        if self.progress.multipart.is_none() {
            let begun = self
                .bucket
                .client
                .create_multipart(&self.bucket.path(&self.key))
                .await;
            self.progress.multipart = Some(begun.map_err(from_store)?);
            // The bytes that were stored as the object itself are written again as a part. Until then they count as never sent.
            (self.progress.tail, self.stored) = (0, 0);
            self.is_unrecorded = true;
            return Ok(self);
        }
        while self.tail.len() >= size {
            let part = self.tail.split_to(size).freeze();
            self.put_part(part).await?;
        }
        Ok(self)
    }

    async fn put_part(&mut self, part: Bytes) -> io::Result<()> {
        let Some(multipart) = &self.progress.multipart else {
            return Err(io::Error::other("no multipart upload was begun"));
        };
        let (path, number) = (self.bucket.path(&self.key), self.progress.parts.len());
        let put = self
            .bucket
            .client
            .put_part(&path, multipart, number, PutPayload::from(part.clone()));
        let PartId { content_id } = put.await.map_err(from_store)?;
        self.progress.hasher.update(&part);
        self.progress.size += part.len() as u64;
        self.progress.parts.push(content_id);
        // What was stored of the tail is in the part.
        (self.progress.tail, self.stored) = (0, 0);
        self.is_unrecorded = true;
        Ok(())
    }

    /// Stores what is in memory. The record has to say what this returns.
    pub(in crate::objects) async fn sync(mut self) -> io::Result<(Self, Vec<u8>)> {
        self.store_tail().await?;
        self.is_unrecorded = false;
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
        let tail_path = self.progress.tail_path(&self.bucket, &self.key);
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.put_part(tail).await?;
        }
        // Before the object is whole: afterwards nothing says that there is a tail.
        self.bucket.remove(&tail_path).await?;
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
