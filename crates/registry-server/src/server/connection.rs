//! One connection: TLS, HTTP/1.1 or HTTP/2, and its end.
//!
//! A connection without a request under way is closed after a time, whatever it was for: a client that begins a handshake, a head or
//! nothing at all holds it no longer than that. With one under way it stays as long as bytes move.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::activity::Activity;
use super::moving::Moving;
use super::request;
use super::shared::Shared;

/// Requests of one connection at a time, by HTTP/2.
const MAX_STREAMS: u32 = 128;
/// The bytes that a client may send by one request, and by all, before the server has read them.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// The bytes of one answer that are written before the client has taken them.
const SEND_BUFFER: usize = 256 << 10;
/// A client on HTTP/2 that does not answer a ping in this time is gone.
const PING_TIME: Duration = Duration::from_secs(30);

/// A connection on which nothing is under way when the server ends has this time to begin or to take the last bytes.
const LAST_MOMENT: Duration = Duration::from_secs(10);

/// Answers the requests of a connection until it ends.
pub(super) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    ending: watch::Receiver<bool>,
) {
    // Heads and small bodies go out at once.
    let _ = stream.set_nodelay(true);
    let stream = Moving::new(stream, shared.settings.limits.idle);
    match tls {
        None => exchange(shared, stream, peer, ending).await,
        Some(acceptor) => {
            let handshake = tokio::time::timeout(shared.settings.limits.header_time, acceptor.accept(stream));
            match handshake.await {
                Ok(Ok(stream)) => exchange(shared, stream, peer, ending).await,
                Ok(Err(error)) => tracing::debug!(%peer, "TLS handshake: {error}"),
                Err(_) => shared.registry.metrics.refused("slow_handshake"),
            }
        }
    }
}

fn builder(shared: &Shared) -> auto::Builder<TokioExecutor> {
    let limits = &shared.settings.limits;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.keep_alive)
        .max_buf_size(limits.header_size.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_TIME)
        .keep_alive_timeout(PING_TIME);
    builder
}

async fn exchange(
    shared: Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    mut ending: watch::Receiver<bool>,
) {
    let activity = Arc::new(Activity::default());
    let service = service_fn({
        let (shared, activity) = (shared.clone(), activity.clone());
        move |incoming| request::serve(shared.clone(), peer, activity.begin(), incoming)
    });
    let builder = builder(&shared);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let limits = &shared.settings.limits;
    // The first head must come sooner than later ones.
    let mut deadline = Instant::now() + limits.header_time;
    let mut is_ending = false;
    loop {
        tokio::select! {
            done = connection.as_mut() => {
                // Clients break connections too; that is no failure of the server.
                if let Err(error) = done {
                    tracing::debug!(%peer, "connection: {error}");
                }
                return;
            }
            changed = ending.changed(), if !is_ending => {
                is_ending = true;
                if changed.is_err() || *ending.borrow() {
                    connection.as_mut().graceful_shutdown();
                    deadline = Instant::now() + LAST_MOMENT;
                }
            }
            () = activity.ended() => {
                let rest = if is_ending { LAST_MOMENT } else { limits.keep_alive };
                deadline = Instant::now() + rest;
            }
            () = tokio::time::sleep_until(deadline) => {
                if activity.is_idle() {
                    return;
                }
                // It ends later, and the end of its requests sets another time.
                deadline = Instant::now() + limits.keep_alive;
            }
        }
    }
}
