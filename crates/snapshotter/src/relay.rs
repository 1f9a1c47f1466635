//! Between Docker Engine and containerd, for the blobs of lazy layers, which containerd does not have.
//!
//! Docker asks containerd for a layer's blob when an image is saved, pushed or built on, and leaves out silently what is not
//! there (`docker save`). Nobody but containerd itself can answer for its content store, and it does not ask anybody. So this
//! passes every call on to containerd as it came, and its answer back, and looks at these:
//!
//! * `Content/Info` of a blob that containerd lacks, and that a lazy snapshot of the same namespace stands for, is answered from
//!   the image's manifest: it is there, with that length. Nothing is fetched, so lists of images cost nothing, and a push may
//!   have the registry mount it from the repository that it is from.
//! * `Content/Read`, `Diff/Apply` and `Leases/AddResource` bring it first: [`Blobs`] fetches it, and containerd compares its
//!   digest. If that fails, so does the call, with the cause.
//! * Docker leases what it is about to save, and by the same calls what it has of an image before it pulls it anew. So what it
//!   leases under its own lease comes when `Content/Info` asks for it again and a save is what it does (`leased`).
//!
//! Each connection has one of its own to containerd, and neither outlives the other, so that a client sees containerd go as it
//! would without this.
//!
//! Source: `api/services/{content,leases,diff}/v1` in containerd; `daemon/containerd/image_exporter.go` in Docker
//! (`leaseContent`) and `core/images/archive/exporter.go` (`WithSkipMissing`).

mod blob_call;
mod known;
mod leased;
mod missing;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tracing::{debug, warn};

use crate::api::LONGEST_MESSAGE;
use crate::server::{accept, told};
use blob_call::{ADD_RESOURCE, APPLY, Asked, FRAME, message_of, text};
use leased::Leased;
pub use missing::{Blobs, MissingBlob};
use missing::{InfoResponse, Missing};

const INFO: &str = "/containerd.services.content.v1.Content/Info";
const READ: &str = "/containerd.services.content.v1.Content/Read";
const END_LEASE: &str = "/containerd.services.leases.v1.Leases/Delete";
/// By these a save looks the image up that it is about to write.
const LOOK_UP: [&str; 2] = [
    "/containerd.services.images.v1.Images/Get",
    "/containerd.services.images.v1.Images/List",
];
/// By these a pull or a load writes what is new.
const WRITE: [&str; 3] = [
    "/containerd.services.content.v1.Content/Write",
    "/containerd.services.images.v1.Images/Create",
    "/containerd.services.images.v1.Images/Update",
];
/// After these there may be other lazy layers.
const CHANGE: [&str; 5] = [
    "/containerd.services.snapshots.v1.Snapshots/Prepare",
    "/containerd.services.snapshots.v1.Snapshots/Commit",
    "/containerd.services.snapshots.v1.Snapshots/Remove",
    "/containerd.services.images.v1.Images/Delete",
    END_LEASE,
];
/// The status "not found" of gRPC.
const NOT_FOUND: &[u8] = b"5";
/// How long calls under way may take when the relay ends. Some never end: a client that listens to events waits for the next.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// How many calls of one connection are under way at most; one for each container that runs, and some.
const CALLS_AT_ONCE: u32 = 100_000;
/// How much of a stream may be under way, in bytes: layers of builds and pushes pass by here.
const WINDOW: u32 = 4 << 20;

/// The way to containerd.
pub struct Relay<B> {
    socket: PathBuf,
    missing: Missing<B>,
}

/// The beginning of a request that ends a lease.
#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRequest {
    #[prost(string, tag = "1")]
    id: String,
}

impl<B: Blobs> Relay<B> {
    /// To the containerd at this socket, in whose configuration the snapshotter has this name.
    pub fn new(socket: PathBuf, snapshotter: &str, blobs: B) -> Self {
        Self {
            missing: Missing::new(socket.clone(), snapshotter, blobs),
            socket,
        }
    }

    /// Serves clients that connect, until `stop` says so.
    pub async fn serve(self: Arc<Self>, listener: UnixListener, mut stop: watch::Receiver<bool>) {
        let is_over = stop.clone();
        let conversation = |stream| self.clone().converse(stream, is_over.clone());
        let mut connections = accept(&listener, "containerd", &mut stop, conversation).await;
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_CALLS, all).await;
    }

    async fn converse(self: Arc<Self>, stream: UnixStream, mut stop: watch::Receiver<bool>) {
        let there = match UnixStream::connect(&self.socket).await {
            Ok(there) => there,
            // The connection ends, as one to containerd would.
            Err(error) => return warn!("containerd at {}: {error}", self.socket.display()),
        };
        let mut builder = client::Builder::new(TokioExecutor::new());
        builder
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * 4);
        let (sender, mut upstream) = match builder.handshake(TokioIo::new(there)).await {
            Ok(made) => made,
            Err(error) => return warn!("containerd at {}: {error}", self.socket.display()),
        };
        let leased = Arc::new(Leased::default());
        let service = service_fn(move |request: Request<Incoming>| {
            let (relay, sender, leased) = (self.clone(), sender.clone(), leased.clone());
            async move { Ok::<_, Infallible>(relay.answer(sender, request, &leased).await) }
        });
        let connection = server::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * 4)
            .max_concurrent_streams(CALLS_AT_ONCE)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            ended = &mut upstream => ended,
            () = told(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = &mut connection => ended,
                    ended = &mut upstream => ended,
                }
            }
        };
        if let Err(error) = ended {
            debug!("a connection to containerd ended: {error}");
        }
    }

    async fn answer(
        self: Arc<Self>,
        mut sender: client::SendRequest<Body>,
        request: Request<Incoming>,
        leased: &Leased,
    ) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if let Some((namespace, lease)) = under(request.headers()) {
            match path.as_str() {
                path if LOOK_UP.contains(&path) => leased.looked_up(&namespace, &lease),
                path if WRITE.contains(&path) => leased.forget(&namespace, &lease),
                _ => {}
            }
        }
        if ![INFO, READ, ADD_RESOURCE, APPLY, END_LEASE].contains(&path.as_str()) {
            let answer = pass_on(&mut sender, request.map(Body::new)).await;
            if CHANGE.contains(&path.as_str()) {
                self.missing.known().changed();
            }
            return answer;
        }
        let (head, body) = request.into_parts();
        let trailers;
        let bytes = match Limited::new(body, FRAME + LONGEST_MESSAGE).collect().await {
            Ok(body) => {
                trailers = body.trailers().cloned();
                body.to_bytes()
            }
            Err(error) => return Status::invalid_argument(format!("the request: {error}")).into_http(),
        };
        let again = || Request::from_parts(head.clone(), whole(bytes.clone(), trailers.clone()));
        if path == END_LEASE {
            end_lease(leased, &head.headers, &bytes);
            let answer = pass_on(&mut sender, again()).await;
            self.missing.known().changed();
            return answer;
        }
        let asked = Asked::of(&path, &head.headers, &bytes);
        // These calls do not say whether the blob is there.
        if let Some(asked) = asked.as_ref().filter(|asked| asked.is_ahead) {
            let is_later = path == ADD_RESOURCE && asked.is_put_under_own_lease(&head.headers, leased);
            if !is_later && let Err(status) = self.missing.bring(asked, true).await {
                return status.into_http();
            }
            return pass_on(&mut sender, again()).await;
        }
        let answer = pass_on(&mut sender, again()).await;
        let Some(asked) = asked.filter(|_| is_not_found(&answer)) else {
            return answer;
        };
        let is_described = path == INFO && !asked.is_saved(leased);
        match self.make_up_for(&asked, is_described).await {
            Ok(MadeUp::Described(info)) => framed(&info),
            Ok(MadeUp::Brought) => pass_on(&mut sender, again()).await,
            Ok(MadeUp::Nothing) => answer,
            Err(status) => status.into_http(),
        }
    }

    /// Describes or brings a blob that containerd lacks.
    async fn make_up_for(&self, asked: &Asked, is_described: bool) -> Result<MadeUp, Status> {
        if is_described {
            let info = self.missing.info(asked).await?;
            return Ok(info.map_or(MadeUp::Nothing, MadeUp::Described));
        }
        match self.missing.bring(asked, false).await? {
            true => Ok(MadeUp::Brought),
            false => Ok(MadeUp::Nothing),
        }
    }
}

/// The step that was taken about a blob that containerd lacks.
enum MadeUp {
    /// The blob is not a lazy layer's.
    Nothing,
    /// It is described, and stays away.
    Described(InfoResponse),
    /// containerd has it now.
    Brought,
}

/// In which namespace and under which lease a call is made.
fn under(headers: &HeaderMap) -> Option<(String, String)> {
    Some((
        text(headers, "containerd-namespace")?,
        text(headers, "containerd-lease")?,
    ))
}

fn end_lease(leased: &Leased, headers: &HeaderMap, bytes: &Bytes) {
    let namespace = text(headers, "containerd-namespace");
    let lease = message_of(bytes).and_then(|message| DeleteRequest::decode(message).ok());
    if let (Some(namespace), Some(lease)) = (namespace, lease) {
        leased.forget(&namespace, &lease.id);
    }
}

async fn pass_on(sender: &mut client::SendRequest<Body>, request: Request<Body>) -> Response<Body> {
    match sender.send_request(request).await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => Status::unavailable(format!("containerd: {error}")).into_http(),
    }
}

/// Whether nothing but that was answered.
fn is_not_found(answer: &Response<Body>) -> bool {
    let status = answer.headers().get("grpc-status");
    status.is_some_and(|status| status.as_bytes() == NOT_FOUND)
}

fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    Body::new(Full::new(bytes).with_trailers(async move { trailers.map(Ok) }))
}

/// An answer of one message, which went well.
fn framed(message: &impl Message) -> Response<Body> {
    let encoded = message.encode_to_vec();
    let length = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
    let bytes = [&[0][..], &length.to_be_bytes(), &encoded].concat();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
    let mut answer = Response::new(whole(bytes.into(), Some(trailers)));
    answer.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/grpc"),
    );
    answer
}
