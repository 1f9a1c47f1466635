//! A client of containerd's own services, at its socket.
//!
//! Messages are written out by hand like those that are served here ([`crate::api`]); each service has a file beside this
//! one. A client speaks for one namespace of containerd, on one connection, which ends with it.

pub mod containers;
pub mod content;
pub mod diff;
pub mod images;
pub mod ingest;
pub mod leases;
pub mod owners;
pub mod snapshots;

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::api::LONGEST_MESSAGE;

/// The header that says which namespace a call is about.
const NAMESPACE: &str = "containerd-namespace";
/// The header that says which lease keeps what a call makes.
const LEASE: &str = "containerd-lease";

/// Why containerd did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// Nobody speaks gRPC there.
    #[error("containerd cannot be reached at {}: {reason}", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The reason why it cannot be reached.
        reason: String,
    },
    /// It answered, and refused.
    #[error("containerd refuses {call}: {message} ({code:?})")]
    Refused {
        /// Service and method.
        call: String,
        /// gRPC's word for it.
        code: Code,
        /// containerd's.
        message: String,
    },
    /// It cannot be asked that.
    #[error("{namespace:?} is no name of a namespace of containerd")]
    Namespace {
        /// The name.
        namespace: String,
    },
    /// It cannot be asked for that.
    #[error("{lease:?} is no name of a lease of containerd")]
    Lease {
        /// The name.
        lease: String,
    },
}

impl ContainerdError {
    /// The code of containerd's refusal, if it answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Unreachable { .. } | Self::Namespace { .. } | Self::Lease { .. } => None,
        }
    }

    /// Whether containerd knows nothing by that name.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }
}

/// One namespace of a containerd.
#[derive(Clone)]
pub struct Containerd {
    channel: Channel,
    namespace: MetadataValue<Ascii>,
    lease: Option<MetadataValue<Ascii>>,
}

impl fmt::Debug for Containerd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Containerd({:?})", self.namespace)
    }
}

impl Containerd {
    /// Connects to the containerd at this socket, for one of its namespaces.
    ///
    /// # Errors
    /// When nobody answers there, or that cannot be a namespace's name.
    pub async fn connect(socket: &Path, namespace: &str) -> Result<Self, ContainerdError> {
        let refused = |_| ContainerdError::Namespace {
            namespace: namespace.to_owned(),
        };
        let namespace = namespace.parse().map_err(refused)?;
        let channel = Channel::connect(socket).await?;
        Ok(Self {
            channel,
            namespace,
            lease: None,
        })
    }

    /// A call with one answer.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn call<Q, A>(&self, service: &str, method: &str, asked: Q) -> Result<A, ContainerdError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = Call::new(service, method)?;
        let mut grpc = self.grpc(&call).await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(self.request(asked), call.path.clone(), codec).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| call.refused(&status))
    }

    /// A call with as many answers as there are, of which the last may be a refusal: see [`Answers::next`].
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn answers<Q, A>(
        &self,
        service: &str,
        method: &str,
        asked: Q,
    ) -> Result<Answers<A>, ContainerdError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = Call::new(service, method)?;
        let mut grpc = self.grpc(&call).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = call.path.clone();
        Answers::of(
            call,
            grpc.server_streaming(self.request(asked), path, codec).await,
        )
    }

    /// A call with questions and answers as they come. The first question must be there.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn exchange<Q, A>(
        &self,
        service: &str,
        method: &str,
        asked: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Answers<A>, ContainerdError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = Call::new(service, method)?;
        let mut grpc = self.grpc(&call).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = call.path.clone();
        Answers::of(call, grpc.streaming(self.request(asked), path, codec).await)
    }

    /// The client that makes a call.
    async fn grpc(&self, call: &Call) -> Result<Grpc<Channel>, ContainerdError> {
        let origin = Uri::from_static("http://localhost");
        let grpc = Grpc::with_origin(self.channel.clone(), origin);
        let mut grpc = grpc.max_decoding_message_size(LONGEST_MESSAGE);
        let ready = grpc.ready().await;
        ready.map_err(|error| call.refused(&Status::unavailable(error.to_string())))?;
        Ok(grpc)
    }

    /// A message with the name of the namespace.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(NAMESPACE, self.namespace.clone());
        if let Some(lease) = &self.lease {
            request.metadata_mut().insert(LEASE, lease.clone());
        }
        request
    }
}

/// Answers that come one by one.
pub struct Answers<A> {
    stream: Streaming<A>,
    call: Call,
}

impl<A> Answers<A> {
    fn of(call: Call, answered: Result<Response<Streaming<A>>, Status>) -> Result<Self, ContainerdError> {
        match answered {
            Ok(stream) => Ok(Self {
                stream: stream.into_inner(),
                call,
            }),
            Err(status) => Err(call.refused(&status)),
        }
    }

    /// The next one; `None` after the last.
    ///
    /// # Errors
    /// When containerd cannot go on, or has gone.
    pub async fn next(&mut self) -> Result<Option<A>, ContainerdError> {
        let next = self.stream.message().await;
        next.map_err(|status| self.call.refused(&status))
    }

    /// The error that there was no answer where one belongs.
    pub(crate) fn ended(&self) -> ContainerdError {
        self.call
            .refused(&Status::unavailable("it ended without an answer"))
    }
}

/// A method of a service.
struct Call {
    name: String,
    path: hyper::http::uri::PathAndQuery,
}

impl Call {
    fn new(service: &str, method: &str) -> Result<Self, ContainerdError> {
        let name = format!("{service}/{method}");
        match format!("/{name}").parse() {
            Ok(path) => Ok(Self { name, path }),
            Err(error) => Err(ContainerdError::Refused {
                call: name,
                code: Code::Unimplemented,
                message: error.to_string(),
            }),
        }
    }

    fn refused(&self, status: &Status) -> ContainerdError {
        ContainerdError::Refused {
            call: self.name.clone(),
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

/// One connection to a server of gRPC at a Unix socket. It ends when nobody has it any more and what was asked is answered.
#[derive(Clone)]
pub(crate) struct Channel(SendRequest<Body>);

impl Channel {
    pub(crate) async fn connect(socket: &Path) -> Result<Self, ContainerdError> {
        let away = |error: &dyn fmt::Display| ContainerdError::Unreachable {
            socket: socket.to_owned(),
            reason: error.to_string(),
        };
        let stream = UnixStream::connect(socket).await.map_err(|error| away(&error))?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| away(&error))?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Passes a request on as it is.
    pub(crate) async fn send(
        &mut self,
        request: hyper::Request<Body>,
    ) -> hyper::Result<hyper::Response<Incoming>> {
        self.0.send_request(request).await
    }
}

impl GrpcService<Body> for Channel {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<hyper::Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
