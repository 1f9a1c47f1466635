//! A blob as a stream that mends itself: when the answer breaks, the next one goes on where it stopped.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use xebec_format::digest::Digest;

use super::Client;
use super::blob::{Opened, blob_ask, skip_in};
use super::course::Course;
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
        let course = self.course(target, true);
        let (client, repository, blob) = (self.clone(), repository.clone(), *blob);
        let mut reader = Reader {
            client,
            repository,
            blob,
            size,
            position: from_offset,
            skip: 0,
            answer: None,
            course,
        };
        if from_offset < size {
            reader.reopen().await?;
        }
        Ok(BlobStream::new(reader))
    }
}

/// A blob read in order.
#[derive(Debug)]
pub(super) struct Reader {
    client: Client,
    repository: Repository,
    blob: Digest,
    size: u64,
    position: u64,
    /// Bytes of the answer that were delivered before.
    skip: u64,
    answer: Option<Answer>,
    course: Course,
}

impl Reader {
    pub(super) fn at_start(
        client: &Client,
        repository: &Repository,
        blob: &Digest,
        size: u64,
        answer: Answer,
        course: Course,
    ) -> Self {
        let (client, repository, blob) = (client.clone(), repository.clone(), *blob);
        Self {
            client,
            repository,
            blob,
            size,
            position: 0,
            skip: 0,
            answer: Some(answer),
            course,
        }
    }

    /// The next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while self.position < self.size {
            self.reopen().await?;
            let Some(answer) = &mut self.answer else {
                continue;
            };
            let fault = match answer.chunk().await {
                Ok(Some(mut part)) => {
                    skip_in(&mut part, &mut self.skip);
                    part.truncate(usize::try_from(self.size - self.position).unwrap_or(usize::MAX));
                    if part.is_empty() {
                        continue;
                    }
                    self.position += part.len() as u64;
                    self.course.gained(part.len() as u64);
                    return Ok(Some(part));
                }
                Ok(None) => Fault::Truncated {
                    expected: self.size,
                    got: self.position,
                },
                Err(fault) => fault,
            };
            self.answer = None;
            self.course.failed(fault).await?;
        }
        self.answer = None;
        Ok(None)
    }

    /// Makes sure that there is an answer to read from.
    async fn reopen(&mut self) -> Result<(), ClientError> {
        while self.answer.is_none() {
            let endpoint = self.course.endpoint();
            match self.course.limit(self.open_once(&endpoint)).await {
                Ok((answer, skip)) => (self.answer, self.skip) = (Some(answer), skip),
                Err(fault) => self.course.failed(fault).await?,
            }
        }
        Ok(())
    }

    async fn open_once(&self, endpoint: &Endpoint) -> Result<(Answer, u64), Fault> {
        let rest = self.position..self.size;
        let range = (self.position > 0).then(|| rest.clone());
        let ask = blob_ask(&self.repository, &self.blob, range, true);
        let (answer, skip, length) = match self.client.open(endpoint, &ask, &rest).await? {
            Opened::Part(answer, length) => (answer, 0, length),
            Opened::Whole(answer) => (answer, self.position, self.size),
        };
        match answer.content_length() {
            Some(announced) if announced != length => Err(Fault::WrongRange(format!(
                "the manifest says {length} bytes, the registry announces {announced}"
            ))),
            _ => Ok((answer, skip)),
        }
    }
}

type Step = Pin<Box<dyn Future<Output = (Box<Reader>, Result<Option<Bytes>, ClientError>)> + Send>>;

/// A whole blob in parts, in order; it ends after the first error. See [`Client::blob_stream`].
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

    /// Size of the blob.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// When the rest cannot be had.
    pub async fn next_part(&mut self) -> Result<Option<Bytes>, ClientError> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context))
            .await
            .transpose()
    }

    pub(super) fn misused(self) -> ClientError {
        let target = self.reader.map(|reader| reader.course.target().to_string());
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
