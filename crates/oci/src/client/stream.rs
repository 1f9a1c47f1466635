//! A blob, or a range of one, as a stream that mends itself: when the answer breaks, the next one goes on where it
//! stopped.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use xebec_format::digest::Digest;

use super::Client;
use super::failover::Failover;
use super::range::{Opened, blob_ask, skip_in};
use crate::error::{ClientError, Fault, Object};
use crate::reference::Repository;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;

impl Client {
    /// The whole of `blob`, from `from_offset` on, in order. A break is mended by going on where it happened.
    /// The caller verifies the digest.
    ///
    /// # Errors
    /// If the registry cannot be brought to answer at all; later faults are items of the stream.
    pub async fn blob_stream(
        &self,
        repository: &Repository,
        blob: &Digest,
        size: u64,
        from_offset: u64,
    ) -> Result<BlobStream, ClientError> {
        let target = self.target(repository, Object::Blob(*blob));
        if from_offset > size {
            return Err(ClientError::InvalidRange {
                target: Box::new(target),
                limit: size,
            });
        }
        let mut reader = Reader {
            client: self.clone(),
            repository: repository.clone(),
            blob: *blob,
            size,
            wanted: 0..size,
            position: from_offset,
            skip: 0,
            brings: size,
            answer: None,
            failover: self.failover(target, true),
        };
        if from_offset < size {
            reader.reopen().await?;
        }
        Ok(BlobStream::new(reader))
    }

    /// The bytes `range` of `blob`, which has `size` bytes, in order and as they come: for ranges that are large, or of
    /// which the first part can be used while the others are on their way. A break is mended by going on where it
    /// happened. The caller verifies what it gets.
    ///
    /// If the registry ignores ranges, what comes before is read and thrown away, and what comes after is not read.
    ///
    /// # Errors
    /// If the range is empty or not in the blob, or the registry cannot be brought to answer at all; later faults are
    /// items of the stream.
    pub async fn blob_range_stream(
        &self,
        repository: &Repository,
        blob: &Digest,
        size: u64,
        range: Range<u64>,
    ) -> Result<BlobStream, ClientError> {
        let target = self.target(repository, Object::Range(*blob, range.clone()));
        if range.start >= range.end || range.end > size {
            return Err(ClientError::InvalidRange {
                target: Box::new(target),
                limit: size,
            });
        }
        let mut reader = Reader {
            client: self.clone(),
            repository: repository.clone(),
            blob: *blob,
            size,
            position: range.start,
            skip: 0,
            brings: range.end,
            wanted: range,
            answer: None,
            failover: self.failover(target, true),
        };
        reader.reopen().await?;
        Ok(BlobStream::new(reader))
    }
}

/// A blob, or a range of one, read in order.
#[derive(Debug)]
pub(super) struct Reader {
    client: Client,
    repository: Repository,
    blob: Digest,
    /// Size of the blob.
    size: u64,
    /// The range of the blob that is wanted.
    wanted: Range<u64>,
    /// Offset in the blob of what comes next.
    position: u64,
    /// Bytes of the answer that are not wanted, or were delivered before.
    skip: u64,
    /// Offset in the blob up to which the answer reaches, if it keeps its word.
    brings: u64,
    answer: Option<Answer>,
    failover: Failover,
}

/// A whole blob that a registry has begun to send.
pub(super) struct BegunBlob<'a> {
    pub(super) repository: &'a Repository,
    pub(super) blob: &'a Digest,
    /// In bytes.
    pub(super) size: u64,
    pub(super) answer: Answer,
    pub(super) failover: Failover,
}

impl Reader {
    /// A blob whose first answer has come.
    pub(super) fn at_start(client: &Client, begun: BegunBlob<'_>) -> Self {
        Self {
            client: client.clone(),
            repository: begun.repository.clone(),
            blob: *begun.blob,
            size: begun.size,
            wanted: 0..begun.size,
            position: 0,
            skip: 0,
            brings: begun.size,
            answer: Some(begun.answer),
            failover: begun.failover,
        }
    }

    /// The next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while self.position < self.wanted.end {
            self.reopen().await?;
            let Some(answer) = &mut self.answer else {
                continue;
            };
            let fault = match answer.chunk().await {
                Ok(Some(mut part)) => {
                    skip_in(&mut part, &mut self.skip);
                    let missing = self.wanted.end - self.position;
                    part.truncate(usize::try_from(missing).unwrap_or(usize::MAX));
                    if part.is_empty() {
                        continue;
                    }
                    self.position += part.len() as u64;
                    self.failover.gained(part.len() as u64);
                    return Ok(Some(part));
                }
                // A server may send less than was asked for, as long as it says so.
                Ok(None) if self.position == self.brings => {
                    self.answer = None;
                    continue;
                }
                Ok(None) => Fault::Truncated {
                    expected: self.wanted.end - self.wanted.start,
                    got: self.position - self.wanted.start,
                },
                Err(fault) => fault,
            };
            self.answer = None;
            self.failover.failed(fault).await?;
        }
        self.answer = None;
        self.failover.succeeded();
        Ok(None)
    }

    /// Makes sure that there is an answer to read from.
    async fn reopen(&mut self) -> Result<(), ClientError> {
        while self.answer.is_none() {
            let endpoint = self.failover.endpoint();
            match self.failover.limit(self.open_once(&endpoint)).await {
                Ok((answer, skip, brings)) => {
                    (self.answer, self.skip, self.brings) = (Some(answer), skip, brings);
                }
                Err(fault) => self.failover.failed(fault).await?,
            }
        }
        Ok(())
    }

    /// An answer, how much of it to skip, and how far it reaches.
    async fn open_once(&self, endpoint: &Endpoint) -> Result<(Answer, u64, u64), Fault> {
        let rest = self.position..self.wanted.end;
        let range = (rest != (0..self.size)).then(|| rest.clone());
        let ask = blob_ask(&self.repository, &self.blob, range, true);
        let (answer, skip, length) = match self.client.open(endpoint, &ask, &rest).await? {
            Opened::Part(answer, length) => (answer, 0, length),
            Opened::Whole(answer) => (answer, self.position, self.size),
        };
        match answer.content_length() {
            Some(announced) if announced != length => Err(Fault::WrongRange(format!(
                "{length} bytes were to come, the registry announces {announced}"
            ))),
            _ => {
                let brings = self.position - skip + length;
                Ok((answer, skip, brings))
            }
        }
    }
}

type Step = Pin<Box<dyn Future<Output = (Box<Reader>, Result<Option<Bytes>, ClientError>)> + Send>>;

/// A blob, or a range of one, in parts, in order; it ends after the first error. See [`Client::blob_stream`] and
/// [`Client::blob_range_stream`].
pub struct BlobStream {
    size: u64,
    reader: Option<Box<Reader>>,
    step: Option<Step>,
}

impl std::fmt::Debug for BlobStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobStream")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl BlobStream {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            size: reader.size,
            reader: Some(Box::new(reader)),
            step: None,
        }
    }

    /// Size of the blob, also if only a range of it is read.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// When the rest cannot be fetched.
    pub async fn next_part(&mut self) -> Result<Option<Bytes>, ClientError> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context))
            .await
            .transpose()
    }

    pub(super) fn misused(self) -> ClientError {
        let target = self.reader.map(|reader| reader.failover.target().to_string());
        ClientError::Config(format!(
            "{}: a stream was not expected",
            target.unwrap_or_default()
        ))
    }
}

impl Stream for BlobStream {
    type Item = Result<Bytes, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.step.is_none() {
            let Some(mut reader) = self.reader.take() else {
                return Poll::Ready(None);
            };
            self.step = Some(Box::pin(async move {
                let part = reader.next().await;
                (reader, part)
            }));
        }
        let Some(step) = &mut self.step else {
            return Poll::Ready(None);
        };
        let Poll::Ready((reader, part)) = step.as_mut().poll(context) else {
            return Poll::Pending;
        };
        self.step = None;
        Poll::Ready(match part {
            Ok(Some(part)) => {
                self.reader = Some(reader);
                Some(Ok(part))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        })
    }
}
