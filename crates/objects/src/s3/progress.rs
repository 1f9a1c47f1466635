//! How far an unfinished object is, as its record says it: any node goes on from there. docs/formats/store.md has the form.

use std::io;

use object_store::multipart::MultipartStore;
use serde_json::{Value, json};

use super::bucket::{Bucket, from_store};
use crate::digest::{Algorithm, Hasher};

/// The multipart upload of an object. Only its completion makes the object, so that is whole as soon as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Multipart {
    /// The key that the object will have.
    pub(super) key: String,
    /// The object store's id of the upload.
    pub(super) id: String,
}

/// The bytes that were written so far, and where they are.
#[derive(Clone)]
pub(super) struct Progress {
    /// The multipart upload, once there is one.
    pub(super) multipart: Option<Multipart>,
    /// The object store's id of each part.
    pub(super) parts: Vec<String>,
    /// The bytes in parts.
    pub(super) size: u64,
    /// Has hashed the bytes in parts.
    pub(super) hasher: Hasher,
    /// How many bytes come after the parts.
    pub(super) tail: u64,
    /// The object that has them. Where there are none it may be one that had some.
    pub(super) tail_key: Option<String>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            multipart: None,
            parts: Vec::new(),
            size: 0,
            hasher: Hasher::new(Algorithm::Sha256),
            tail: 0,
            tail_key: None,
        }
    }

    /// The progress in the record of an upload whose own object has this key.
    pub(super) fn of_record(key: &str, progress: Option<&[u8]>) -> io::Result<Self> {
        let parse = |text| Self::parse(key, text).ok_or_else(|| io::Error::other("its record is damaged"));
        progress.map_or_else(|| Ok(Self::new()), parse)
    }

    fn parse(key: &str, text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let parts = value.get("parts")?.as_array()?.iter();
        let mut progress = Self {
            multipart: None,
            parts: parts
                .map(|part| part.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            size: value.get("size")?.as_u64()?,
            hasher: Hasher::resume(&hex::decode(value.get("hash")?.as_str()?).ok()?)?,
            tail: 0,
            tail_key: None,
        };
        match value.get("tail")? {
            Value::Number(tail) => progress.be_of_the_first_form(key, tail.as_u64()?, &value)?,
            Value::Null => {}
            tail => {
                progress.tail = tail.get("size")?.as_u64()?;
                progress.tail_key = Some(tail.get("key")?.as_str()?.to_owned());
            }
        }
        if let Some(multipart @ Value::Object(_)) = value.get("multipart") {
            progress.multipart = Some(Multipart {
                key: multipart.get("key")?.as_str()?.to_owned(),
                id: multipart.get("id")?.as_str()?.to_owned(),
            });
        }
        Some(progress)
    }

    /// Earlier versions had one key for the object, and one for the bytes after its parts.
    fn be_of_the_first_form(&mut self, key: &str, tail: u64, value: &Value) -> Option<()> {
        self.tail = tail;
        let multipart = value.get("multipart")?.as_str().map(str::to_owned);
        self.tail_key = match (self.parts.is_empty(), &multipart) {
            (false, Some(_)) => Some(format!("{key}.tail")),
            _ => Some(key.to_owned()),
        };
        let key = key.to_owned();
        self.multipart = multipart.map(|id| Multipart { key, id });
        Some(())
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let hash = hex::encode(self.hasher.save().unwrap_or_default());
        let multipart = self.multipart.as_ref();
        let tail_key = self.tail_key.as_ref();
        let value = json!({
            "multipart": multipart.map(|multipart| json!({"key": multipart.key, "id": multipart.id})),
            "parts": self.parts,
            "size": self.size,
            "hash": hash,
            "tail": tail_key.map(|key| json!({"key": key, "size": self.tail})),
        });
        value.to_string().into_bytes()
    }
}

/// Deletes an object, and with the progress of an unfinished one all that belongs to it.
pub(crate) async fn delete(bucket: &Bucket, key: &str, progress: Option<&[u8]>) -> io::Result<()> {
    // Of a damaged record nothing more can be known.
    let progress = Progress::of_record(key, progress).unwrap_or_else(|_| Progress::new());
    if let Some(multipart) = &progress.multipart {
        let path = bucket.path(&multipart.key);
        match bucket.client.abort_multipart(&path, &multipart.id).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(from_store(error)),
        }
        bucket.remove(&path).await?;
    }
    if let Some(key) = &progress.tail_key {
        bucket.remove(&bucket.path(key)).await?;
    }
    bucket.remove(&bucket.path(key)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed() -> Hasher {
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(b"bytes");
        hasher
    }

    #[test]
    fn what_is_written_is_read() {
        let mut progress = Progress::new();
        progress.hasher = hashed();
        progress.multipart = Some(Multipart {
            key: "ab/abc".to_owned(),
            id: "a \"name\"".to_owned(),
        });
        progress.parts = vec!["one".to_owned(), "two".to_owned()];
        progress.size = 5;
        for tail in [None, Some("cd/cde".to_owned())] {
            progress.tail = 7 * u64::from(tail.is_some());
            progress.tail_key = tail;
            let read = Progress::parse("ef/efg", &progress.to_bytes()).unwrap();
            assert_eq!(
                (&read.multipart, &read.parts),
                (&progress.multipart, &progress.parts)
            );
            assert_eq!((read.size, read.tail), (5, progress.tail));
            assert_eq!(read.tail_key, progress.tail_key);
            assert_eq!(read.hasher.finish(), hashed().finish());
        }
        for text in [
            "",
            "{}",
            "[]",
            "{\"multipart\":null,\"parts\":[1],\"size\":0,\"hash\":\"\",\"tail\":0}",
            "{\"multipart\":null,\"parts\":[],\"size\":0,\"hash\":\"\"}",
        ] {
            assert!(Progress::parse("ab/abc", text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn what_earlier_versions_wrote_is_read() {
        let written = |multipart: Option<&str>, parts: &[&str]| {
            let hash = hex::encode(hashed().save().unwrap());
            let value = json!({"multipart": multipart, "parts": parts, "size": 5, "hash": hash, "tail": 7});
            Progress::parse("ab/abc", value.to_string().as_bytes()).unwrap()
        };
        let multipart = Multipart {
            key: "ab/abc".to_owned(),
            id: "id".to_owned(),
        };
        let cases: [(_, &[&str], _); 3] = [
            (None, &[], "ab/abc"),
            (Some("id"), &[], "ab/abc"),
            (Some("id"), &["one"], "ab/abc.tail"),
        ];
        for (id, parts, tail_key) in cases {
            let read = written(id, parts);
            assert_eq!(read.multipart, id.map(|_| multipart.clone()));
            assert_eq!((read.size, read.tail), (5, 7));
            assert_eq!(read.tail_key.as_deref(), Some(tail_key));
            assert_eq!(read.hasher.finish(), hashed().finish());
        }
    }
}
