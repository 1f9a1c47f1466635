use std::fs;

use xebec_cache::store::LayerKey;

use super::*;

/// A layer of 20 pages, of which 2, 3 and 5 are there.
fn put(store: &Store, layer: &[u8], index: &[u8]) -> LayerKey {
    let key = LayerKey {
        layer: Digest::of(layer),
        index: Digest::of(index),
    };
    let folder = store.folder(key);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index"), index).unwrap();
    fs::write(folder.join("data"), vec![0; 20 * 4096]).unwrap();
    // docs/formats/presence.md
    let mut durable = vec![0_u8; 4096 + 3];
    durable[..8].copy_from_slice(b"XBDURABL");
    durable[8] = 1;
    durable[16] = 20;
    durable[4096] = 0b10_1100;
    fs::write(folder.join("durable"), durable).unwrap();
    key
}

#[test]
fn what_is_here_is_told_only_to_those_that_may_know() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let look = |may_be_told, layers: Option<&[&[u8]]>| {
        let layers = layers.map(|layers| layers.iter().map(|layer| Digest::of(layer)).collect());
        let held = Held::look(&store, may_be_told, layers);
        (held.may_want_pages, held.layers)
    };
    assert_eq!(
        look(false, None),
        (true, BTreeMap::new()),
        "there is nothing to tell"
    );
    let one = put(&store, b"one", b"index");
    let two = put(&store, b"two", b"older index");
    store.touch(two).unwrap();
    let newer = put(&store, b"two", b"newer index");
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    let file = fs::File::options()
        .write(true)
        .open(store.folder(newer).join("index"));
    file.unwrap().set_modified(later).unwrap();

    assert_eq!(look(false, None), (false, BTreeMap::new()));
    assert_eq!(look(false, Some(&[b"one"])), (false, BTreeMap::new()));
    assert_eq!(
        look(false, Some(&[b"three"])),
        (true, BTreeMap::new()),
        "none of that image"
    );

    let layer = |key: LayerKey| {
        let held = HeldLayer {
            index: key.index,
            pages: PageRuns::new(vec![2..4, 5..6]),
        };
        (key.layer, held)
    };
    let all = BTreeMap::from([layer(one), layer(newer)]);
    assert_eq!(look(true, None), (true, all));
    let of_the_image = BTreeMap::from([layer(one)]);
    assert_eq!(look(true, Some(&[b"one", b"three"])), (true, of_the_image));
    // One whose pages cannot be told is left out.
    fs::remove_file(store.data_path(one)).unwrap();
    assert_eq!(look(true, None).1, BTreeMap::from([layer(newer)]));
}

#[test]
fn words_are_hashed() {
    let command = |entrypoint: Option<&str>| ServiceCommand {
        entrypoint: entrypoint.map(|word| vec![word.to_owned()]),
        command: vec!["--password".to_owned(), "secret".to_owned()],
        env: vec![("TOKEN".to_owned(), "secret".to_owned())],
        has_probe: true,
        learn: false,
        is_said_later: true,
    };
    let said = wanted(&command(Some("/bin/app")));
    assert_eq!(said.entrypoint, Some(vec![WordHash::of("/bin/app")]));
    assert_eq!(said.command, [WordHash::of("--password"), WordHash::of("secret")]);
    assert!(said.is_said_later);
    assert_eq!(wanted(&command(None)).entrypoint, None);
    let text = serde_json::to_string(&said).unwrap();
    assert!(!text.contains("secret") && !text.contains("TOKEN"), "{text}");
}
