//! A connection that must move: a client that takes nothing of its answer for too long is cut off.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream whose writes fail when nothing could be written for a while. Reads wait for ever: what a client sends, and when, is
/// limited where it is known what is waited for.
pub(crate) struct Moving<S> {
    stream: S,
    longest: Duration,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> Moving<S> {
    pub(crate) fn new(stream: S, longest: Duration) -> Self {
        Self {
            stream,
            longest,
            alarm: None,
        }
    }

    /// Passes on what a write came to, and watches the time while it waits.
    fn watched<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.alarm = None;
            return outcome;
        }
        let longest = self.longest;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        match alarm.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Moving<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watched(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut_off() {
        let (near, mut far) = tokio::io::duplex(10);
        let mut near = Moving::new(near, Duration::from_secs(60));
        near.write_all(&[0; 10]).await.unwrap();
        let writer = tokio::spawn(async move { near.write_all(&[0; 20]).await });
        // It takes a little each time, so that it may be as slow as that.
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            far.read_exact(&mut [0; 5]).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(writer.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
