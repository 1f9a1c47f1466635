//! From calls to operations, and from errors to gRPC's status codes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use prost::Message;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::api::{
    CleanupRequest, CommitRequest, Empty, InfoResponse, KeyRequest, Kind, LONGEST_MESSAGE, ListRequest,
    ListResponse, MountsResponse, PrepareRequest, SERVICE, UpdateRequest, UsageResponse,
};
use crate::error::{ErrorKind, SnapshotError};
use crate::filters::Filters;
use crate::lazy::LazyImages;
use crate::snapshotter::Snapshotter;

/// Where an answer without a message has its status.
const STATUS: &str = "grpc-status";

type Answer<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// Answers one call. One function, since it is a list of the service's methods, and only passes each call on.
pub(crate) async fn answer<L: LazyImages>(
    snapshotter: Arc<Snapshotter<L>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let method = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(SERVICE))
        .and_then(|method| method.strip_prefix('/'));
    let s = snapshotter;
    let answer = match method {
        Some("Prepare") => unary(request, async move |r| prepare(&s, Kind::Active, r).await).await,
        Some("View") => unary(request, async move |r| prepare(&s, Kind::View, r).await).await,
        Some("Mounts") => {
            unary(request, async move |r: KeyRequest| {
                let mounts = s.mounts(r.key).await?;
                Ok(MountsResponse { mounts })
            })
            .await
        }
        Some("Commit") => {
            unary(request, async move |r: CommitRequest| {
                s.commit(r.name, r.key, r.labels, r.parent).await?;
                Ok(Empty {})
            })
            .await
        }
        Some("Remove") => {
            unary(request, async move |r: KeyRequest| {
                s.remove(r.key).await?;
                Ok(Empty {})
            })
            .await
        }
        Some("Stat") => {
            unary(request, async move |r: KeyRequest| {
                let info = Some(s.stat(r.key).await?);
                Ok(InfoResponse { info })
            })
            .await
        }
        Some("Update") => {
            unary(request, async move |r: UpdateRequest| {
                let info = r.info.unwrap_or_default();
                let fields = r.update_mask.unwrap_or_default().paths;
                let info = Some(s.update(info, fields).await?);
                Ok(InfoResponse { info })
            })
            .await
        }
        Some("List") => list(request, s).await,
        Some("Usage") => {
            unary(request, async move |r: KeyRequest| {
                let usage = s.usage(r.key).await?;
                Ok(UsageResponse {
                    size: i64::try_from(usage.bytes).unwrap_or(i64::MAX),
                    inodes: i64::try_from(usage.inodes).unwrap_or(i64::MAX),
                })
            })
            .await
        }
        Some("Cleanup") => {
            unary(request, async move |_: CleanupRequest| {
                s.cleanup().await?;
                Ok(Empty {})
            })
            .await
        }
        _ => Status::unimplemented(format!("{path} is not served here")).into_http(),
    };
    Ok(answer)
}

async fn prepare<L: LazyImages>(
    snapshotter: &Snapshotter<L>,
    kind: Kind,
    request: PrepareRequest,
) -> Result<MountsResponse, SnapshotError> {
    let PrepareRequest {
        key, parent, labels, ..
    } = request;
    let mounts = snapshotter.prepare(kind, key, parent, labels).await?;
    Ok(MountsResponse { mounts })
}

/// A call with one message each way.
///
/// The work is a task of its own: a client that gives up waiting leaves no operation half done.
async fn unary<Q, A, F, W>(request: hyper::Request<Incoming>, work: W) -> hyper::Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Future<Output = Result<A, SnapshotError>> + Send + 'static,
    W: FnOnce(Q) -> F + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(LONGEST_MESSAGE);
    as_usual(grpc.unary(Once(Some(work)), request).await)
}

/// Gives a message that is too long the status that containerd's services refuse it with; tonic has another one for that.
fn as_usual(mut answer: hyper::Response<Body>) -> hyper::Response<Body> {
    let status = |code: Code| HeaderValue::from(i32::from(code));
    let found = answer.headers_mut().get_mut(STATUS);
    if let Some(found) = found.filter(|found| **found == status(Code::OutOfRange)) {
        *found = status(Code::ResourceExhausted);
    }
    answer
}

struct Once<W>(Option<W>);

impl<Q, A, F, W> UnaryService<Q> for Once<W>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Future<Output = Result<A, SnapshotError>> + Send + 'static,
    W: FnOnce(Q) -> F + Send + 'static,
{
    type Response = A;
    type Future = Answer<A>;

    fn call(&mut self, request: Request<Q>) -> Answer<A> {
        let Some(work) = self.0.take() else {
            return Box::pin(async { Err(Status::internal("a call was made twice")) });
        };
        let done = tokio::spawn(work(request.into_inner()));
        Box::pin(async move {
            match done.await {
                Ok(Ok(answer)) => Ok(Response::new(answer)),
                Ok(Err(error)) => Err(status(&error)),
                Err(error) => Err(Status::internal(error.to_string())),
            }
        })
    }
}

async fn list<L: LazyImages>(
    request: hyper::Request<Incoming>,
    snapshotter: Arc<Snapshotter<L>>,
) -> hyper::Response<Body> {
    let codec = ProstCodec::<ListResponse, ListRequest>::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(LONGEST_MESSAGE);
    as_usual(grpc.server_streaming(List(snapshotter), request).await)
}

struct List<L>(Arc<Snapshotter<L>>);

impl<L: LazyImages> ServerStreamingService<ListRequest> for List<L> {
    type Response = ListResponse;
    type ResponseStream = Blocks;
    type Future = Answer<Blocks>;

    fn call(&mut self, request: Request<ListRequest>) -> Answer<Blocks> {
        let snapshotter = self.0.clone();
        Box::pin(async move {
            let filters = Filters::parse(&request.into_inner().filters);
            let filters = filters.map_err(|error| status(&error))?;
            // One that waits to be sent, and one that is made meanwhile.
            let (sender, blocks) = mpsc::channel(1);
            tokio::spawn(tell_all(snapshotter, Arc::new(filters), sender));
            Ok(Response::new(Blocks(blocks)))
        })
    }
}

/// Makes the messages of a list, until there are no more or nobody wants them.
async fn tell_all<L: LazyImages>(
    snapshotter: Arc<Snapshotter<L>>,
    filters: Arc<Filters>,
    blocks: mpsc::Sender<Result<ListResponse, Status>>,
) {
    let mut next = Some(String::new());
    while let Some(after) = next {
        let block = match snapshotter.list(&filters, after).await {
            Ok((info, after)) => {
                next = after;
                Ok(ListResponse { info })
            }
            Err(error) => {
                next = None;
                Err(status(&error))
            }
        };
        let is_empty = block.as_ref().is_ok_and(|block| block.info.is_empty());
        if !is_empty && blocks.send(block).await.is_err() {
            return;
        }
    }
}

/// A list in messages of some snapshots each.
struct Blocks(mpsc::Receiver<Result<ListResponse, Status>>);

impl tokio_stream::Stream for Blocks {
    type Item = Result<ListResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

fn status(error: &SnapshotError) -> Status {
    let code = match error.kind {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::FailedPrecondition => Code::FailedPrecondition,
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Internal => Code::Internal,
    };
    Status::new(code, &error.message)
}
