//! Bodies of requests and answers.
//!
//! A body that comes in is limited by how long it stands still, not by how long it takes: a push of many gigabytes over a slow line is
//! as welcome as a quick one.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt as _};
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, io::Error>;

/// As much of a body that nobody wants is read and thrown away, so that the client sees the answer instead of a broken connection.
const MAX_DRAINED: u64 = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// No body.
pub fn empty() -> AnswerBody {
    Empty::new().map_err(never).boxed_unsync()
}

/// Bytes that are all here.
pub fn full(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into()).map_err(never).boxed_unsync()
}

fn never(never: Infallible) -> io::Error {
    match never {}
}

/// Bytes as they come; their number is known.
pub fn streamed(length: u64, stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> AnswerBody {
    Streamed {
        stream: Box::pin(stream),
        left: length,
    }
    .boxed_unsync()
}

/// Bytes as they come, until there are no more.
pub fn endless(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> AnswerBody {
    StreamBody::new(stream.map_ok(Frame::data)).boxed_unsync()
}

struct Streamed {
    stream: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>,
    left: u64,
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        match self.stream.as_mut().poll_next(context) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            // The client was promised more. It must see a broken answer, not a short one.
            Poll::Ready(None) => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The body of a request, as a stream of its bytes. It ends with `TimedOut` when nothing has come for a while.
pub struct RequestBody {
    inner: Option<BoxBody<Bytes, io::Error>>,
    idle: Duration,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Bytes that have come.
    received: u64,
}

impl RequestBody {
    /// The body, of which something has to come each `idle`.
    pub fn new<B>(body: B, idle: Duration) -> Self
    where
        B: Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self {
            inner: Some(body.map_err(io::Error::other).boxed()),
            idle,
            alarm: None,
            received: 0,
        }
    }

    /// The body in memory, if it has `limit` bytes at most.
    ///
    /// # Errors
    /// I/O errors, and none for one that is longer: that is `Ok(None)`.
    pub async fn read(&mut self, limit: u64) -> io::Result<Option<Bytes>> {
        if self
            .inner
            .as_ref()
            .is_some_and(|body| body.size_hint().lower() > limit)
        {
            return Ok(None);
        }
        let mut all = BytesMut::new();
        while let Some(bytes) = std::future::poll_fn(|context| self.poll(context)).await {
            let bytes = bytes?;
            if all.len() as u64 + bytes.len() as u64 > limit {
                return Ok(None);
            }
            all.extend_from_slice(&bytes);
        }
        Ok(Some(all.freeze()))
    }

    /// Whether nothing more comes.
    pub fn is_empty(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    /// How many bytes have come so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Reads what the client still sends and forgets it, within limits.
    pub async fn drain(mut self) {
        let drained = async {
            while let Some(Ok(_)) = std::future::poll_fn(|context| self.poll(context)).await {
                if self.received > MAX_DRAINED {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIME, drained).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(inner) = self.inner.as_mut() else {
                return Poll::Ready(None);
            };
            match Pin::new(inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.alarm = None;
                    // Trailers say nothing here.
                    if let Ok(bytes) = frame.into_data() {
                        self.received += bytes.len() as u64;
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.inner = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    self.inner = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => return self.poll_alarm(context),
            }
        }
    }

    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let idle = self.idle;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + idle)));
        match std::future::Future::poll(alarm.as_mut(), context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.inner = None;
                let error = io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the client sent nothing for {} s", idle.as_secs()),
                );
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl Stream for RequestBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_short_answer_is_a_broken_one() {
        let pieces = stream::iter([Ok(Bytes::from_static(b"abc"))]);
        let mut body = streamed(4, pieces);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        assert!(body.frame().await.unwrap().is_err());
        let whole = streamed(3, stream::iter([Ok(Bytes::from_static(b"abc"))]));
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "abc");
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_not_kept() {
        let body = || RequestBody::new(Full::new(Bytes::from_static(b"abcd")), Duration::from_secs(1));
        assert_eq!(body().read(3).await.unwrap(), None);
        assert_eq!(body().read(4).await.unwrap().unwrap(), "abcd");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_be_slow_but_not_stand_still() {
        let slow = |pause: u64| {
            let pieces = stream::unfold(0, move |number| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                let frame = Frame::data(Bytes::from_static(b"x"));
                (number < 100).then_some((Ok::<_, io::Error>(frame), number + 1))
            });
            let body = http_body_util::StreamBody::new(Box::pin(pieces));
            RequestBody::new(body, Duration::from_secs(60))
        };
        // Far longer than the limit in all.
        assert_eq!(slow(50).read(1000).await.unwrap().unwrap().len(), 100);
        let error = slow(70).read(1000).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
