use super::*;

fn keep(images: &CommittedImages, name: &str, contents: &[u8]) -> Committed {
    keep_on(images, name, &[], contents)
}

/// Keeps an image that has layers of others below its own.
fn keep_on(images: &CommittedImages, name: &str, below: &[&[u8]], contents: &[u8]) -> Committed {
    let staged = images.stage().unwrap();
    staged.file().write_all(contents).unwrap();
    let layer = Layer {
        digest: Digest::of(contents),
        size: contents.len() as u64,
        diff_id: Digest::of(contents),
        plain_size: contents.len() as u64,
        entries: 1,
        media_type: "",
    };
    let config = [b"config of ", contents].concat();
    let layers = below.iter().chain([&contents]);
    let layers: Vec<Value> = layers
        .map(|layer| json!({ "digest": Digest::of(layer) }))
        .collect();
    let manifest = json!({ "config": { "digest": Digest::of(&config) }, "layers": layers }).to_string();
    let image = NewImage {
        config,
        manifest: manifest.into_bytes(),
        layer: Some(layer.digest),
        base: "registry.example.com/base@sha256:00".to_owned(),
    };
    let created = "2026-01-01T00:00:00Z";
    images.keep(staged, &layer, &image, name, created).unwrap()
}

fn blobs(images: &CommittedImages) -> usize {
    fs::read_dir(images.blobs()).unwrap().count()
}

#[test]
fn an_image_is_found_until_it_is_removed() {
    let top = tempfile::tempdir().unwrap();
    let images = CommittedImages::new(top.path().join("committed"));
    assert_eq!(images.list().unwrap(), []);
    let one = keep(&images, "r.example/app:1", b"one");
    let two = keep(&images, "r.example/app:2", b"two");
    for name in [
        "r.example/app:1",
        &one.manifest.to_string(),
        &one.manifest.short(),
    ] {
        assert_eq!(images.find(name).unwrap().as_ref(), Some(&one), "{name}");
    }
    assert_eq!(images.find("r.example/app").unwrap(), None);
    let (manifest, config) = images.documents(&one).unwrap();
    assert_eq!(Digest::of(&manifest), one.manifest);
    assert_eq!(config, b"config of one");
    assert_eq!(fs::read(images.blob(one.layer.unwrap().0)).unwrap(), b"one");
    // The name moves, and the image stays.
    let moved = keep(&images, "r.example/app:1", b"three");
    assert_eq!(images.find("r.example/app:1").unwrap(), Some(moved));
    let nameless = images.find(&one.manifest.to_string()).unwrap().unwrap();
    assert_eq!(nameless.reference, None);
    // By another name it stays what the name means here; once pushed by its own, it is the registry's for good.
    for target in ["mirror.example/app:2", "r.example/app:2", "other.example/app:2"] {
        images.note_pushed(two.manifest, target).unwrap();
    }
    assert_eq!(
        images.find("r.example/app:2").unwrap().unwrap().pushed.as_deref(),
        Some("r.example/app:2")
    );
    assert_eq!(blobs(&images), 9);
    let removed = images.remove(&one.manifest.to_string()).unwrap().unwrap();
    assert!(removed.freed > 3);
    assert_eq!(blobs(&images), 6);
    assert_eq!(images.remove("r.example/other").unwrap(), None);
    images.remove("r.example/app:1").unwrap().unwrap();
    images.remove("r.example/app:2").unwrap().unwrap();
    assert_eq!((blobs(&images), images.list().unwrap().len()), (0, 0));
}

#[test]
fn a_layer_stays_as_long_as_any_image_has_it() {
    let top = tempfile::tempdir().unwrap();
    let images = CommittedImages::new(top.path().join("committed"));
    let first = keep(&images, "r.example/app:1", b"one");
    keep_on(&images, "r.example/app:2", &[b"of a registry", b"one"], b"two");
    // What `--change` alone makes has no layer of its own.
    let layer = Layer::empty();
    let layers = [b"one", b"two"].map(|layer| json!({ "digest": Digest::of(layer) }));
    let image = NewImage {
        config: b"config".to_vec(),
        manifest: json!({ "config": { "digest": Digest::of(b"config") }, "layers": layers })
            .to_string()
            .into_bytes(),
        layer: None,
        base: first.base.clone(),
    };
    let staged = images.stage().unwrap();
    images
        .keep(staged, &layer, &image, "r.example/app:3", "")
        .unwrap();
    for (removed, one, two) in [
        ("r.example/app:1", true, true),
        ("r.example/app:2", true, true),
        ("r.example/app:3", false, false),
    ] {
        images.remove(removed).unwrap().unwrap();
        let is_there = |contents: &[u8]| images.blob(Digest::of(contents)).is_file();
        assert_eq!((is_there(b"one"), is_there(b"two")), (one, two), "{removed}");
    }
}

#[test]
fn a_blob_that_its_disk_damaged_is_replaced() {
    let top = tempfile::tempdir().unwrap();
    let images = CommittedImages::new(top.path().join("committed"));
    let one = keep(&images, "r.example/app:1", b"one");
    let blob = images.blob(one.layer.unwrap().0);
    for damaged in ["onf", ""] {
        fs::write(&blob, damaged).unwrap();
        keep(&images, "r.example/app:1", b"one");
        assert_eq!(fs::read(&blob).unwrap(), b"one");
    }
    assert_eq!(blobs(&images), 3);
}

#[test]
fn what_a_killed_process_left_goes_and_nothing_else() {
    let top = tempfile::tempdir().unwrap();
    let images = CommittedImages::new(top.path().join("committed"));
    let one = keep(&images, "r.example/app:1", b"one");
    let left = images.blob(Digest::of(b"left"));
    fs::write(&left, "left").unwrap();
    let other = images.blobs().join("not-a-blob");
    fs::write(&other, "").unwrap();
    drop(images.stage().unwrap());
    keep(&images, "r.example/app:2", b"two");
    assert!(!left.exists() && other.exists());
    // Without a manifest nobody knows which blobs are an image's.
    fs::remove_file(images.blob(one.manifest)).unwrap();
    fs::write(&left, "left").unwrap();
    keep(&images, "r.example/app:3", b"three");
    assert!(left.exists());
}

#[test]
fn a_list_that_cannot_be_read_is_not_replaced() {
    let top = tempfile::tempdir().unwrap();
    let images = CommittedImages::new(top.path().join("committed"));
    keep(&images, "r.example/app:1", b"one");
    let path = top.path().join("committed").join(INDEX);
    for text in ["{", "{}", r#"{"manifests":[{}]}"#] {
        fs::write(&path, text).unwrap();
        let error = images.remove("r.example/app:1").unwrap_err().to_string();
        assert!(error.contains(INDEX), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn of_a_damaged_list_it_is_said_what_to_do_and_which_names_may_be_in_it() {
    let top = tempfile::tempdir().unwrap();
    let images = CommittedImages::new(top.path().join("committed"));
    let one = keep(&images, "r.example/app:1", b"one");
    let path = top.path().join("committed").join(INDEX);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 10);
    fs::write(&path, &bytes).unwrap();
    let error = images.find("r.example/other:1").unwrap_err();
    assert!(matches!(error, CommitError::List { .. }), "{error}");
    let said = error.to_string();
    let directory = path.parent().unwrap().display().to_string();
    assert!(said.contains(&path.display().to_string()), "{said}");
    assert!(said.contains(&format!("or move {directory} away")), "{said}");
    let manifest = one.manifest.to_string();
    for (name, may_be) in [
        ("r.example/app:1", true),
        ("r.example/app:11", false),
        ("r.example/other:1", false),
        (manifest.as_str(), true),
        (&one.manifest.hex()[..8], true),
        (
            "sha256:0000000000000000000000000000000000000000000000000000000000000000",
            false,
        ),
        ("", false),
    ] {
        assert_eq!(images.may_have(name), may_be, "{name}");
    }
    // Nothing is left of it, as after a power cut.
    fs::write(&path, b"").unwrap();
    assert!(images.list().is_err() && images.may_have("r.example/other:1"));
    // It cannot be read at all.
    fs::write(&path, vec![b' '; usize::try_from(MOST_BYTES).unwrap() + 1]).unwrap();
    let said = images.list().unwrap_err().to_string();
    assert!(said.contains(&path.display().to_string()), "{said}");
    assert!(images.may_have("r.example/other:1"));
    fs::write(&path, &bytes).unwrap();
    // Nothing is changed by it, and what is moved away is there again when it comes back.
    assert!(images.remove("r.example/app:1").is_err());
    let aside = top.path().join("aside");
    fs::rename(path.parent().unwrap(), &aside).unwrap();
    assert_eq!(images.list().unwrap(), []);
    assert!(!images.may_have("r.example/app:1"));
}
