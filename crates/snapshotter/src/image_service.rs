//! Kubernetes' image service, passed on to containerd, for one thing that is said there and nowhere else: the name and
//! password with which a pod's image is pulled.
//!
//! containerd tells a snapshotter nothing of them, and a lazy image is read for as long as it runs. So the kubelet is told
//! that its image service (`--image-service-endpoint`) is here; every call goes to containerd as it came and its answer
//! back, and the implementer of [`Logins`] keeps the login of `PullImage`. It is told before the call goes on, since
//! the pull itself asks for lazy layers, and kept if the pull works. A kubelet that gives up waiting changes nothing
//! of that: the pull is a task of its own.
//!
//! Source: `runtime.v1.ImageService` in `k8s.io/cri-api` (`PullImageRequest`, `AuthConfig`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tracing::warn;

use crate::api::LONGEST_MESSAGE;
use crate::containerd::{Channel, ContainerdError};

/// The service's name, the first part of each call's path.
pub const SERVICE: &str = "runtime.v1.ImageService";
/// The call that carries a login.
const PULL: &str = "/runtime.v1.ImageService/PullImage";
/// The length of a message's head: one byte says whether the message is compressed, four give its length.
const FRAME: usize = 5;
/// Longest request and answer of that call, in bytes.
const LONGEST_FRAME: usize = FRAME + LONGEST_MESSAGE;

/// A login, in the forms in which Kubernetes has it. Empty where it does not say.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
    /// Both, as `base64(name:password)`.
    pub auth: String,
    /// An OAuth refresh token.
    pub identity_token: String,
    /// A bearer token.
    pub registry_token: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of it may reach a log.
        f.write_str("Login(…)")
    }
}

/// The part of the daemon that keeps logins.
pub trait Logins: Send + Sync + 'static {
    /// An image is pulled with this login, or with none. Until the pull is over, which of its layers can be lazy is found out
    /// with it, and nobody else uses it.
    ///
    /// # Errors
    /// For the log: why it cannot be kept.
    fn begin(&self, image: &str, login: Option<&Login>) -> Result<Ticket, String>;

    /// The pull is over. If it worked, its login is everybody's from now on; if not, it is nobody's.
    ///
    /// # Errors
    /// For the log: why that cannot be kept.
    fn end(&self, ticket: Ticket, has_worked: bool) -> Result<(), String>;
}

/// A pull that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The way to containerd's image service.
pub struct ImageService {
    containerd: PathBuf,
    logins: Arc<dyn Logins>,
}

/// `runtime.v1.PullImageRequest`, as far as it matters here.
#[derive(Clone, PartialEq, prost::Message)]
struct PullImageRequest {
    #[prost(message, optional, tag = "1")]
    image: Option<ImageSpec>,
    #[prost(message, optional, tag = "2")]
    auth: Option<AuthConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
struct AuthConfig {
    #[prost(string, tag = "1")]
    username: String,
    #[prost(string, tag = "2")]
    password: String,
    #[prost(string, tag = "3")]
    auth: String,
    #[prost(string, tag = "5")]
    identity_token: String,
    #[prost(string, tag = "6")]
    registry_token: String,
}

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthConfig(…)")
    }
}

impl From<AuthConfig> for Login {
    fn from(auth: AuthConfig) -> Self {
        Self {
            username: auth.username,
            password: auth.password,
            auth: auth.auth,
            identity_token: auth.identity_token,
            registry_token: auth.registry_token,
        }
    }
}

impl ImageService {
    /// Passes calls on to containerd at this socket.
    pub fn new(containerd: &Path, logins: Arc<dyn Logins>) -> Self {
        Self {
            containerd: containerd.to_owned(),
            logins,
        }
    }

    /// Whether a call is for this service.
    pub(crate) fn is_for(path: &str) -> bool {
        path.strip_prefix('/')
            .and_then(|path| path.strip_prefix(SERVICE))
            .is_some_and(|method| method.starts_with('/'))
    }

    /// Answers one call, with containerd's answer.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let answered = match request.uri().path() == PULL {
            true => {
                let pull = tokio::spawn(self.pull(request)).await;
                pull.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
            }
            false => self.pass_on(request.map(Body::new)).await,
        };
        answered.unwrap_or_else(Status::into_http)
    }

    async fn pull(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, LONGEST_FRAME).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Status::resource_exhausted(format!("the request: {error}")),
            false => Status::invalid_argument(format!("the request: {error}")),
        })?;
        let trailers = body.trailers().cloned();
        let bytes = body.to_bytes();
        let logins = self.logins.clone();
        let begun = pulled(&bytes)
            .map(|(image, login)| tokio::task::spawn_blocking(move || logins.begin(&image, login.as_ref())));
        let ticket = match begun {
            Some(begun) => match begun.await.map_err(|error| error.to_string()).flatten() {
                Ok(ticket) => Some(ticket),
                Err(error) => {
                    warn!("cannot keep the login of a pull, so lazy layers may not be readable: {error}");
                    None
                }
            },
            None => None,
        };
        let answer = self
            .pass_on_whole(Request::from_parts(head, whole(bytes, trailers)))
            .await;
        let has_worked = answer.as_ref().is_ok_and(|(has_worked, _)| *has_worked);
        if let Some(ticket) = ticket {
            let logins = self.logins.clone();
            let ended = tokio::task::spawn_blocking(move || logins.end(ticket, has_worked));
            if let Err(error) = ended.await.map_err(|error| error.to_string()).flatten() {
                warn!("cannot keep the login of a pull: {error}");
            }
        }
        answer.map(|(_, answer)| answer)
    }

    /// Passes a call on and waits for all of the answer; whether that says that it worked.
    async fn pass_on_whole(&self, request: Request<Body>) -> Result<(bool, Response<Body>), Status> {
        let (head, body) = self.pass_on(request).await?.into_parts();
        let body = Limited::new(body, LONGEST_FRAME).collect().await;
        let body = body.map_err(|error| Status::unavailable(format!("containerd's answer: {error}")))?;
        let trailers = body.trailers().cloned();
        let has_worked = is_ok(trailers.as_ref()).or_else(|| is_ok(Some(&head.headers)));
        let answer = Response::from_parts(head, whole(body.to_bytes(), trailers));
        Ok((has_worked == Some(true), answer))
    }

    async fn pass_on(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let away = |error: ContainerdError| Status::unavailable(error.to_string());
        let mut channel = Channel::connect(&self.containerd).await.map_err(away)?;
        let answer = channel.send(request).await.map_err(|error| {
            Status::unavailable(format!("containerd at {}: {error}", self.containerd.display()))
        })?;
        Ok(answer.map(Body::new))
    }
}

/// The image that is pulled, and the login, if the request says so.
fn pulled(bytes: &Bytes) -> Option<(String, Option<Login>)> {
    let (flag, message) = (bytes.first()?, bytes.get(FRAME..)?);
    if *flag != 0 {
        warn!("the kubelet compresses its requests, so Xebec cannot learn the logins of its pulls");
        return None;
    }
    let request = PullImageRequest::decode(message).ok()?;
    let image = request.image?.image;
    let login = request
        .auth
        .map(Login::from)
        .filter(|login| *login != Login::default());
    (!image.is_empty()).then_some((image, login))
}

fn is_ok(headers: Option<&HeaderMap>) -> Option<bool> {
    let status = headers?.get("grpc-status")?;
    Some(status.as_bytes() == b"0")
}

fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Body {
    let body = http_body_util::Full::new(bytes);
    match trailers {
        // An error that is all in the headers has to end with them: Go's clients take what comes after for a stream without
        // an end, and do not tell the error.
        None => Body::new(body),
        Some(trailers) => Body::new(body.with_trailers(async move { Some(Ok(trailers)) })),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use hyper::body::Body as _;

    use super::*;

    #[tokio::test]
    async fn an_error_ends_with_its_headers() {
        assert!(whole(Bytes::new(), None).is_end_stream());
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let answer = whole(Bytes::from_static(b"answer"), Some(trailers.clone()));
        assert!(!answer.is_end_stream());
        let answer = answer.collect().await.unwrap();
        assert_eq!(answer.trailers(), Some(&trailers));
        assert_eq!(answer.to_bytes(), "answer");
    }
}
