//! The client of containerd's services, with a containerd that is made up.

use std::convert::Infallible;
use std::path::Path;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::{Code, Status};
use xebec_snapshotter::containerd::containers::{Container, SERVICE};
use xebec_snapshotter::containerd::{Containerd, ContainerdError};

#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Told {
    #[prost(message, optional, tag = "1")]
    container: Option<Container>,
}

/// A container for each filter, which has the namespace for its image, then nothing, then a status.
async fn answer(request: Request<Incoming>) -> Result<hyper::Response<Body>, Infallible> {
    if request.uri().path() != format!("/{SERVICE}/ListStream") {
        return Ok(Status::unimplemented(request.uri().path()).into_http());
    }
    let namespace = request.headers()["containerd-namespace"]
        .to_str()
        .unwrap()
        .to_owned();
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    let asked = Asked::decode(&bytes[5..]).unwrap();
    let containers = asked.filters.iter().map(|filter| {
        Some(Container {
            id: filter.clone(),
            image: namespace.clone(),
            ..Container::default()
        })
    });
    let mut framed = Vec::new();
    for container in containers.chain([None]) {
        let told = Told { container };
        framed.push(0);
        framed.extend(u32::try_from(told.encoded_len()).unwrap().to_be_bytes());
        framed.extend(told.encode_to_vec());
    }
    let mut trailers = hyper::HeaderMap::new();
    let is_known = namespace != "nowhere";
    trailers.insert("grpc-status", if is_known { "0" } else { "5" }.parse().unwrap());
    trailers.insert("grpc-message", "no such namespace".parse().unwrap());
    let body = http_body_util::Full::new(Bytes::from(framed));
    let mut response = hyper::Response::new(Body::new(body.with_trailers(async move { Some(Ok(trailers)) })));
    let kind = "application/grpc".parse().unwrap();
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

fn serve(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}

async fn listed(socket: &Path, namespace: &str) -> Result<Vec<Container>, ContainerdError> {
    let containerd = Containerd::connect(socket, namespace).await?;
    let mut containers = containerd
        .containers(&["id==a".to_owned(), "id==b".to_owned()])
        .await?;
    let mut all = Vec::new();
    while let Some(container) = containers.next().await? {
        all.push(container);
    }
    Ok(all)
}

#[tokio::test]
async fn containers_of_a_namespace_and_what_goes_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("containerd.sock");
    let away = listed(&socket, "k8s.io").await.unwrap_err();
    assert!(away.to_string().contains("containerd.sock"), "{away}");
    assert_eq!(away.code(), None);
    serve(&socket);
    let all = listed(&socket, "k8s.io").await.unwrap();
    let told: Vec<_> = all
        .iter()
        .map(|one| (one.id.as_str(), one.image.as_str()))
        .collect();
    assert_eq!(told, [("id==a", "k8s.io"), ("id==b", "k8s.io")]);
    let unknown = listed(&socket, "nowhere").await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::NotFound));
    assert!(unknown.to_string().contains("no such namespace"), "{unknown}");
    let missing: Result<Asked, _> = Containerd::connect(&socket, "k8s.io")
        .await
        .unwrap()
        .call(SERVICE, "Missing", Asked::default())
        .await;
    assert_eq!(missing.unwrap_err().code(), Some(Code::Unimplemented));
    assert!(listed(&socket, "no\nname").await.is_err());
}
