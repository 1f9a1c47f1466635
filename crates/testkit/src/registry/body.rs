//! Bodies that end early, crawl or break, and connections that can be reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Parts in which a body is sent.
const PART: usize = 64 << 10;
/// Pause between the parts of a body that crawls.
const TICK: Duration = Duration::from_millis(100);

/// Pause before a body that ends early does so.
const BEFORE_END: Duration = Duration::from_millis(50);

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Whole,
    /// The connection closes after this many bytes.
    Close(u64),
    /// The connection is reset after this many bytes.
    Reset(u64),
    /// Nothing comes after this many bytes.
    Never(u64),
}

/// A body that may misbehave.
pub(super) struct FaultyBody {
    left: Bytes,
    end: End,
    per_tick: Option<usize>,
    pause: Option<Pin<Box<Sleep>>>,
    sent: Arc<AtomicU64>,
    line: Arc<Line>,
}

impl FaultyBody {
    pub(super) fn new(left: Bytes, sent: Arc<AtomicU64>, line: Arc<Line>) -> Self {
        Self {
            left,
            end: End::Whole,
            per_tick: None,
            pause: None,
            sent,
            line,
        }
    }

    pub(super) fn ending(self, end: End) -> Self {
        Self { end, ..self }
    }

    pub(super) fn crawling(self, bytes_per_second: u64) -> Self {
        let per_tick = usize::try_from(bytes_per_second / 10).unwrap_or(PART).max(1);
        Self {
            per_tick: Some(per_tick),
            ..self
        }
    }
}

impl Body for FaultyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        let allowed = match self.end {
            End::Whole => u64::MAX,
            End::Close(after) | End::Reset(after) | End::Never(after) => after.saturating_sub(sent),
        };
        if allowed == 0 && matches!(self.end, End::Never(_)) {
            // Nobody wakes it: the client closes the connection.
            return Poll::Pending;
        }
        if allowed == 0 {
            self.line
                .reset
                .store(matches!(self.end, End::Reset(_)), Ordering::Relaxed);
            return Poll::Ready(Some(Err(io::Error::other("this is where the body ends"))));
        }
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let part = self.per_tick.unwrap_or(PART).min(self.left.len());
        let part = part.min(usize::try_from(allowed).unwrap_or(usize::MAX));
        let part = self.left.split_to(part);
        self.sent.fetch_add(part.len() as u64, Ordering::Relaxed);
        // The bytes before the end must leave, and be read, before the connection goes: a reset discards them.
        if part.len() as u64 == allowed {
            self.pause = Some(Box::pin(tokio::time::sleep(BEFORE_END)));
        } else if self.per_tick.is_some() {
            self.pause = Some(Box::pin(tokio::time::sleep(TICK)));
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// One connection, as the code that answers sees it.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Whether it is to end with a reset.
    pub(super) reset: AtomicBool,
}

/// A socket that is reset instead of closed when its [`Line`] says so.
pub(super) struct Socket {
    stream: TcpStream,
    line: Arc<Line>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, line: Arc<Line>) -> Self {
        Self { stream, line }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.line.reset.load(Ordering::Relaxed) {
            // Closing a socket that may not linger sends RST.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.line.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
