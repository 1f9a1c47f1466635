//! From calls to operations, and from errors to gRPC's status codes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::api::{
    CleanupRequest, CommitRequest, Empty, InfoResponse, KeyRequest, Kind, ListRequest, ListResponse,
    MountsResponse, PrepareRequest, SERVICE, UpdateRequest, UsageResponse,
};
use crate::error::{ErrorKind, SnapshotError};
use crate::lazy::LazyImages;
use crate::snapshotter::Snapshotter;

/// Snapshots in one message of a list, as containerd's own service has it.
const LISTED_AT_ONCE: usize = 100;
/// Longest request, in bytes: many times what labels of the allowed size take.
const LONGEST_REQUEST: usize = 4 << 20;

type Answer<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// Answers one call.
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
/// What it does is a task of its own: a client that gives up waiting leaves no operation half done.
async fn unary<Q, A, F, W>(request: hyper::Request<Incoming>, work: W) -> hyper::Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: Future<Output = Result<A, SnapshotError>> + Send + 'static,
    W: FnOnce(Q) -> F + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(LONGEST_REQUEST);
    grpc.unary(Once(Some(work)), request).await
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
    let mut grpc = Grpc::new(codec).max_decoding_message_size(LONGEST_REQUEST);
    grpc.server_streaming(List(snapshotter), request).await
}

struct List<L>(Arc<Snapshotter<L>>);

impl<L: LazyImages> ServerStreamingService<ListRequest> for List<L> {
    type Response = ListResponse;
    type ResponseStream = Blocks;
    type Future = Answer<Blocks>;

    fn call(&mut self, request: Request<ListRequest>) -> Answer<Blocks> {
        let snapshotter = self.0.clone();
        Box::pin(async move {
            let listed = snapshotter.list(request.into_inner().filters).await;
            let listed = listed.map_err(|error| status(&error))?;
            Ok(Response::new(Blocks(listed.into_iter())))
        })
    }
}

/// A list in messages of some snapshots each.
struct Blocks(std::vec::IntoIter<crate::api::Info>);

impl tokio_stream::Stream for Blocks {
    type Item = Result<ListResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let info: Vec<_> = self.0.by_ref().take(LISTED_AT_ONCE).collect();
        Poll::Ready((!info.is_empty()).then_some(Ok(ListResponse { info })))
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
