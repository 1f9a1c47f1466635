//! The layers that are taken without being fetched, and for which image, and the reasons for the others.

use std::time::Duration;

use xebec_snapshotter::api::{Empty, InfoResponse, Kind, MountsResponse, PrepareRequest, UsageResponse};
use xebec_snapshotter::lazy::Shown;

use crate::fake::{Host, image_labels};
use crate::snapshots::{commit, mounts, of, pull};
use tonic::Code;

#[tokio::test]
async fn lazy_layers_are_not_unpacked() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    for depth in 1..=3 {
        assert_eq!(pull(&mut client, "lazy", depth).await, Err(Code::AlreadyExists));
        // As a second client would.
        assert_eq!(pull(&mut client, "lazy", depth).await, Err(Code::AlreadyExists));
    }
    // containerd looks for it in this way.
    let filter = "labels.\"containerd.io/snapshot.ref\"==chain-lazy-2,parent==\"chain-lazy-1\"";
    let found = client.list(&[filter]).await.unwrap();
    assert_eq!(
        (found[0].name.as_str(), found[0].kind()),
        ("chain-lazy-2", Kind::Committed)
    );
    assert_eq!(found.len(), 1);
    assert_eq!(host.offers(), 3);
    let usage: UsageResponse = client.call("Usage", of("chain-lazy-2")).await.unwrap();
    assert_eq!((usage.size, usage.inodes), (4096, 0));

    let made = mounts(&mut client, "Prepare", "run", "chain-lazy-3")
        .await
        .unwrap();
    let lower = host.lower(&made);
    assert_eq!(lower.len(), 1);
    assert_eq!(std::fs::read_link(&lower[0]).unwrap(), host.view("lazy", 3));
    assert_eq!(host.held(), ["run"]);
    // A view that is only read is bound as it is.
    let look = mounts(&mut client, "View", "look", "chain-lazy-2").await.unwrap();
    assert_eq!(look.mounts[0].source, host.view("lazy", 2).display().to_string());

    // The files that a container wrote become a layer of their own, and the view stays below.
    commit(&mut client, "run", "mine").await.unwrap();
    assert_eq!(host.held(), ["look"]);
    let made = mounts(&mut client, "Prepare", "again", "mine").await.unwrap();
    assert_eq!(host.lower(&made).len(), 2);
    for key in [
        "again",
        "look",
        "mine",
        "chain-lazy-3",
        "chain-lazy-2",
        "chain-lazy-1",
    ] {
        client.call::<_, Empty>("Remove", of(key)).await.unwrap();
    }
    assert!(host.held().is_empty());
    client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
    assert_eq!(host.directories(), 0);
}

#[tokio::test]
async fn what_removed_snapshots_showed_is_let_go() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    for depth in 1..=2 {
        assert_eq!(pull(&mut client, "lazy", depth).await, Err(Code::AlreadyExists));
    }
    assert_eq!(pull(&mut client, "half", 1).await, Err(Code::AlreadyExists));
    let mut cleans_up = async |keys: &[&str]| {
        for key in keys {
            client.call::<_, Empty>("Remove", of(key)).await.unwrap();
        }
        client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
        host.let_go()
    };
    let shown = |kept: &[(&str, u32)], gone: &[&str]| Shown {
        kept: kept
            .iter()
            .map(|(name, depth)| ((*name).to_owned(), *depth))
            .collect(),
        // The lowest has number one.
        chains: kept
            .iter()
            .flat_map(|(name, depth)| {
                let image = name.trim_start_matches("manifest-");
                (1..=*depth).map(move |depth| format!("chain-{image}-{depth}"))
            })
            .collect(),
        gone: gone.iter().map(|name| (*name).to_owned()).collect(),
        ..Shown::default()
    };
    // Removals by an earlier process with this store are unknown, so all is looked at once.
    let all = [("manifest-half", 1), ("manifest-lazy", 2)];
    assert_eq!(cleans_up(&[]).await, [shown(&all, &[])]);
    assert_eq!(cleans_up(&[]).await, []);
    // In part.
    let left = [("manifest-half", 1), ("manifest-lazy", 1)];
    assert_eq!(
        cleans_up(&["chain-lazy-2"]).await,
        [shown(&left, &["manifest-lazy"])]
    );
    let left = [("manifest-half", 1)];
    assert_eq!(
        cleans_up(&["chain-lazy-1"]).await,
        [shown(&left, &["manifest-lazy"])]
    );
    assert_eq!(
        cleans_up(&["chain-half-1"]).await,
        [shown(&[], &["manifest-half"])]
    );
}

/// A kubelet looks at the disk as soon as it is answered, and evicts pods if there is no more room.
#[tokio::test]
async fn what_is_in_use_for_a_moment_is_let_go_before_the_answer() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    assert_eq!(pull(&mut client, "half", 1).await, Err(Code::AlreadyExists));
    client
        .call::<_, Empty>("Remove", of("chain-half-1"))
        .await
        .unwrap();
    host.use_when_let_go(2);
    client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
    let asked = host.let_go();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(
        asked.iter().all(|shown| shown.gone.contains("manifest-half")),
        "{asked:?}"
    );
    // A layer that stays in use keeps nobody from an answer, and is asked for again.
    assert_eq!(pull(&mut client, "half", 1).await, Err(Code::AlreadyExists));
    client
        .call::<_, Empty>("Remove", of("chain-half-1"))
        .await
        .unwrap();
    host.use_when_let_go(usize::MAX);
    client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
    host.use_when_let_go(0);
    assert!(host.let_go().len() > 1);
    client.call::<_, Empty>("Cleanup", of("")).await.unwrap();
    assert_eq!(host.let_go().len(), 1);
}

#[tokio::test]
async fn what_is_pulled_meanwhile_is_said_or_waits() {
    let host = Host::start().await;
    let mut cleaning = host.connect().await;
    // Its registry does not answer: it is offered, and no snapshot tells of it.
    let (mut early, mut late) = (host.connect().await, host.connect().await);
    let early = tokio::spawn(async move { pull(&mut early, "hung", 1).await });
    host.wait_for_offers(1).await;
    let letting_go = host.hold_letting_go().await;
    let cleaned = tokio::spawn(async move { cleaning.call::<_, Empty>("Cleanup", of("")).await });
    let told = host.wait_for_let_go().await;
    assert!(told.pulled.contains("manifest-hung"), "{told:?}");
    let mut waiting = tokio::spawn(async move { pull(&mut late, "lazy", 1).await });
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(waited.is_err(), "a layer was offered while others went");
    assert_eq!(host.offers(), 1);
    // The call does not wait for those that came before.
    drop(letting_go);
    cleaned.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap(), Err(Code::AlreadyExists));
    host.answer_hung(1);
    assert_eq!(early.await.unwrap(), Err(Code::AlreadyExists));
    // It is asked again about one that turns out to be another image than was said.
    let (before, mut client) = (host.offers(), host.connect().await);
    assert_eq!(pull(&mut client, "listed", 1).await, Err(Code::AlreadyExists));
    assert_eq!(host.offers(), before + 2);
}

#[tokio::test]
async fn what_is_not_lazy_is_unpacked_and_said() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    assert_eq!(pull(&mut client, "half", 1).await, Err(Code::AlreadyExists));
    // The second layer has no index, and the third lies on it.
    for depth in 2..=3 {
        let made = pull(&mut client, "half", depth).await.unwrap();
        assert_eq!(made.mounts[0].r#type, "overlay");
        let key = format!("default/{depth}/extract-half");
        commit(&mut client, &key, &format!("chain-half-{depth}"))
            .await
            .unwrap();
        let because: InfoResponse = client
            .call("Stat", of(&format!("chain-half-{depth}")))
            .await
            .unwrap();
        let because = &because.info.unwrap().labels["containerd.io/snapshot/xebec.unpacked-because"];
        let reason = if depth == 2 { "no-index: " } else { "on-unpacked: " };
        assert!(because.starts_with(reason), "{because}");
    }
    let figures = host.figures();
    assert_eq!(figures.lazy, 1);
    assert_eq!(
        figures.unpacked.into_iter().collect::<Vec<_>>(),
        [("no-index", 1), ("on-unpacked", 1)]
    );
    let made = mounts(&mut client, "Prepare", "run", "chain-half-3")
        .await
        .unwrap();
    let lower = host.lower(&made);
    assert_eq!(lower.len(), 3);
    assert_eq!(std::fs::read_link(&lower[2]).unwrap(), host.view("half", 1));
}

#[tokio::test]
async fn a_chain_that_a_tag_made_is_not_believed_for_a_digest() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let mut named = async |name: &str, key: &str| {
        let mut labels = image_labels("lazy", 1);
        labels.insert(
            "containerd.io/snapshot/cri.image-ref".to_owned(),
            format!("registry/{name}"),
        );
        let request = PrepareRequest {
            key: key.to_owned(),
            labels,
            ..PrepareRequest::default()
        };
        client.call::<_, MountsResponse>("Prepare", request).await
    };
    assert_eq!(named("lazy:1", "a").await, Err(Code::AlreadyExists));
    // Its root of trust is not enough for a digest: it is unpacked beside the other.
    let made = named("lazy@distrusted", "b").await.unwrap();
    assert_eq!(made.mounts[0].r#type, "bind");
    assert_eq!(host.figures().unpacked["not-trusted"], 1);
    // Where it is enough, views are made as for the digest from then on, and a tag does not change that.
    assert_eq!(named("lazy@trusted", "c").await, Err(Code::AlreadyExists));
    assert_eq!(named("lazy:2", "d").await, Err(Code::AlreadyExists));
    mounts(&mut client, "Prepare", "run", "chain-lazy-1")
        .await
        .unwrap();
    assert_eq!(host.shown(), ["registry/lazy@trusted"]);
}

#[tokio::test]
async fn what_is_shown_is_never_another_images() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let mut pull = async |repository: &str, depth: usize, no_index: bool| {
        let mut labels = image_labels("lazy", depth);
        let half = if no_index { "half/" } else { "" };
        for (name, value) in [
            ("image-ref", format!("{half}{repository}:1")),
            ("manifest-digest", format!("manifest-{repository}")),
        ] {
            labels.insert(format!("containerd.io/snapshot/cri.{name}"), value);
        }
        let request = PrepareRequest {
            key: format!("{repository}/{depth}"),
            parent: match depth {
                1 => String::new(),
                _ => format!("chain-lazy-{}", depth - 1),
            },
            labels,
            ..PrepareRequest::default()
        };
        client.call::<_, MountsResponse>("Prepare", request).await
    };
    for depth in 1..=3 {
        assert_eq!(pull("bad", depth, false).await, Err(Code::AlreadyExists));
    }
    // Another image claims the same chain. Below its uppermost layer it does not matter which image was first; that one is its own.
    for depth in 1..=2 {
        assert_eq!(pull("good", depth, false).await, Err(Code::AlreadyExists));
    }
    let made = pull("good", 3, false).await.unwrap();
    let base = |made: &MountsResponse| std::fs::read_link(host.lower(made).last().unwrap()).unwrap();
    assert_eq!(base(&made), host.view("good", 2));
    // And of a third the second layer has no index.
    let made = pull("third", 2, true).await.unwrap();
    assert_eq!(base(&made), host.view("third", 1));
    commit(&mut client, "good/3", "good").await.unwrap();
    let made = mounts(&mut client, "Prepare", "run", "good").await.unwrap();
    assert_eq!((host.lower(&made).len(), base(&made)), (2, host.view("good", 2)));
    let made = mounts(&mut client, "Prepare", "run-bad", "chain-lazy-3")
        .await
        .unwrap();
    assert_eq!(base(&made), host.view("bad", 3));
    assert_eq!(host.figures().unpacked["other-image"], 1);
}

#[tokio::test]
async fn a_tag_that_has_moved_is_what_it_means_now() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    assert_eq!(pull(&mut client, "lazy", 1).await, Err(Code::AlreadyExists));
    let moved = |manifest: &str| {
        let mut labels = image_labels("lazy", 1);
        labels.insert(
            "containerd.io/snapshot/cri.manifest-digest".to_owned(),
            manifest.to_owned(),
        );
        PrepareRequest {
            key: format!("other/1/{manifest}"),
            labels,
            ..PrepareRequest::default()
        }
    };
    for (number, manifest) in ["manifest-moved", "manifest-moved", "manifest-again"]
        .iter()
        .enumerate()
    {
        let before = host.offers();
        let answer: Result<MountsResponse, Code> = client.call("Prepare", moved(manifest)).await;
        assert_eq!(answer, Err(Code::AlreadyExists));
        // It is asked once for each.
        assert_eq!(host.offers() - before, usize::from(number != 1));
        let key = format!("run-{number}");
        let made = mounts(&mut client, "Prepare", &key, "chain-lazy-1")
            .await
            .unwrap();
        let view = std::fs::read_link(&host.lower(&made)[0]).unwrap();
        assert!(view.ends_with(format!("{manifest}-1")), "{view:?}");
    }
}

#[tokio::test]
async fn a_layer_that_is_lazy_on_others_is_unpacked_and_counted() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    for depth in 1..=2 {
        assert_eq!(pull(&mut client, "lazy", depth).await, Err(Code::AlreadyExists));
    }
    // The same chain, whose lowest layer another client has unpacked.
    mounts(&mut client, "Prepare", "a", "").await.unwrap();
    commit(&mut client, "a", "unpacked-1").await.unwrap();
    let request = PrepareRequest {
        key: "extract".to_owned(),
        parent: "unpacked-1".to_owned(),
        labels: image_labels("lazy", 2),
        ..PrepareRequest::default()
    };
    client
        .call::<_, MountsResponse>("Prepare", request)
        .await
        .unwrap();
    assert_eq!(host.figures().unpacked["on-unpacked"], 1);
    let told: InfoResponse = client.call("Stat", of("extract")).await.unwrap();
    let because = &told.info.unwrap().labels["containerd.io/snapshot/xebec.unpacked-because"];
    assert!(because.starts_with("on-unpacked: "), "{because}");
}
