//! Kubernetes' image service between a kubelet and a containerd that is made up.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use xebec_snapshotter::image_service::{ImageService, Login, Logins, SERVICE, Ticket};

use crate::fake::{Client, Host};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::{Code, Status};

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, Message)]
struct Auth {
    #[prost(string, tag = "1")]
    username: String,
    #[prost(string, tag = "2")]
    password: String,
}

/// With a field that the service does not know.
#[derive(Clone, PartialEq, Message)]
struct Pull {
    #[prost(message, optional, tag = "1")]
    image: Option<Spec>,
    #[prost(message, optional, tag = "2")]
    auth: Option<Auth>,
    #[prost(string, tag = "99")]
    other: String,
}

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// Logins in memory, and each change of them.
#[derive(Default)]
struct Kept {
    tried: Mutex<Vec<(String, Option<Login>)>>,
    now: Mutex<HashMap<String, Login>>,
    history: Mutex<Vec<String>>,
}

impl Kept {
    fn say(&self, what: &str, image: &str, login: Option<&Login>) {
        let name = login.map_or("nobody", |login| &login.username);
        self.history.lock().push(format!("{what} {image} {name}"));
    }
}

impl Logins for Kept {
    fn begin(&self, image: &str, login: Option<&Login>) -> Result<Ticket, String> {
        if image.contains("full-disk") {
            return Err("no space".to_owned());
        }
        self.say("begin", image, login);
        let mut tried = self.tried.lock();
        tried.push((image.to_owned(), login.cloned()));
        Ok(Ticket(tried.len() as u64 - 1))
    }

    fn end(&self, ticket: Ticket, has_worked: bool) -> Result<(), String> {
        let (image, login) = self.tried.lock()[usize::try_from(ticket.0).unwrap()].clone();
        self.say(
            if has_worked { "worked" } else { "failed" },
            &image,
            login.as_ref(),
        );
        let mut now = self.now.lock();
        match login {
            _ if !has_worked => {}
            Some(login) => drop(now.insert(image, login)),
            None => drop(now.remove(&image)),
        }
        Ok(())
    }
}

/// Says back what it was sent; refuses passwords that are wrong.
async fn containerd(request: Request<Incoming>) -> Result<hyper::Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    assert_eq!(request.headers()["x-of-the-kubelet"], "kept");
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    if path.ends_with("Missing") {
        return Ok(Status::unimplemented("no such call").into_http());
    }
    let mut trailers = hyper::HeaderMap::new();
    let pull = Pull::decode(&bytes[5..]).unwrap();
    if pull.other == "slow" {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let is_wrong = pull.auth.as_ref().is_some_and(|auth| auth.password == "wrong");
    trailers.insert("grpc-status", if is_wrong { "7" } else { "0" }.parse().unwrap());
    let answer = Text {
        text: format!("{path} {} {}", pull.image.unwrap_or_default().image, pull.other),
    };
    let mut framed = vec![0];
    framed.extend(u32::try_from(answer.encoded_len()).unwrap().to_be_bytes());
    framed.extend(answer.encode_to_vec());
    let body = http_body_util::Full::new(hyper::body::Bytes::from(framed));
    let body = Body::new(body.with_trailers(async move { Some(Ok(trailers)) }));
    let mut response = hyper::Response::new(body);
    response
        .headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    Ok(response)
}

fn start_containerd(socket: &Path) -> tokio::task::JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service_fn(containerd)),
            );
        }
    })
}

struct Node {
    host: Host,
    kept: Arc<Kept>,
    socket: PathBuf,
    containerd: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn start() -> Self {
        let mut host = Host::start().await;
        let socket = host.root().join("containerd.sock");
        let containerd = start_containerd(&socket);
        let kept = Arc::new(Kept::default());
        host.stop().await;
        host.image_service = Some(Arc::new(ImageService::new(&socket, kept.clone())));
        host.restart().await;
        Self {
            host,
            kept,
            socket,
            containerd,
        }
    }

    async fn pull(&self, image: &str, user: &str, password: &str) -> Result<Text, Code> {
        let auth = (!user.is_empty()).then(|| Auth {
            username: user.to_owned(),
            password: password.to_owned(),
        });
        let request = Pull {
            image: Some(Spec {
                image: image.to_owned(),
            }),
            auth,
            other: "more".to_owned(),
        };
        let mut client = self.client().await;
        client.call_of(SERVICE, "PullImage", request).await
    }

    fn history(&self) -> String {
        self.kept.history.lock().join(", ")
    }

    async fn client(&self) -> Client {
        let mut client = self.host.connect().await;
        client.header = Some(("x-of-the-kubelet", "kept"));
        client
    }

    fn user(&self, image: &str) -> Option<String> {
        let now = self.kept.now.lock();
        now.get(image).map(|login| login.username.clone())
    }
}

#[tokio::test]
async fn a_pull_goes_on_as_it_came_and_its_login_is_kept() {
    let node = Node::start().await;
    let answer = node
        .pull("registry.example/app:1", "robot", "right")
        .await
        .unwrap();
    assert_eq!(
        answer.text,
        "/runtime.v1.ImageService/PullImage registry.example/app:1 more"
    );
    assert_eq!(node.user("registry.example/app:1").as_deref(), Some("robot"));
    // One without a login forgets it: the image is public now.
    node.pull("registry.example/app:1", "", "").await.unwrap();
    assert_eq!(node.user("registry.example/app:1"), None);
}

#[tokio::test]
async fn a_login_that_is_refused_gives_way_to_the_one_before() {
    let node = Node::start().await;
    let image = "registry.example/app:1";
    node.pull(image, "robot", "right").await.unwrap();
    assert_eq!(
        node.pull(image, "thief", "wrong").await,
        Err(Code::PermissionDenied)
    );
    assert_eq!(node.user(image).as_deref(), Some("robot"));
    let history = node.kept.history.lock().join(", ");
    assert_eq!(
        history,
        format!("begin {image} robot, worked {image} robot, begin {image} thief, failed {image} thief"),
        "it is there while the pull is under way"
    );
}

#[tokio::test]
async fn a_kubelet_that_gives_up_leaves_no_login_untold() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let request = Pull {
        image: Some(Spec {
            image: "app".to_owned(),
        }),
        auth: Some(Auth {
            username: "thief".to_owned(),
            password: "wrong".to_owned(),
        }),
        other: "slow".to_owned(),
    };
    let mut call = tokio::spawn(async move {
        let answer: Result<Text, Code> = client.call_of(SERVICE, "PullImage", request).await;
        answer
    });
    while !node.history().contains("begin app thief") {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        assert!(!call.is_finished());
    }
    call.abort();
    let _ = (&mut call).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !node.history().contains("failed app thief") {
        assert!(std::time::Instant::now() < deadline, "{}", node.history());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(node.user("app"), None);
}

#[tokio::test]
async fn a_login_that_cannot_be_kept_stops_no_pull() {
    let node = Node::start().await;
    assert!(
        node.pull("registry.example/full-disk", "robot", "right")
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn other_calls_and_the_snapshots_beside_them() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let answer: Text = client
        .call_of(SERVICE, "ListImages", Pull::default())
        .await
        .unwrap();
    assert!(answer.text.contains("ListImages"), "{}", answer.text);
    let missing: Result<Text, Code> = client.call_of(SERVICE, "Missing", Pull::default()).await;
    assert_eq!(missing, Err(Code::Unimplemented));
    assert!(client.list(&[]).await.unwrap().is_empty());
    let elsewhere: Result<Text, Code> = client
        .call_of("runtime.v1.RuntimeService", "Version", Pull::default())
        .await;
    assert_eq!(elsewhere, Err(Code::Unimplemented));
}

#[tokio::test]
async fn a_containerd_that_is_away_is_said_and_comes_back() {
    let node = Node::start().await;
    node.containerd.abort();
    let _ = node.containerd.await;
    std::fs::remove_file(&node.socket).unwrap();
    let node = Node {
        containerd: tokio::spawn(async {}),
        ..node
    };
    let image = "registry.example/app:1";
    assert_eq!(node.pull(image, "robot", "right").await, Err(Code::Unavailable));
    assert_eq!(node.user(image), None, "a login of a pull that never was");
    let _containerd = start_containerd(&node.socket);
    assert!(node.pull(image, "robot", "right").await.is_ok());
    assert_eq!(node.user(image).as_deref(), Some("robot"));
}
