//! The client of containerd's services, with a containerd that is made up.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use xebec_snapshotter::api::{Empty, MountsResponse};
use xebec_snapshotter::containerd::containers::{Container, SERVICE};
use xebec_snapshotter::containerd::owners::Owners;
use xebec_snapshotter::containerd::{Containerd, ContainerdError};

use crate::fake::{Client, Host};
use crate::snapshots::{mounts, of, pull};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::{Code, Status};

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

/// Containers by name, each with a snapshot and an image; asked without a filter, all of them.
const CONTAINERS: [(&str, &str, &str, &str); 7] = [
    ("web", "web", "registry/app:1", ""),
    ("mine", "mine-snapshot", "registry/lazy@unproven", ""),
    ("other", "other", "registry/other:2", ""),
    // One key, in two snapshotters.
    ("twin", "twin", "registry/app:1", "overlayfs"),
    ("twin's", "twin", "registry/lazy@unproven", "xebec"),
    ("slow", "slow", "registry/app@slow", "xebec"),
    ("stuck", "stuck", "registry/app:1", "xebec"),
];

/// The containers that a containerd with [`CONTAINERS`] lists for a filter.
fn known(filter: Option<&str>) -> Vec<Option<Container>> {
    let all = CONTAINERS
        .into_iter()
        .filter(|(id, ..)| filter.is_none_or(|filter| filter == format!("id==\"{id}\"")));
    all.map(|(id, snapshot, image, snapshotter)| {
        Some(Container {
            id: id.to_owned(),
            snapshot_key: snapshot.to_owned(),
            image: image.to_owned(),
            snapshotter: snapshotter.to_owned(),
            ..Container::default()
        })
    })
    .collect()
}

/// A container for each filter, which has the namespace for its image, then nothing, then a status; in the namespace "run"
/// those that there are.
async fn answer(request: Request<Incoming>) -> Result<hyper::Response<Body>, Infallible> {
    if request.uri().path().ends_with("Images/Get") {
        return Ok(Status::not_found("no such image").into_http());
    }
    if request.uri().path() != format!("/{SERVICE}/ListStream") {
        return Ok(Status::unimplemented(request.uri().path()).into_http());
    }
    let namespace = request.headers()["containerd-namespace"]
        .to_str()
        .unwrap()
        .to_owned();
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    let asked = Asked::decode(&bytes[5..]).unwrap();
    let mut containers: Vec<Option<Container>> = match namespace.as_str() {
        "run" => known(asked.filters.first().map(String::as_str)),
        _ => {
            let echo = |filter: &String| Container {
                id: filter.clone(),
                image: namespace.clone(),
                ..Container::default()
            };
            asked.filters.iter().map(|filter| Some(echo(filter))).collect()
        }
    };
    containers.push(None);
    let mut framed = Vec::new();
    for container in containers {
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

#[tokio::test]
async fn containers_are_shown_what_their_own_image_vouches_for() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("containerd.sock");
    let mut host = Host::start().await;
    host.stop().await;
    host.owners = Some(Owners::at(socket.clone()));
    host.restart().await;
    let mut client = host.connect().await;
    for image in ["lazy", "signed"] {
        assert_eq!(pull(&mut client, image, 1).await, Err(Code::AlreadyExists));
    }
    // Nobody answers: only layers that hold for any name are shown.
    for (name, on) in [
        ("web", "lazy"),
        ("mine-snapshot", "lazy"),
        ("early", "lazy"),
        ("other", "signed"),
    ] {
        let key = format!("run/7/{name}");
        mounts(&mut client, "Prepare", &key, &format!("chain-{on}-1"))
            .await
            .unwrap();
        let told = told(&mut client, name).await;
        let is_told = told.is_ok() || told == Err(Code::Unavailable);
        assert!(is_told && told.is_ok() == (on == "signed"), "{name}: {told:?}");
    }
    serve(&socket);
    let last = |host: &Host| host.shown().last().cloned().unwrap();
    // Not a container yet, one of another image's name, and one whose image nobody vouches for.
    told(&mut client, "early").await.unwrap();
    assert_eq!(last(&host), "registry/lazy:1");
    told(&mut client, "web").await.unwrap();
    assert_eq!(last(&host), "registry/app:1");
    assert_eq!(
        told(&mut client, "mine-snapshot").await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(last(&host), "registry/app:1");
    // The snapshot's owner stays on record.
    host.stop().await;
    host.owners = None;
    host.restart().await;
    let mut client = host.connect().await;
    told(&mut client, "web").await.unwrap();
    assert_eq!(last(&host), "registry/app:1");
}

async fn told(client: &mut Client, name: &str) -> Result<MountsResponse, Code> {
    client.call("Mounts", of(&format!("run/7/{name}"))).await
}

/// A host that asks the containerd that is made up, and a lazy image in it.
async fn asking(directory: &Path) -> (Host, Client) {
    let socket = directory.join("containerd.sock");
    serve(&socket);
    let mut host = Host::start().await;
    host.stop().await;
    host.owners = Some(Owners::at(socket));
    host.restart().await;
    let mut client = host.connect().await;
    assert_eq!(pull(&mut client, "lazy", 1).await, Err(Code::AlreadyExists));
    for name in ["twin", "slow", "stuck"] {
        let key = format!("run/7/{name}");
        mounts(&mut client, "Prepare", &key, "chain-lazy-1")
            .await
            .unwrap();
    }
    (host, client)
}

#[tokio::test]
async fn a_key_in_two_snapshotters() {
    let directory = tempfile::tempdir().unwrap();
    let (_host, mut client) = asking(directory.path()).await;
    assert_eq!(told(&mut client, "twin").await, Err(Code::FailedPrecondition));
}

#[tokio::test]
async fn nobody_goes_on_with_a_view_that_is_not_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let (host, mut client) = asking(directory.path()).await;
    let before = host.shown();
    for _ in 0..2 {
        assert_eq!(told(&mut client, "stuck").await, Err(Code::Internal));
    }
    assert_eq!(host.shown(), before);
}

#[tokio::test]
async fn a_removal_does_not_wait_for_other_requests_for_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let (host, mut client) = asking(directory.path()).await;
    let mut other = host.connect().await;
    let asked = tokio::spawn(async move { told(&mut other, "slow").await });
    host.is_asked.notified().await;
    let removed = client.call::<_, Empty>("Remove", of("run/7/slow"));
    let removed = tokio::time::timeout(Duration::from_secs(10), removed).await;
    removed.unwrap().unwrap();
    host.answer.notify_one();
    assert_eq!(asked.await.unwrap(), Err(Code::NotFound));
    assert!(!host.held().contains(&"run/7/slow".to_owned()));
}
