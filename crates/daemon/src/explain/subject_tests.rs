//! Tests of whose waits are told for a name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use serde_json::json;
use xebec_protocol::explain::WaitState;
use xebec_protocol::history::ContainerRun;
use xebec_protocol::paths::Paths;

use super::*;

const SHARED: LayerKey = LayerKey {
    layer: Digest::from_bytes([1; 32]),
    index: Digest::from_bytes([2; 32]),
};

fn wait(container: Option<(&str, &str)>, began_ms: u64) -> WaitReport {
    WaitReport {
        began: String::new(),
        began_ms,
        waited_ms: 1.0,
        state: WaitState::Served,
        pid: 7,
        comm: "cat".to_owned(),
        container: container.map(|(name, _)| name.to_owned()),
        container_run: container.map(|(_, run)| run.to_owned()),
        layer: Some(SHARED.layer),
        index: Some(SHARED.index),
        file: None,
        offset: began_ms,
        count: 4096,
        spans: 1,
        joined: 0,
        retries: 0,
        waited_for_ms: BTreeMap::new(),
        phase: "body".to_owned(),
        sources: Vec::new(),
        problem: None,
    }
}

fn run(name: &str, run: &str, image: &str, created_ms: u64) -> ContainerRun {
    ContainerRun {
        name: name.to_owned(),
        run: Some(run.to_owned()),
        reference: image.to_owned(),
        manifest: Digest::of(image.as_bytes()),
        created_ms,
    }
}

/// When the waits that belong to a name began.
fn told(known: &Known<'_>, name: &str) -> Vec<u64> {
    let subject = known.subject(name).unwrap();
    let images = known.images();
    let waits = known
        .history
        .waits
        .iter()
        .filter(|wait| subject.has(wait, &images));
    waits.map(|wait| wait.began_ms).collect()
}

fn records() -> (tempfile::TempDir, xebec_images::images::Images) {
    let top = tempfile::tempdir().unwrap();
    let paths = Paths::create(&top.path().join("root"), &top.path().join("run")).unwrap();
    let images = xebec_images::images::Images::open(&paths).unwrap();
    (top, images)
}

#[test]
fn of_containers_of_one_name_the_newest_is_meant() {
    let (_top, images) = records();
    let history = History {
        waits: vec![
            wait(Some(("web", "aaaaaaaaaaaa")), 100),
            wait(Some(("web", "bbbbbbbbbbbb")), 200),
            wait(Some(("web", "aaaaaaaaaaaa")), 150),
            wait(Some(("db", "cccccccccccc")), 300),
            wait(None, 250),
        ],
        starts: Vec::new(),
        containers: vec![
            run("web", "aaaaaaaaaaaa", "r/one:1", 90),
            run("web", "bbbbbbbbbbbb", "r/two:1", 190),
        ],
    };
    let known = Known {
        history: &history,
        live: &[],
        views: &[],
        records: images.records(),
    };
    assert_eq!(told(&known, "web"), [200]);
    let subject = known.subject("web").unwrap();
    assert_eq!(subject.text, "container web of r/two:1");
    assert_eq!(subject.others, ["web@aaaaaaaaaaaa"]);
    assert_eq!(told(&known, "web@aaaaaaaaaaaa"), [100, 150]);
    assert!(known.subject("web@dddddddddddd").is_err());
    // One that runs is meant even if another waited later, and has the waits of those who read its view for it.
    let live = [LiveContainer {
        run: history.containers[0].clone(),
        layers: vec![SHARED],
    }];
    let known = Known { live: &live, ..known };
    assert_eq!(told(&known, "web"), [100, 150, 250]);
}

#[test]
fn containers_of_other_images_are_not_told_of_an_image_that_shares_its_layers() {
    let (_top, images) = records();
    let manifests: Vec<Digest> = ["r/one:1", "r/two:1"]
        .into_iter()
        .map(|name| {
            let manifest = Digest::of(name.as_bytes());
            let record = json!({
                "references": [name], "manifest_digest": manifest, "media_type": "m", "manifest": name, "config": "{}",
                "layers": [{"layer": SHARED.layer, "index": SHARED.index, "root": "proven"}],
                "last_used": 1, "pinned": false,
            });
            images.records().put(serde_json::from_value(record).unwrap()).unwrap();
            manifest
        })
        .collect();
    let history = History {
        waits: vec![
            wait(Some(("one", "aaaaaaaaaaaa")), 100),
            wait(Some(("two", "bbbbbbbbbbbb")), 200),
            // Of whose image nothing is known.
            wait(Some(("other", "cccccccccccc")), 300),
            wait(None, 400),
        ],
        starts: Vec::new(),
        containers: vec![
            run("one", "aaaaaaaaaaaa", "r/one:1", 90),
            run("two", "bbbbbbbbbbbb", "r/two:1", 190),
        ],
    };
    let known = Known {
        history: &history,
        live: &[],
        views: &[],
        records: images.records(),
    };
    assert_eq!(told(&known, &manifests[0].to_string()), [100, 300, 400]);
    assert_eq!(told(&known, &manifests[1].to_string()), [200, 300, 400]);
    assert!(known.subject("nothing-of-that-name").is_err());
}
