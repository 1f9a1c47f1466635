//! The socket. Calls of the snapshots service are answered here, and those of Kubernetes' image service passed on, if that
//! is wanted.
//!
//! It is served before the store is open, and when that fails too: a client that waits for an answer is told why there is none.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use tracing::{debug, warn};

use crate::image_service::ImageService;
use crate::lazy::LazyImages;
use crate::service;
use crate::snapshotter::Snapshotter;

/// How many calls of one connection are under way at most. containerd has one for everything, so calls that wait for a
/// registry must leave room for those that wait for nobody.
const CALLS_AT_ONCE: u32 = 10_000;
/// How long accepting pauses when it fails, as it does when descriptors run out.
const PAUSE: Duration = Duration::from_millis(100);

/// The snapshotter that is served.
pub enum Opened<L> {
    /// Not yet; calls wait.
    Opening,
    /// It could not be opened, and why; calls are answered by [`Code::Unavailable`](tonic::Code::Unavailable).
    Failed(String),
    /// This one.
    Open(Arc<Snapshotter<L>>),
}

/// Serves clients that connect, with `images` Kubernetes' image service, too, until `stop` says so. Then it finishes calls under way and
/// closes connections.
pub async fn serve<L: LazyImages>(
    listener: UnixListener,
    snapshotter: watch::Receiver<Opened<L>>,
    images: Option<Arc<ImageService>>,
    mut stop: watch::Receiver<bool>,
) {
    let is_over = stop.clone();
    let conversation = |stream| converse(stream, snapshotter.clone(), images.clone(), is_over.clone());
    let mut connections = accept(&listener, "the snapshotter", &mut stop, conversation).await;
    while connections.join_next().await.is_some() {}
}

/// Has a conversation with each process of this user that connects, until `stop` says so; gives those that go on. A client that prepares
/// snapshots says what is mounted, and pulls with the logins that are kept. `to` is for messages.
pub(crate) async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: &UnixListener,
    to: &str,
    stop: &mut watch::Receiver<bool>,
    conversation: impl Fn(UnixStream) -> F,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = told(stop) => return connections,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if !is_of_this_user(&stream) => {}
                Ok((stream, _)) => {
                    connections.spawn(conversation(stream));
                }
                Err(error) => {
                    warn!("cannot accept a connection to {to}: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Whether the user at the other end is the one of this process: a client that may ask may mount, and has the logins, and the
/// permissions of a socket may have been changed.
pub fn is_of_this_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own => true,
        Ok(peer) => {
            debug!(user = peer.uid(), "refuses a connection of another user");
            false
        }
        Err(error) => {
            debug!(%error, "refuses a connection: its process is unknown");
            false
        }
    }
}

async fn converse<L: LazyImages>(
    stream: UnixStream,
    snapshotter: watch::Receiver<Opened<L>>,
    images: Option<Arc<ImageService>>,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (snapshotter, images) = (snapshotter.clone(), images.clone());
        let images = images.filter(|_| ImageService::is_for(request.uri().path()));
        async move {
            match images {
                Some(images) => Ok(images.answer(request).await),
                None => answer(snapshotter, request).await,
            }
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_AT_ONCE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = told(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!("a connection to the snapshotter ended: {error}");
    }
}

async fn answer<L: LazyImages>(
    mut snapshotter: watch::Receiver<Opened<L>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Body>, Infallible> {
    let is_settled = |opened: &Opened<L>| !matches!(opened, Opened::Opening);
    let opened = match snapshotter.wait_for(is_settled).await.as_deref() {
        Ok(Opened::Open(snapshotter)) => Ok(snapshotter.clone()),
        Ok(Opened::Failed(problem)) => Err(problem.clone()),
        Ok(Opened::Opening) | Err(_) => Err("the daemon ends".to_owned()),
    };
    match opened {
        Ok(snapshotter) => service::answer(snapshotter, request).await,
        Err(problem) => Ok(Status::unavailable(problem).into_http()),
    }
}

/// Waits until it is told to stop, or nobody is left who could tell.
pub(crate) async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|is_over| *is_over).await;
}
