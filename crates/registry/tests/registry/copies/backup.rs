//! `xebec-registry backup` and `restore` while a place is away.

use std::collections::BTreeSet;

use xebec_registry_server::config::Config;
use xebec_store::{Held, Store};

use crate::commands::{blob, run, text};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_without_a_place_is_incomplete_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let [root, second, backup, restored, config] =
        ["root", "second", "backup", "restored", "r.toml"].map(|name| directory.path().join(name));
    std::fs::create_dir(&second).unwrap();
    let written =
        format!("[storage]\nroot = {root:?}\n[[place]]\nname = \"second\"\ndirectory = {second:?}\n");
    std::fs::write(&config, written).unwrap();
    let store = Store::open(&Config::read(&config).unwrap().store).await.unwrap();
    let name = "team/app".parse().unwrap();
    blob(&store, &name, b"here").await;
    let away = blob(&store, &name, b"away").await;
    let wanted = BTreeSet::from(["second".parse().unwrap()]);
    store
        .place(&Held::of_blob(&away).unwrap(), &wanted)
        .await
        .unwrap();
    drop(store);
    let (objects, aside) = (second.join("objects"), directory.path().join("aside"));
    std::fs::rename(&objects, &aside).unwrap();
    let take = ["backup", text(&backup), "--config", text(&config)];
    let (said, code) = run(&take).await;
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains(&format!("blob {} cannot be read now: on second: ", away.digest)),
        "{said}"
    );
    assert!(said.contains("take the backup again"), "{said}");
    let restore = ["restore", text(&backup), "--root", text(&restored)];
    let (said, code) = run(&restore).await;
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("is an incomplete backup: 1 blobs"), "{said}");
    std::fs::rename(&aside, &objects).unwrap();
    assert_eq!(run(&take).await.1, 0);
    let (said, code) = run(&restore).await;
    assert_eq!((code, said.contains("incomplete")), (0, false), "{said}");
    // Lost for good: its place is there, and has the mark.
    for folder in std::fs::read_dir(&objects).unwrap().map(Result::unwrap) {
        if folder.path().is_dir() {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    let other = directory.path().join("other");
    let (said, code) = run(&["backup", text(&other), "--json", "--config", text(&config)]).await;
    assert_eq!(code, 3, "{said}");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (said["missing"].as_u64(), said["away"].as_u64()),
        (Some(1), Some(0))
    );
    assert_eq!(said["lacks"][0]["digest"], away.digest.to_string());
}
