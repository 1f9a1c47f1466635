//! The contents of a start answer: what is small is in memory, blobs are read from the store when it is their turn.

use std::future::ready;
use std::io;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use xebec_format::digest::Digest;
use xebec_native::answer_parts::AnswerParts;
use xebec_native::piece_reads::{PieceRead, Reads};
use xebec_native::start_answer::{Answer as Part, Head, TYPE};
use xebec_oci::media_type::without_parameters;
use xebec_store::{Blob, BlobReader, Store};

use super::super::call::Call;
use super::super::part;
use super::super::reply::{self, Answer};
use crate::body;
use crate::error::ApiError;

/// Blobs that are open before the answer begins. Of further ones, only their objects are looked for.
const MOST_OPEN: usize = 32;
/// The memory that a piece takes until it is sent, about.
const PIECE: usize = 64;

/// What is sent, in this order. A part that does not fit is left out: the host asks for it.
#[derive(Default)]
pub(super) struct Contents {
    parts: AnswerParts,
    sources: Vec<Source>,
    reads: Reads,
    open: usize,
}

/// Where the content of a part comes from.
enum Source {
    Memory(Bytes),
    Blob(Blob, Vec<Read>),
}

/// A read of a blob, and its reader if that is open already.
struct Read(PieceRead, Option<BlobReader>);

impl Contents {
    /// Sends a manifest, and says whether it is sent; so it is with the other parts.
    pub(super) fn manifest(&mut self, reference: String, media_type: &str, content: Bytes) -> bool {
        let part = Part::Manifest {
            reference,
            media_type: without_parameters(media_type).to_owned(),
            size: content.len() as u64,
        };
        self.push(part, Source::Memory(content))
    }

    /// Sends the list of what refers to `subject`.
    pub(super) fn referrers(&mut self, subject: Digest, content: Bytes) -> bool {
        let size = content.len() as u64;
        self.push(Part::Referrers { subject, size }, Source::Memory(content))
    }

    /// Sends a blob, unless it is among the parts.
    pub(super) async fn blob(&mut self, digest: Digest, blob: Blob, store: &Store) -> bool {
        let size = blob.size;
        let part = Part::Blob { digest, size };
        self.read(part, blob, &[(0, size)], store).await
    }

    /// Sends pieces of a blob.
    pub(super) async fn pieces(
        &mut self,
        digest: Digest,
        blob: Blob,
        pieces: Vec<(u64, u64)>,
        store: &Store,
    ) -> bool {
        let part = Part::Pieces {
            digest,
            pieces: pieces.clone(),
        };
        self.read(part, blob, &pieces, store).await
    }

    /// The parts that are there.
    pub(super) fn parts(&self) -> &AnswerParts {
        &self.parts
    }

    async fn read(&mut self, part: Part, blob: Blob, pieces: &[(u64, u64)], store: &Store) -> bool {
        if !self.parts.fits(&part) {
            return false;
        }
        match self.opened(&blob, pieces, store).await {
            Some(reads) => self.push(part, Source::Blob(blob, reads)),
            None => false,
        }
    }

    fn push(&mut self, part: Part, source: Source) -> bool {
        let fits = self.parts.add(part);
        if fits {
            self.sources.push(source);
        }
        fits
    }

    /// The reads of these pieces; `None` if the blob's object is gone: a broken answer would cost the host all that follows.
    async fn opened(&mut self, blob: &Blob, pieces: &[(u64, u64)], store: &Store) -> Option<Vec<Read>> {
        let mut reads = self.reads.of(pieces).into_iter().map(|read| Read(read, None));
        let Some(Read(first, _)) = reads.next() else {
            return Some(Vec::new());
        };
        let reader = if self.open < MOST_OPEN {
            Some(store.read(blob, first.range.clone()).await.ok()?)
        } else {
            store.is_whole(blob).await.ok().filter(|is_whole| *is_whole)?;
            None
        };
        self.open += 1;
        Some(std::iter::once(Read(first, reader)).chain(reads).collect())
    }

    /// The head and the sources of manifests alone.
    fn only_manifests(&self, sources: Vec<Source>) -> (Head, Vec<Source>) {
        let parts = self.parts.head().answers.iter().cloned().zip(sources);
        let is_manifest = |(part, _): &(Part, Source)| matches!(part, Part::Manifest { .. });
        let (answers, sources) = parts.filter(is_manifest).unzip();
        (Head { answers }, sources)
    }

    /// The answer. If its head cannot be had, only manifests are sent.
    ///
    /// # Errors
    /// If not even these can be.
    pub(super) fn answer(mut self, call: &Call<'_>) -> Result<Answer, ApiError> {
        let mut sources = std::mem::take(&mut self.sources);
        let mut size = self.parts.head().content_size();
        let (mut encoded, mut room) = (self.parts.head().encode(), None);
        if let Ok(head) = &encoded {
            let needed = head.len() + self.parts.pieces() * PIECE;
            room = call.room_now(needed as u64);
        }
        if room.is_none() {
            let (head, manifests) = self.only_manifests(sources);
            (encoded, size, sources) = (head.encode(), head.content_size(), manifests);
        }
        let head = encoded.map_err(|error| ApiError::internal("answering a start", &error))?;
        let length = head.len() as u64 + size;
        let store = call.registry.store.clone();
        let contents = stream::iter(sources).flat_map(move |source| {
            // What is on its way takes room until it is sent.
            let _room = &room;
            source.read(store.clone())
        });
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
        let (blob, reads) = match self {
            Self::Memory(bytes) => return stream::once(ready(Ok(bytes))).boxed(),
            Self::Blob(blob, reads) => (blob, reads),
        };
        let reads = stream::iter(reads).flat_map(move |Read(read, reader)| {
            let (store, blob, range) = (store.clone(), blob.clone(), read.range.clone());
            let mut at = range.start;
            let opened = async move {
                match reader {
                    Some(reader) => Ok(reader),
                    None => store.read(&blob, range).await.map_err(io::Error::other),
                }
            };
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
