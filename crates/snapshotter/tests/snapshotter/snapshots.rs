//! The service as a client of gRPC meets it, with lazy images that are made up.

use xebec_snapshotter::api::{
    CommitRequest, Empty, FieldMask, Info, InfoResponse, KeyRequest, ListRequest, MountsResponse,
    PrepareRequest, UpdateRequest, UsageResponse,
};

use crate::fake::{Client, Host, image_labels};
use tonic::Code;

pub(crate) async fn mounts(
    client: &mut Client,
    method: &str,
    key: &str,
    parent: &str,
) -> Result<MountsResponse, Code> {
    let request = PrepareRequest {
        key: key.to_owned(),
        parent: parent.to_owned(),
        ..PrepareRequest::default()
    };
    client.call(method, request).await
}

pub(crate) async fn pull(client: &mut Client, image: &str, depth: usize) -> Result<MountsResponse, Code> {
    let request = PrepareRequest {
        key: format!("default/{depth}/extract-{image}"),
        parent: match depth {
            1 => String::new(),
            _ => format!("chain-{image}-{}", depth - 1),
        },
        labels: image_labels(image, depth),
        ..PrepareRequest::default()
    };
    client.call("Prepare", request).await
}

pub(crate) async fn commit(client: &mut Client, key: &str, name: &str) -> Result<Empty, Code> {
    let request = CommitRequest {
        key: key.to_owned(),
        name: name.to_owned(),
        ..CommitRequest::default()
    };
    client.call("Commit", request).await
}

pub(crate) fn of(key: &str) -> KeyRequest {
    KeyRequest {
        key: key.to_owned(),
        ..KeyRequest::default()
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_served_is_refused() {
    let mut host = Host::start().await;
    host.stop().await;
    host.listen();
    let mut client = host.connect().await;
    host.fail_to_open("the disk is full");
    assert_eq!(
        mounts(&mut client, "Prepare", "a", "").await,
        Err(Code::Unavailable)
    );
    // It is tried again, and the same connection then serves.
    host.open().await;
    mounts(&mut client, "Prepare", "a", "").await.unwrap();
    host.stop().await;
}

#[tokio::test]
async fn calls_wait_until_the_store_is_open() {
    let mut host = Host::start().await;
    host.stop().await;
    host.listen();
    let mut client = host.connect().await;
    let prepared = tokio::spawn(async move { mounts(&mut client, "Prepare", "a", "").await });
    tokio::task::yield_now().await;
    host.open().await;
    prepared.await.unwrap().unwrap();
    host.stop().await;
}

#[tokio::test]
async fn a_snapshots_life() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let made = mounts(&mut client, "Prepare", "a", "").await.unwrap();
    let mount = &made.mounts[0];
    assert_eq!(
        (mount.r#type.as_str(), mount.options.join(" ")),
        ("bind", "rw rbind".into())
    );
    std::fs::write(format!("{}/file", mount.source), vec![1; 10_000]).unwrap();
    assert_eq!(
        mounts(&mut client, "Prepare", "a", "").await,
        Err(Code::AlreadyExists)
    );
    assert_eq!(
        mounts(&mut client, "View", "a", "").await,
        Err(Code::AlreadyExists)
    );
    assert_eq!(
        mounts(&mut client, "View", "b", "a").await,
        Err(Code::InvalidArgument)
    );
    assert_eq!(
        mounts(&mut client, "View", "b", "nothing").await,
        Err(Code::NotFound)
    );
    assert_eq!(
        mounts(&mut client, "View", "", "").await,
        Err(Code::InvalidArgument)
    );
    commit(&mut client, "a", "base").await.unwrap();
    assert_eq!(commit(&mut client, "a", "other").await, Err(Code::NotFound));
    let usage: UsageResponse = client.call("Usage", of("base")).await.unwrap();
    assert!(usage.inodes == 2 && usage.size >= 10_000, "{usage:?}");
    assert_eq!(
        client.call::<_, MountsResponse>("Mounts", of("base")).await,
        Err(Code::FailedPrecondition)
    );
    mounts(&mut client, "View", "v", "base").await.unwrap();
    assert_eq!(commit(&mut client, "v", "x").await, Err(Code::FailedPrecondition));
    let made = mounts(&mut client, "Prepare", "run", "base").await.unwrap();
    assert_eq!(made.mounts[0].r#type, "overlay");
    let again: MountsResponse = client.call("Mounts", of("run")).await.unwrap();
    assert_eq!(again, made);
    assert_eq!(
        client.call::<_, Empty>("Remove", of("base")).await,
        Err(Code::FailedPrecondition)
    );
    for key in ["run", "v", "base"] {
        client.call::<_, Empty>("Remove", of(key)).await.unwrap();
        assert_eq!(
            client.call::<_, InfoResponse>("Stat", of(key)).await,
            Err(Code::NotFound)
        );
    }
    client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
    assert_eq!(host.directories(), 0);
    assert_eq!(
        client.call::<_, Empty>("Nonsense", of("")).await,
        Err(Code::Unimplemented)
    );
}

#[tokio::test]
async fn labels_and_lists() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    for number in 0..250 {
        mounts(&mut client, "Prepare", &format!("key-{number}"), "")
            .await
            .unwrap();
    }
    assert_eq!(client.list(&[]).await.unwrap().len(), 250);
    assert_eq!(client.list(&["name~=^key-1..$"]).await.unwrap().len(), 100);
    assert_eq!(client.list(&["name=="]).await, Err(Code::InvalidArgument));
    let update = |labels: &[(&str, &str)], fields: &[&str]| UpdateRequest {
        info: Some(Info {
            name: "key-7".to_owned(),
            parent: "another".to_owned(),
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Info::default()
        }),
        update_mask: Some(FieldMask {
            paths: fields.iter().map(|field| (*field).to_owned()).collect(),
        }),
        ..UpdateRequest::default()
    };
    let mut labels = async |request| {
        let updated: InfoResponse = client.call("Update", request).await?;
        let info = updated.info.unwrap();
        assert_eq!(info.parent, "");
        assert!(info.updated_at > info.created_at);
        let mut labels: Vec<String> = info
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        labels.sort();
        Ok::<_, Code>(labels.join(" "))
    };
    assert_eq!(
        labels(update(&[("a", "1"), ("b", "2")], &[])).await.unwrap(),
        "a=1 b=2"
    );
    assert_eq!(
        labels(update(&[("a", "3"), ("c", "4")], &["labels.a", "labels.b"]))
            .await
            .unwrap(),
        "a=3"
    );
    assert_eq!(labels(update(&[("d", "5")], &["labels"])).await.unwrap(), "d=5");
    assert_eq!(labels(update(&[], &["parent"])).await, Err(Code::InvalidArgument));
    let long = "x".repeat(5000);
    assert_eq!(
        labels(update(&[("d", &long)], &[])).await,
        Err(Code::InvalidArgument)
    );
}

#[tokio::test]
async fn a_view_that_cannot_be_shown_leaves_nothing() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    assert_eq!(pull(&mut client, "broken", 1).await, Err(Code::AlreadyExists));
    assert_eq!(
        mounts(&mut client, "Prepare", "run", "chain-broken-1").await,
        Err(Code::Unavailable)
    );
    assert_eq!(
        client.call::<_, InfoResponse>("Stat", of("run")).await,
        Err(Code::NotFound)
    );
    assert!(host.held().is_empty());
    assert_eq!(host.directories(), 0);
}

#[tokio::test]
async fn many_at_once() {
    let host = Host::start().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let mut client = host.connect().await;
        tasks.spawn(async move {
            // Everybody pulls the same image, and runs it by a key that two want.
            for depth in 1..=3 {
                assert_eq!(pull(&mut client, "lazy", depth).await, Err(Code::AlreadyExists));
            }
            mounts(
                &mut client,
                "Prepare",
                &format!("run-{}", number / 2),
                "chain-lazy-3",
            )
            .await
        });
    }
    let results = tasks.join_all().await;
    let made = results.iter().filter(|result| result.is_ok()).count();
    let refused = results
        .iter()
        .filter(|result| **result == Err(Code::AlreadyExists));
    assert_eq!((made, refused.count()), (8, 8));
    assert_eq!(host.offers(), 3);
    assert_eq!(host.held().len(), 8);
}

#[tokio::test]
async fn a_restart_takes_away_what_nobody_has() {
    let mut host = Host::start().await;
    let mut client = host.connect().await;
    assert_eq!(pull(&mut client, "lazy", 1).await, Err(Code::AlreadyExists));
    mounts(&mut client, "Prepare", "run", "chain-lazy-1")
        .await
        .unwrap();
    let kept = mounts(&mut client, "Prepare", "own", "").await.unwrap();
    drop(client);
    host.stop().await;
    std::fs::create_dir(host.root().join("u/zzz")).unwrap();
    std::fs::remove_dir(&kept.mounts[0].source).unwrap();
    host.hold("a stranger's");
    host.restart().await;
    assert_eq!(host.held(), ["run"]);
    assert!(!host.root().join("u/zzz").exists());
    let mut client = host.connect().await;
    host.hold("a later stranger's");
    client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
    assert_eq!(host.held(), ["run"]);
    let again: MountsResponse = client.call("Mounts", of("own")).await.unwrap();
    assert_eq!(again, kept);
    assert!(std::fs::exists(&kept.mounts[0].source).unwrap());
    let request = ListRequest::default();
    assert!(request.filters.is_empty());
    assert_eq!(client.list(&["kind==active"]).await.unwrap().len(), 2);
}
