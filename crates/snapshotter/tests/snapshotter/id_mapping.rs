//! Containers in user namespaces.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tonic::Code;
use xebec_snapshotter::api::{
    CommitRequest, Empty, KeyRequest, MountsResponse, PrepareRequest, UpdateRequest,
};
use xebec_snapshotter::api::{Info, InfoResponse};

use crate::fake::{Client, Host, image_labels};

/// As containerd asks for it.
fn mapping() -> HashMap<String, String> {
    HashMap::from([
        (
            "containerd.io/snapshot/uidmapping".to_owned(),
            "0:100000:65536".to_owned(),
        ),
        (
            "containerd.io/snapshot/gidmapping".to_owned(),
            "0:200000:65536".to_owned(),
        ),
    ])
}

/// The same in a mount.
const MAPPED: &str = "uidmap=0:100000:65536 gidmap=0:200000:65536";

async fn ask(
    client: &mut Client,
    method: &str,
    key: &str,
    parent: &str,
    labels: HashMap<String, String>,
) -> Result<MountsResponse, Code> {
    let request = PrepareRequest {
        key: key.to_owned(),
        parent: parent.to_owned(),
        labels,
        ..PrepareRequest::default()
    };
    client.call(method, request).await
}

fn of(key: &str) -> KeyRequest {
    KeyRequest {
        key: key.to_owned(),
        ..KeyRequest::default()
    }
}

/// Two lazy layers, or the first of `half` lazy and the second unpacked.
async fn pull(client: &mut Client, image: &str) -> String {
    for depth in 1..=2 {
        let parent = match depth {
            1 => String::new(),
            _ => format!("chain-{image}-{}", depth - 1),
        };
        let key = format!("extract-{image}-{depth}");
        if ask(client, "Prepare", &key, &parent, image_labels(image, depth))
            .await
            .is_ok()
        {
            commit(client, &key, &format!("chain-{image}-{depth}")).await;
        }
    }
    format!("chain-{image}-2")
}

async fn commit(client: &mut Client, key: &str, name: &str) {
    let request = CommitRequest {
        key: key.to_owned(),
        name: name.to_owned(),
        ..CommitRequest::default()
    };
    client.call::<_, Empty>("Commit", request).await.unwrap();
}

fn told(made: &MountsResponse) -> String {
    assert_eq!(made.mounts.len(), 1);
    let mount = &made.mounts[0];
    format!("{} {}", mount.r#type, mount.options.join(" "))
}

/// The directory that is bound for a snapshot by that id.
fn bound(host: &Host, id: &str, part: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(host.root().join("m").join(id).join(part).with_extension("bound")).ok()
}

fn owner(path: &Path) -> (u32, u32) {
    let status = std::fs::metadata(path).unwrap();
    (status.uid(), status.gid())
}

#[tokio::test]
async fn what_is_below_is_mapped_and_what_is_written_has_mapped_owners() {
    let mut host = Host::start().await;
    let mut client = host.connect().await;
    let top = pull(&mut client, "lazy").await;
    let made = ask(&mut client, "Prepare", "run", &top, mapping()).await.unwrap();
    let root = host.root();
    let root = root.display();
    assert_eq!(
        told(&made),
        format!("overlay {MAPPED} workdir={root}/w/3 upperdir={root}/u/3 lowerdir={root}/m/3/v index=off")
    );
    assert_eq!(bound(&host, "3", "v"), Some(host.view("lazy", 2)));
    assert_eq!(bound(&host, "3", "u"), None);
    assert_eq!(owner(&host.root().join("u/3")), (100_000, 200_000));
    // Labels may change; what was written does not.
    let info = Info {
        name: "run".to_owned(),
        ..Info::default()
    };
    let request = UpdateRequest {
        info: Some(info),
        ..UpdateRequest::default()
    };
    client.call::<_, InfoResponse>("Update", request).await.unwrap();
    drop(client);
    host.stop().await;
    host.restart().await;
    let mut client = host.connect().await;
    let again: MountsResponse = client.call("Mounts", of("run")).await.unwrap();
    assert_eq!(again, made);
    client.call::<_, Empty>("Remove", of("run")).await.unwrap();
    assert_eq!(std::fs::read_dir(host.root().join("m")).unwrap().count(), 0);
    assert!(host.held().is_empty());
}

#[tokio::test]
async fn unpacked_layers_and_views() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let root = host.root().display().to_string();
    let top = pull(&mut client, "half").await;
    let made = ask(&mut client, "Prepare", "run", &top, mapping()).await.unwrap();
    assert!(
        told(&made).ends_with(&format!(" lowerdir={root}/m/3/u/2:{root}/m/3/v index=off")),
        "{made:?}"
    );
    assert_eq!(bound(&host, "3", "u"), Some(host.root().join("u")));
    // A snapshot that is only read is mapped by an overlay, too.
    let viewed = ask(&mut client, "View", "look", "chain-half-1", mapping())
        .await
        .unwrap();
    assert_eq!(
        told(&viewed),
        format!("overlay {MAPPED} lowerdir={root}/m/4/v:{root}/m/4/u/4 index=off")
    );
    ask(&mut client, "Prepare", "own", "", HashMap::new())
        .await
        .unwrap();
    commit(&mut client, "own", "base").await;
    let viewed = ask(&mut client, "View", "look-2", "base", mapping())
        .await
        .unwrap();
    assert_eq!(
        told(&viewed),
        format!("overlay {MAPPED} lowerdir={root}/u/5:{root}/u/6 index=off")
    );
    // On nothing there is nothing to map.
    let alone = ask(&mut client, "Prepare", "alone", "", mapping()).await.unwrap();
    assert_eq!(told(&alone), "bind rw rbind");
    assert_eq!(owner(Path::new(&alone.mounts[0].source)), (100_000, 200_000));
    // A committed one holds nothing more.
    commit(&mut client, "run", "saved").await;
    assert!(!host.root().join("m/3").exists());
}

#[tokio::test]
async fn mappings_that_cannot_be_leave_nothing() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let top = pull(&mut client, "lazy").await;
    let mut half = mapping();
    half.retain(|name, _| name.contains("uid"));
    let refused = ask(&mut client, "Prepare", "run", &top, half).await;
    assert_eq!(refused, Err(Code::InvalidArgument));
    let top = pull(&mut client, "unbindable").await;
    let refused = ask(&mut client, "Prepare", "run", &top, mapping()).await;
    assert_eq!(refused, Err(Code::Internal));
    assert!(host.held().is_empty());
    assert_eq!(std::fs::read_dir(host.root().join("m")).unwrap().count(), 0);
}

#[tokio::test]
async fn the_author_of_an_image_maps_nothing() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    pull(&mut client, "half").await;
    let mut labels = image_labels("half-other", 2);
    labels.extend(mapping());
    let made = ask(&mut client, "Prepare", "extract", "chain-half-1", labels)
        .await
        .unwrap();
    assert!(!told(&made).contains("map="), "{made:?}");
}

#[tokio::test]
async fn containerds_own_copy_is_not_mapped_again() {
    let host = Host::start().await;
    let mut client = host.connect().await;
    let top = pull(&mut client, "lazy").await;
    let key = "default/8/sha256:ab-remap";
    ask(&mut client, "Prepare", key, &top, HashMap::new())
        .await
        .unwrap();
    // As containerd changes owners.
    std::os::unix::fs::chown(host.root().join("u/3"), Some(100_000), Some(200_000)).unwrap();
    commit(&mut client, key, "default/9/sha256:ab").await;
    let made = ask(&mut client, "Prepare", "run", "default/9/sha256:ab", mapping())
        .await
        .unwrap();
    assert!(!told(&made).contains("map="), "{made:?}");
    assert_eq!(owner(&host.root().join("u/4")), (100_000, 200_000));
}
