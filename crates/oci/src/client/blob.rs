//! Blobs: small ones whole, large ones by range or as a stream.
//!
//! After any fault, nothing is asked for twice: a range or stream that ended early goes on where it stopped. A registry that answers a
//! range request with the whole blob is noticed; its answer is used, and the caller can have the rest of it too
//! ([`Client::blob_range_or_whole`]). Ranges and streams are *not* verified here: a range has no digest of its own, and the reader of a
//! stream computes the digest while using it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use xebec_format::digest::Digest;

use super::Client;
use super::in_advance::answers::Wanted;
use super::range::{Opened, blob_ask, skip_in};
use super::stream::{BegunBlob, BlobStream, Reader};
use crate::error::{ClientError, Fault, Object};
use crate::manifest::Descriptor;
use crate::reference::Repository;
use crate::transport::Ask;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;

/// Longest range that is read into memory at once; more belongs into a stream
/// ([`Client::blob_range_stream`]).
pub const MAX_RANGE: u64 = 256 << 20;

/// The answer to a request for a range.
#[derive(Debug)]
pub enum RangeAnswer {
    /// The range.
    Part(Bytes),
    /// The whole blob from its start: the registry ignores ranges.
    Whole(BlobStream),
}

impl Client {
    /// The bytes `range` of `blob`, all of them. At most [`MAX_RANGE`].
    ///
    /// If the registry ignores ranges, what comes before is read and thrown away.
    ///
    /// # Errors
    /// [`ClientError`] names registry, repository, blob, range and the last cause.
    pub async fn blob_range(
        &self,
        repository: &Repository,
        blob: &Digest,
        range: Range<u64>,
    ) -> Result<Bytes, ClientError> {
        match self.read_range(repository, blob, range, None).await? {
            RangeAnswer::Part(bytes) => Ok(bytes),
            // Cannot be: without a size no stream is built.
            RangeAnswer::Whole(stream) => Err(stream.misused()),
        }
    }

    /// The bytes `range` of `blob`, or the whole blob of `size` bytes if the registry ignores ranges: then its
    /// answer need not be thrown away, and the blob need not be asked for again.
    ///
    /// # Errors
    /// As for [`Client::blob_range`].
    pub async fn blob_range_or_whole(
        &self,
        repository: &Repository,
        blob: &Digest,
        size: u64,
        range: Range<u64>,
    ) -> Result<RangeAnswer, ClientError> {
        self.read_range(repository, blob, range, Some(size)).await
    }

    async fn read_range(
        &self,
        repository: &Repository,
        blob: &Digest,
        range: Range<u64>,
        size: Option<u64>,
    ) -> Result<RangeAnswer, ClientError> {
        let target = self.target(repository, Object::Range(*blob, range.clone()));
        let length = range.end.saturating_sub(range.start);
        if length == 0 || length > MAX_RANGE {
            return Err(ClientError::InvalidRange {
                target: Box::new(target),
                limit: MAX_RANGE,
            });
        }
        let mut failover = self.failover(target, true);
        let mut bytes = BytesMut::new();
        while (bytes.len() as u64) < length {
            let endpoint = failover.endpoint();
            let rest = range.start + bytes.len() as u64..range.end;
            let ask = blob_ask(repository, blob, Some(rest.clone()), false);
            let had = bytes.len();
            let read = self.read_rest(&endpoint, &ask, rest, size, &mut bytes);
            let outcome = failover.limit(read).await;
            failover.gained((bytes.len() - had) as u64);
            match outcome {
                Ok(None) => {}
                Ok(Some((answer, size))) => {
                    failover.succeeded();
                    let begun = BegunBlob {
                        repository,
                        blob,
                        size,
                        answer,
                        failover,
                    };
                    let stream = Reader::at_start(self, begun);
                    return Ok(RangeAnswer::Whole(BlobStream::new(stream)));
                }
                Err(fault) => failover.failed(fault).await?,
            }
        }
        failover.succeeded();
        Ok(RangeAnswer::Part(bytes.freeze()))
    }

    /// Reads the rest of a range, as far as one answer has it. If the answer is the whole blob, of a size that is known, it is
    /// given back unread, unless a part of the range was read before.
    async fn read_rest(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        rest: Range<u64>,
        size: Option<u64>,
        bytes: &mut BytesMut,
    ) -> Result<Option<(Answer, u64)>, Fault> {
        let had = bytes.len() as u64;
        match (self.open(endpoint, ask, &rest).await?, size) {
            (Opened::Whole(answer), Some(size)) if had == 0 => match answer.content_length() {
                // A web page, say, of a proxy that wants somebody to log in.
                Some(announced) if announced != size => Err(Fault::WrongRange(format!(
                    "the blob has {size} bytes, the registry announces {announced}"
                ))),
                _ => Ok(Some((answer, size))),
            },
            (Opened::Whole(answer), _) => {
                let until = had + (rest.end - rest.start);
                take(answer, bytes, rest.start, until).await.map(|()| None)
            }
            (Opened::Part(answer, announced), _) => {
                take(answer, bytes, 0, had + announced).await.map(|()| None)
            }
        }
    }

    /// The whole content of `descriptor`, at most `limit` bytes, verified against its digest.
    ///
    /// # Errors
    /// As for [`Client::blob_range`]; and if it is larger than `limit`, or not what its digest says.
    pub async fn blob(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        limit: u64,
    ) -> Result<Bytes, ClientError> {
        let target = self.target(repository, Object::Blob(descriptor.digest));
        if descriptor.size > limit {
            return Err(ClientError::TooLarge {
                target: Box::new(target),
                size: descriptor.size,
                limit,
            });
        }
        if let Some(bytes) = descriptor.embedded() {
            return Ok(bytes.into());
        }
        let wanted = Wanted::Blob(&descriptor.digest);
        let in_advance = self.in_advance(repository, wanted, |came| compared(came.bytes, descriptor));
        if let Some(bytes) = in_advance.await {
            return Ok(bytes);
        }
        let mut failover = self.failover(target, true);
        let ask = blob_ask(repository, &descriptor.digest, None, false);
        loop {
            let endpoint = failover.endpoint();
            match failover.limit(self.blob_once(&endpoint, &ask, descriptor)).await {
                Ok(bytes) => {
                    failover.succeeded();
                    return Ok(bytes);
                }
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    async fn blob_once(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        descriptor: &Descriptor,
    ) -> Result<Bytes, Fault> {
        let answer = self.transport.send(endpoint, ask, &self.counters).await?;
        if answer.status() != 200 {
            return Err(answer.into_fault().await);
        }
        let bytes = match answer.body(descriptor.size).await {
            Err(Fault::TooLarge { limit }) => {
                return Err(Fault::WrongRange(format!(
                    "the blob is longer than the {limit} bytes of its descriptor"
                )));
            }
            other => other?,
        };
        compared(bytes, descriptor)
    }
}

/// The content, if it is what the descriptor says.
fn compared(bytes: Bytes, descriptor: &Descriptor) -> Result<Bytes, Fault> {
    let got = Digest::of(&bytes);
    if got != descriptor.digest {
        return Err(Fault::WrongDigest {
            expected: descriptor.digest,
            got,
        });
    }
    if bytes.len() as u64 != descriptor.size {
        // The digest is right, so the manifest is wrong about the size, and asking again will not help.
        return Err(Fault::Protocol(format!(
            "the manifest says {} bytes, the content has {}",
            descriptor.size,
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// Appends the body to `bytes` until there are `until` of them, after leaving out the first `skip`.
async fn take(mut answer: Answer, bytes: &mut BytesMut, mut skip: u64, until: u64) -> Result<(), Fault> {
    let missing = |bytes: &BytesMut| until.saturating_sub(bytes.len() as u64);
    bytes.reserve(usize::try_from(missing(bytes)).unwrap_or(0));
    while missing(bytes) > 0 {
        let Some(mut part) = answer.chunk().await? else {
            return Err(Fault::Truncated {
                expected: until,
                got: bytes.len() as u64,
            });
        };
        skip_in(&mut part, &mut skip);
        part.truncate(usize::try_from(missing(bytes)).unwrap_or(usize::MAX));
        bytes.extend_from_slice(&part);
    }
    // Reading to the end lets the connection be used again.
    if skip == 0 && answer.status() == 206 {
        answer.discard().await;
    }
    Ok(())
}
