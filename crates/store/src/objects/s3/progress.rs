//! How far an unfinished object is, as its record says it: any node goes on from there.

use std::io;

use object_store::multipart::MultipartStore;
use object_store::path::Path;
use serde_json::{Value, json};

use super::bucket::{Bucket, from_store};
use crate::digest::{Algorithm, Hasher};

/// What was written so far. Bytes that are too few for a part are in an object beside it, whose key ends in `.tail`; those of an object
/// that has no part yet are in the object itself.
#[derive(Clone)]
pub(super) struct Progress {
    /// The multipart upload, once there is one.
    pub(super) multipart: Option<String>,
    /// What the store called each part.
    pub(super) parts: Vec<String>,
    /// The bytes in parts.
    pub(super) size: u64,
    /// Has hashed the bytes in parts.
    pub(super) hasher: Hasher,
    /// How many bytes come after the parts.
    pub(super) tail: u64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            multipart: None,
            parts: Vec::new(),
            size: 0,
            hasher: Hasher::new(Algorithm::Sha256),
            tail: 0,
        }
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let parts = value.get("parts")?.as_array()?.iter();
        Some(Self {
            multipart: value.get("multipart")?.as_str().map(str::to_owned),
            parts: parts
                .map(|part| part.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            size: value.get("size")?.as_u64()?,
            hasher: Hasher::resume(&hex::decode(value.get("hash")?.as_str()?).ok()?)?,
            tail: value.get("tail")?.as_u64()?,
        })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let hash = hex::encode(self.hasher.save().unwrap_or_default());
        let value = json!({
            "multipart": self.multipart,
            "parts": self.parts,
            "size": self.size,
            "hash": hash,
            "tail": self.tail,
        });
        value.to_string().into_bytes()
    }

    /// Where the tail is. What was stored before the multipart upload was begun stays where it is until the first part has it.
    pub(super) fn tail_path(&self, bucket: &Bucket, key: &str) -> Path {
        match self.parts.is_empty() {
            true => bucket.path(key),
            false => beside(bucket, key),
        }
    }

    /// Takes back what there is beside the object itself.
    pub(super) async fn abandon(&self, bucket: &Bucket, key: &str) -> io::Result<()> {
        let Some(multipart) = &self.multipart else {
            return Ok(());
        };
        bucket.remove(&beside(bucket, key)).await?;
        match bucket.client.abort_multipart(&bucket.path(key), multipart).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }
}

/// The object that has the tail after parts.
pub(super) fn beside(bucket: &Bucket, key: &str) -> Path {
    bucket.path(&format!("{key}.tail"))
}

/// Deletes an object, and with the progress of an unfinished one all that belongs to it.
pub(crate) async fn delete(bucket: &Bucket, key: &str, progress: Option<&[u8]>) -> io::Result<()> {
    if let Some(progress) = progress.and_then(Progress::parse) {
        progress.abandon(bucket, key).await?;
    }
    bucket.remove(&bucket.path(key)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut progress = Progress::new();
        progress.hasher.update(b"bytes");
        progress.multipart = Some("a \"name\"".to_owned());
        progress.parts = vec!["one".to_owned(), "two".to_owned()];
        (progress.size, progress.tail) = (5, 7);
        let read = Progress::parse(&progress.to_bytes()).unwrap();
        assert_eq!((read.multipart, read.parts), (progress.multipart, progress.parts));
        assert_eq!((read.size, read.tail), (5, 7));
        assert_eq!(read.hasher.finish(), progress.hasher.finish());
        for text in [
            "",
            "{}",
            "[]",
            "{\"multipart\":null,\"parts\":[1],\"size\":0,\"hash\":\"\",\"tail\":0}",
        ] {
            assert!(Progress::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
