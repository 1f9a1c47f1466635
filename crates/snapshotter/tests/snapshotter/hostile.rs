//! Requests that no client of good faith sends: each is answered by the status that containerd's own snapshotters would give, nothing
//! comes of it, and the snapshots that are there stay.

use std::collections::HashMap;

use xebec_snapshotter::api::{
    Empty, FieldMask, Info, InfoResponse, LONGEST_MESSAGE, MountsResponse, PrepareRequest, UpdateRequest,
};

use crate::fake::{Client, Host, image_labels};
use crate::snapshots::{commit, mounts, of};
use tonic::Code;

async fn labelled(
    client: &mut Client,
    key: &str,
    labels: HashMap<String, String>,
) -> Result<MountsResponse, Code> {
    let request = PrepareRequest {
        key: key.to_owned(),
        labels,
        ..PrepareRequest::default()
    };
    client.call("Prepare", request).await
}

#[tokio::test]
async fn keys() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let before = host.directories();
    for (key, status) in [
        (String::new(), Code::InvalidArgument),
        ("x".repeat((8 << 10) + 1), Code::InvalidArgument),
        ("x".repeat(10 << 20), Code::InvalidArgument),
        // Longer than any message may be.
        ("x".repeat(LONGEST_MESSAGE), Code::ResourceExhausted),
    ] {
        for method in ["Prepare", "View"] {
            let refused = mounts(&mut client, method, &key, "").await.unwrap_err();
            assert_eq!(refused, status, "{} bytes", key.len());
        }
    }
    assert_eq!(host.directories(), before);
    // A key names nothing on disk, so any other is one.
    let odd = [
        "..",
        "../../etc",
        "/",
        "a/../b",
        "a\0b",
        "a\nb",
        " ",
        "\u{202e}gpj",
        "é",
        ":chain",
        "%2e%2e",
    ];
    for key in odd {
        mounts(&mut client, "Prepare", key, "").await.unwrap();
        assert_eq!(
            mounts(&mut client, "Prepare", key, "").await,
            Err(Code::AlreadyExists)
        );
        assert_eq!(
            mounts(&mut client, "View", key, "").await,
            Err(Code::AlreadyExists)
        );
        let told: InfoResponse = client.call("Stat", of(key)).await.unwrap();
        assert_eq!(told.info.unwrap().name, key);
    }
    assert_eq!(client.list(&[]).await.unwrap().len(), odd.len());
    let committed: Result<Empty, Code> = commit(&mut client, "..", "/").await;
    assert_eq!(committed, Err(Code::AlreadyExists));
    assert_eq!(commit(&mut client, "..", "").await, Err(Code::InvalidArgument));
    assert_eq!(commit(&mut client, "missing", "m").await, Err(Code::NotFound));
    // On what is not there, on what is not committed, on itself.
    assert_eq!(
        mounts(&mut client, "Prepare", "on", "missing").await,
        Err(Code::NotFound)
    );
    assert!(mounts(&mut client, "Prepare", "on", "..").await.is_err());
    assert_eq!(
        mounts(&mut client, "Prepare", "on", "on").await,
        Err(Code::NotFound)
    );
    for key in odd {
        let _: Empty = client.call("Remove", of(key)).await.unwrap();
        assert_eq!(
            client.call::<_, Empty>("Remove", of(key)).await,
            Err(Code::NotFound)
        );
    }
    for method in ["Stat", "Mounts", "Usage", "Remove"] {
        let missing: Result<Empty, Code> = client.call(method, of("missing")).await;
        assert_eq!(missing, Err(Code::NotFound), "{method}");
    }
    assert!(client.list(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn labels() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let one = |name: &str, value: String| HashMap::from([(name.to_owned(), value)]);
    let long = one("a", "x".repeat(4096));
    assert_eq!(
        labelled(&mut client, "long", long.clone()).await,
        Err(Code::InvalidArgument)
    );
    labelled(&mut client, "fits", one("a", "x".repeat(4095)))
        .await
        .unwrap();
    let update = UpdateRequest {
        info: Some(Info {
            name: "fits".to_owned(),
            labels: long,
            ..Info::default()
        }),
        ..UpdateRequest::default()
    };
    let updated: Result<InfoResponse, Code> = client.call("Update", update).await;
    assert_eq!(updated, Err(Code::InvalidArgument));
    // Labels that name an image in part, or as nothing: it is unpacked like any other, and no registry is asked.
    for missing in ["containerd.io/snapshot.ref", "cri.image-ref", "cri.layer-digest"] {
        let mut labels = image_labels("lazy", 1);
        labels.retain(|name, _| !name.ends_with(missing));
        labelled(&mut client, &format!("without {missing}"), labels.clone())
            .await
            .unwrap();
        labels = image_labels("lazy", 1);
        labels
            .iter_mut()
            .filter(|(name, _)| name.ends_with(missing))
            .for_each(|(_, value)| value.clear());
        labelled(&mut client, &format!("empty {missing}"), labels)
            .await
            .unwrap();
    }
    assert_eq!(host.offers(), 0);
    // A chain ID by which there is something else is not taken from it.
    mounts(&mut client, "Prepare", "taken", "").await.unwrap();
    let mut taken = image_labels("lazy", 1);
    taken.insert("containerd.io/snapshot.ref".to_owned(), "taken".to_owned());
    labelled(&mut client, "taker", taken).await.unwrap();
    let told: InfoResponse = client.call("Stat", of("taken")).await.unwrap();
    assert!(told.info.unwrap().labels.is_empty());
    // Our own labels are nobody else's to set.
    let ours = one("containerd.io/snapshot/xebec.lazy", "sha256:ab".to_owned());
    labelled(&mut client, "ours", ours).await.unwrap();
    let told: InfoResponse = client.call("Stat", of("ours")).await.unwrap();
    assert!(told.info.unwrap().labels.is_empty());
}

/// As many labels as take `bytes`, each of the allowed size.
fn many_labels(prefix: &str, bytes: usize) -> HashMap<String, String> {
    let labels = (0..bytes / 4000).map(|number| (format!("{prefix}-{number}"), "x".repeat(3980)));
    labels.collect()
}

/// Each label is short enough. As many labels as one message holds are taken, and told again, beside others; more are refused, and the
/// other snapshots can still be listed.
#[tokio::test]
async fn very_many_labels() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let update = |labels: HashMap<String, String>, paths: Vec<String>| UpdateRequest {
        info: Some(Info {
            name: "much".to_owned(),
            labels,
            ..Info::default()
        }),
        update_mask: Some(FieldMask { paths }),
        ..UpdateRequest::default()
    };
    // Beyond what gRPC takes by default.
    let six = many_labels("six", 6 << 20);
    labelled(&mut client, "much", six.clone()).await.unwrap();
    let told: InfoResponse = client.call("Stat", of("much")).await.unwrap();
    assert_eq!(told.info.unwrap().labels, six);
    for number in 0..4 {
        labelled(&mut client, &format!("more-{number}"), six.clone())
            .await
            .unwrap();
    }
    // Five of them are no message.
    let mut sizes: Vec<usize> = client
        .list(&[])
        .await
        .unwrap()
        .iter()
        .map(|info| info.labels.len())
        .collect();
    sizes.dedup();
    assert_eq!(sizes, [six.len()]);
    let fifteen = many_labels("fifteen", 15 << 20);
    let updated: InfoResponse = client
        .call("Update", update(fifteen.clone(), Vec::new()))
        .await
        .unwrap();
    assert_eq!(updated.info.unwrap().labels, fifteen);
    // By the way of several messages, each of which is short enough.
    let names = six.keys().map(|name| format!("labels.{name}")).collect();
    let updated: Result<InfoResponse, Code> = client.call("Update", update(six, names)).await;
    assert_eq!(updated, Err(Code::InvalidArgument));
    // In one that is too long.
    let seventeen = many_labels("seventeen", 17 << 20);
    let updated: Result<InfoResponse, Code> =
        client.call("Update", update(seventeen.clone(), Vec::new())).await;
    assert_eq!(updated, Err(Code::ResourceExhausted));
    let prepared = labelled(&mut client, "too much", seventeen).await;
    assert_eq!(prepared, Err(Code::ResourceExhausted));
    let long = "x".repeat(LONGEST_MESSAGE);
    assert_eq!(client.list(&[&long]).await, Err(Code::ResourceExhausted));
    let found = client.list(&["name==much"]).await.unwrap();
    assert_eq!(found[0].labels, fifteen);
    let _: Empty = client.call("Remove", of("much")).await.unwrap();
}
