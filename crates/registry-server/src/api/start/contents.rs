//! The contents of a start answer: what is small is in memory, blobs are read from the store when it is their turn.

use std::future::ready;
use std::io;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use xebec_format::digest::Digest;
use xebec_native::piece_reads::reads;
use xebec_native::start_answer::{Answer as Part, Head, MAX_WHOLE, TYPE};
use xebec_oci::media_type::without_parameters;
use xebec_store::{Blob, Store};

use super::super::part;
use super::super::reply::{self, Answer};
use crate::body;
use crate::error::ApiError;

/// What is sent, in this order.
#[derive(Default)]
pub(super) struct Contents {
    head: Head,
    sources: Vec<Source>,
}

/// Where the content of a part comes from.
enum Source {
    Memory(Bytes),
    /// Pieces of a blob: offset and length of each, ascending.
    Blob(Blob, Vec<(u64, u64)>),
}

impl Contents {
    /// Sends a manifest. One that is longer than parts may be is left out; so it is with the other parts.
    pub(super) fn manifest(&mut self, reference: String, media_type: &str, content: Bytes) {
        let size = content.len() as u64;
        let part = Part::Manifest {
            reference,
            media_type: without_parameters(media_type).to_owned(),
            size,
        };
        self.push(part, Source::Memory(content));
    }

    /// Sends the list of what refers to `subject`.
    pub(super) fn referrers(&mut self, subject: Digest, content: Bytes) {
        let size = content.len() as u64;
        self.push(Part::Referrers { subject, size }, Source::Memory(content));
    }

    /// Sends a blob.
    pub(super) fn blob(&mut self, digest: Digest, blob: Blob) {
        let size = blob.size;
        self.push(Part::Blob { digest, size }, Source::Blob(blob, vec![(0, size)]));
    }

    /// Sends pieces of a blob.
    pub(super) fn pieces(&mut self, digest: Digest, blob: Blob, pieces: Vec<(u64, u64)>) {
        let part = Part::Pieces {
            digest,
            pieces: pieces.clone(),
        };
        self.head.answers.push(part);
        self.sources.push(Source::Blob(blob, pieces));
    }

    fn push(&mut self, part: Part, source: Source) {
        if part.size() <= MAX_WHOLE {
            self.head.answers.push(part);
            self.sources.push(source);
        }
    }

    /// The answer.
    ///
    /// # Errors
    /// If there are more parts than an answer may have.
    pub(super) fn answer(self, store: &Store) -> Result<Answer, ApiError> {
        let head = self.head.encode();
        let head = head.map_err(|error| ApiError::internal("answering a start", &error))?;
        let length = head.len() as u64 + self.head.content_size();
        let store = store.clone();
        let contents = stream::iter(self.sources).flat_map(move |source| source.read(store.clone()));
        let head = stream::once(ready(Ok(Bytes::from(head))));
        let answer = reply::with(reply::status(StatusCode::OK), CONTENT_TYPE, TYPE);
        let answer = reply::with(answer, CONTENT_LENGTH, length.to_string());
        let answer = reply::with(answer, CACHE_CONTROL, "no-store");
        Ok(part::with_body(
            answer,
            body::streamed(length, head.chain(contents)),
        ))
    }
}

impl Source {
    fn read(self, store: Store) -> BoxStream<'static, io::Result<Bytes>> {
        let (blob, pieces) = match self {
            Self::Memory(bytes) => return stream::once(ready(Ok(bytes))).boxed(),
            Self::Blob(blob, pieces) => (blob, pieces),
        };
        let reads = stream::iter(reads(&pieces)).flat_map(move |read| {
            let (store, blob, range) = (store.clone(), blob.clone(), read.range.clone());
            let mut at = range.start;
            let opened = async move { store.read(&blob, range).await.map_err(io::Error::other) };
            let wanted = stream::once(opened).try_flatten().map_ok(move |bytes| {
                let parts = read.parts_of(at, bytes.len());
                at += bytes.len() as u64;
                let parts: Vec<_> = parts.map(|part| Ok::<_, io::Error>(bytes.slice(part))).collect();
                stream::iter(parts)
            });
            wanted.try_flatten()
        });
        reads.boxed()
    }
}
