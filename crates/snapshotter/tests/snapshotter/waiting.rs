//! Registries that do not answer, and very many snapshots: a client that asks for something else does not wait for them.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Code;
use xebec_snapshotter::api::{
    Empty, Info, InfoResponse, MountsResponse, PrepareRequest, UpdateRequest, UsageResponse,
};

use crate::fake::{Client, Host, image_labels};
use crate::snapshots::{commit, mounts, of, pull};

/// How long calls may take that wait for nobody.
const SOON: Duration = Duration::from_secs(1);

/// Asks for everything that waits for no registry, in this order on one connection, as containerd would.
async fn ask_for_others(client: &mut Client, round: usize) {
    let call = async {
        assert!(client.list(&[]).await.unwrap().len() >= 5);
        let told: InfoResponse = client.call("Stat", of("chain-lazy-3")).await.unwrap();
        assert!(told.info.is_some());
        let told: MountsResponse = client.call("Mounts", of("run")).await.unwrap();
        assert_eq!(told.mounts.len(), 1);
        let _: UsageResponse = client.call("Usage", of("run")).await.unwrap();
        let (key, name) = (format!("other-{round}"), format!("kept-{round}"));
        mounts(client, "Prepare", &key, "chain-lazy-3").await.unwrap();
        let update = UpdateRequest {
            info: Some(Info {
                name: key.clone(),
                ..Info::default()
            }),
            ..UpdateRequest::default()
        };
        let _: InfoResponse = client.call("Update", update).await.unwrap();
        commit(client, &key, &name).await.unwrap();
        let _: Empty = client.call("Remove", of(&name)).await.unwrap();
        let _: Empty = client.call("Cleanup", of("")).await.unwrap();
        // Another image's layer, whose registry answers.
        assert_eq!(
            pull(client, &format!("lazy-{round}"), 1).await,
            Err(Code::AlreadyExists)
        );
    };
    let begun = Instant::now();
    tokio::time::timeout(SOON * 5, call).await.unwrap();
    println!("round {round}: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_request_that_hangs_on_a_registry_keeps_no_other_waiting() {
    const HANGING: usize = 300;
    let host = Host::start().await;
    let mut client = host.connect().await;
    for depth in 1..=3 {
        assert_eq!(pull(&mut client, "lazy", depth).await, Err(Code::AlreadyExists));
    }
    mounts(&mut client, "Prepare", "run", "chain-lazy-3")
        .await
        .unwrap();
    mounts(&mut client, "Prepare", "own", "").await.unwrap();
    let before = host.offers();
    let mut hanging = JoinSet::new();
    for number in 0..HANGING {
        let mut client = client.clone();
        // Every third wants what others want, and some will be told that nobody answered.
        let image = match number % 3 {
            0 => "hung".to_owned(),
            1 => format!("hung-{number}"),
            _ => format!("hung-unreachable-{number}"),
        };
        hanging.spawn(async move {
            let request = PrepareRequest {
                key: format!("extract-{number}"),
                labels: image_labels(&image, 1),
                ..PrepareRequest::default()
            };
            let answer: Result<MountsResponse, Code> = client.call("Prepare", request).await;
            (number, answer.map(|answer| answer.mounts.len()))
        });
    }
    // Of the requests for the same image, one asks.
    while host.offers() - before < 2 * (HANGING / 3) + 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(hanging.try_join_next().is_none());
    }
    for round in 0..3 {
        ask_for_others(&mut client, round).await;
    }
    assert!(hanging.try_join_next().is_none());
    assert_eq!(
        client.call::<_, InfoResponse>("Stat", of("extract-0")).await,
        Err(Code::NotFound)
    );

    host.answer_hung(HANGING);
    let ended = tokio::time::timeout(SOON * 30, hanging.join_all()).await.unwrap();
    assert_eq!(ended.len(), HANGING);
    for (number, answer) in ended {
        let expected = match number % 3 {
            2 => Ok(1),
            _ => Err(Code::AlreadyExists),
        };
        assert_eq!(answer, expected, "number {number}");
        if answer.is_ok() {
            let told: InfoResponse = client
                .call("Stat", of(&format!("extract-{number}")))
                .await
                .unwrap();
            let labels = told.info.unwrap().labels;
            assert!(labels["containerd.io/snapshot/xebec.unpacked-because"].starts_with("unreachable"));
        }
    }
    // The first of the requests for the same image was asked about, and the others found what it had made.
    assert_eq!(host.offers() - before, 2 * (HANGING / 3) + 1 + 3);
}

/// A list is made while it is read: of many snapshots some are in memory, and those that are gone when it comes to them are
/// not in it.
#[tokio::test]
async fn a_list_is_made_while_it_is_read() {
    const MANY: usize = 6000;
    let mut host = Host::start().await;
    host.fill(MANY).await;
    let mut client = host.connect().await;
    let mut list = client.list_slowly(&[]).await.unwrap();
    let mut listed = list.message().await.unwrap().unwrap().info;
    assert_eq!(listed.len(), 100);
    // However long the client takes, no more is made than it has room for.
    tokio::time::sleep(SOON / 4).await;
    let last = format!("many-{:06}", MANY - 1);
    let _: Empty = client.call("Remove", of(&last)).await.unwrap();
    while let Some(block) = list.message().await.unwrap() {
        assert!(block.info.len() <= 100);
        listed.extend(block.info);
    }
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert!(names.is_sorted());
    assert_eq!(
        names.len(),
        MANY - 1,
        "{last} was removed before the list came to it"
    );
    // A client that stops reading keeps nobody.
    let mut list = client.list_slowly(&[]).await.unwrap();
    list.message().await.unwrap();
    drop(list);
    assert_eq!(client.list(&["name~=0$"]).await.unwrap().len(), MANY / 10);
}

/// The time of single operations does not depend on how many snapshots there are. Nor does, in any way that matters, the time to find
/// one by its chain, as a pull of a lazy layer does.
#[tokio::test]
async fn twenty_thousand() {
    let mut host = Host::start().await;
    let few = single_operations(&mut host.connect().await, "few").await;
    host.fill(20_000).await;
    let mut client = host.connect().await;
    let many = single_operations(&mut client, "many").await;
    println!("{few:?} with few, {many:?} with 20,000");
    assert!(
        many < few * 10 + Duration::from_millis(20),
        "{few:?}, then {many:?}"
    );
    let begun = Instant::now();
    let filter = "labels.\"containerd.io/snapshot.ref\"==chain-many-007777-1,parent==\"\"";
    let found = client.list(&[filter]).await.unwrap();
    assert_eq!(found[0].name, "many-007777");
    println!("one found in {:?}", begun.elapsed());
    assert!(begun.elapsed() < SOON);
    assert_eq!(host.figures().committed_lazy, 20_000);
}

/// The median of what a snapshot's life takes.
async fn single_operations(client: &mut Client, prefix: &str) -> Duration {
    let mut took = Vec::new();
    for number in 0..15 {
        let begun = Instant::now();
        let (key, name) = (format!("{prefix}-{number}"), format!("kept-{prefix}-{number}"));
        mounts(client, "Prepare", &key, "").await.unwrap();
        let _: InfoResponse = client.call("Stat", of(&key)).await.unwrap();
        let _: UsageResponse = client.call("Usage", of(&key)).await.unwrap();
        commit(client, &key, &name).await.unwrap();
        let _: Empty = client.call("Remove", of(&name)).await.unwrap();
        took.push(begun.elapsed());
    }
    took.sort();
    took[took.len() / 2]
}
