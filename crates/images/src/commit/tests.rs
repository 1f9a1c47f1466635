use std::io::Write as _;

use serde_json::json;
use xebec_commit::{Layer, NewImage};
use xebec_protocol::paths::Paths;

use super::*;

const NAME: &str = "registry.example.com/made:1";

struct Host {
    _top: tempfile::TempDir,
    paths: Paths,
    images: Images,
}

fn host() -> Host {
    let top = tempfile::tempdir().unwrap();
    let paths = Paths::create(&top.path().join("root"), &top.path().join("run")).unwrap();
    let images = Images::open(&paths).unwrap();
    Host {
        _top: top,
        paths,
        images,
    }
}

/// Keeps an image without a record, as after the cache was emptied.
fn keep(images: &Images) -> Committed {
    let committed = images.committed();
    let staged = committed.stage().unwrap();
    staged.file().write_all(b"layer").unwrap();
    let layer = Layer {
        digest: Digest::of(b"layer"),
        size: 5,
        diff_id: Digest::of(b"layer"),
        plain_size: 5,
        entries: 1,
        media_type: "application/vnd.oci.image.layer.v1.tar+gzip",
    };
    let config = json!({ "os": "linux", "rootfs": { "type": "layers", "diff_ids": [layer.diff_id] } });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "config": { "digest": Digest::of(&config), "size": config.len(), "mediaType": "application/vnd.oci.image.config.v1+json" },
        "layers": [{ "digest": layer.digest, "size": layer.size, "mediaType": layer.media_type }],
    });
    let image = NewImage {
        config,
        manifest: manifest.to_string().into_bytes(),
        layer: Some(layer.digest),
        base: format!("registry.example.com/base@{}", Digest::of(b"base")),
    };
    committed
        .keep(staged, &layer, &image, NAME, "2026-01-01T00:00:00Z")
        .unwrap()
}

fn never(reference: &str) -> Result<Forgotten, Failure> {
    panic!("{reference} has no record");
}

/// A container that has ended, and is started again with an image.
fn ended(paths: &Paths, name: &str, manifest: Digest) {
    let saved = json!({
        "version": 1, "id": "0123456789ab", "image": NAME, "manifest": manifest, "command": [],
        "created_ms": 1, "started_ms": 2, "finished_ms": 3, "status": "exited", "exit_code": 0,
        "reason": null, "oom_killed": false, "restart": "no", "restarts": 0, "pause_ms": null, "supervisor": null,
        "labels": {}, "detached": true, "stop_signal": 0, "stop_timeout_ms": 0, "caller": null,
    });
    let directory = paths.containers().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("container.json"), saved.to_string()).unwrap();
}

#[test]
fn a_committed_image_without_a_record_is_kept_for_containers_that_have_ended() {
    let Host { paths, images, .. } = host();
    let made = keep(&images);
    ended(&paths, "other", Digest::of(b"other"));
    ended(&paths, "web", made.manifest);
    let refused = images.forget_committed(NAME, false, &mut never).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("the image of the container web"), "{said}");
    assert_eq!(images.find_committed(NAME).unwrap().as_ref(), Some(&made));
    // As of other images.
    let forgotten = images.forget_committed(NAME, true, &mut never).unwrap();
    assert_eq!((forgotten.manifest, forgotten.removed_layers), (made.manifest, 1));
    assert_eq!(images.find_committed(NAME).unwrap(), None);
}

/// Nothing says which names were in it.
#[tokio::test]
async fn without_anything_left_of_the_list_no_name_becomes_one_of_a_registry() {
    let Host { paths, images, .. } = host();
    keep(&images);
    let list = paths.committed().join("index.json");
    std::fs::write(&list, "").unwrap();
    let other: Reference = "registry.example.com/other:1".parse().unwrap();
    let Err(refused) = images.resolve_committed(&other, None).await else {
        panic!("it is found elsewhere");
    };
    let said = refused.to_string();
    assert!(said.contains(&list.display().to_string()), "{said}");
}

#[test]
fn an_image_that_a_container_runs_is_not_removed_by_force() {
    let Host { paths, .. } = host();
    let [one, two] = ["one", "two"].map(|name| Digest::of(name.as_bytes()));
    ended(&paths, "web", one);
    ended(&paths, "db", one);
    let directories = Directories {
        state: paths.containers(),
        run: paths.run().to_owned(),
    };
    let found = xebec_container::containers(&directories).unwrap().containers;
    assert!(check_unused(NAME, two, &found).is_ok());
    let said = check_unused(NAME, one, &found).unwrap_err().to_string();
    assert!(
        said.contains("in use by the containers db, web; stop them first"),
        "{said}"
    );
    assert!(!said.contains("--force"), "{said}");
}

#[tokio::test]
async fn a_damaged_list_of_committed_images_keeps_nobody_from_other_images() {
    let Host { paths, images, .. } = host();
    let made = keep(&images);
    let list = paths.committed().join("index.json");
    let damaged = std::fs::read_to_string(&list)
        .unwrap()
        .replace("\"manifests\"", "");
    std::fs::write(&list, damaged).unwrap();
    let other: Reference = "registry.example.com/other:1".parse().unwrap();
    assert!(images.resolve_committed(&other, None).await.unwrap().is_none());
    let elsewhere = Some(Digest::of(b"elsewhere"));
    assert!(
        images
            .resolve_committed(&other, elsewhere)
            .await
            .unwrap()
            .is_none()
    );
    assert!(crate::known_images::known_images(&images).unwrap().is_empty());
    let mut asked = Vec::new();
    let mut forget = |reference: &str| {
        asked.push(reference.to_owned());
        Err(Failure::new(FailureKind::NotFound, "it is the daemon's"))
    };
    let name = "registry.example.com/other:1";
    images.forget_committed(name, false, &mut forget).unwrap_err();
    assert_eq!(asked, [name]);
    // The image that is in it does not become one of a registry.
    let its: Reference = NAME.parse().unwrap();
    for manifest in [None, Some(made.manifest)] {
        let Err(refused) = images.resolve_committed(&its, manifest).await else {
            panic!("{manifest:?} is found");
        };
        let said = refused.to_string();
        assert!(
            said.contains(&list.display().to_string()) && said.contains("away"),
            "{said}"
        );
    }
    images.forget_committed(NAME, false, &mut never).unwrap_err();
}
