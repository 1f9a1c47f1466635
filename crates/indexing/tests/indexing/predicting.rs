//! A new version of an image that was recorded gets a runtime image when it has come, and no host has run it.

mod sources;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use xebec_artifact::artifact::Artifact;
use xebec_artifact::carried::Carried;
use xebec_artifact::recording::{self, PREDICTED_FROM, RUNTIME_IMAGE_TYPE};
use xebec_format::digest::Digest;
use xebec_format::layer::{EntryKind, LayerIndex};
use xebec_format::runtime_image::{
    PageRun, RecordedLayer, Recording, SeenRun, Service, ServiceKey, open_segment,
};
use xebec_indexing::IndexingSettings;
use xebec_oci::Descriptor;
use xebec_store::{Store, Tag};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Blob, Image, ImageBuilder};
use xebec_testkit::tar::TarBuilder;

use crate::referring::referring;
use crate::repository::{Here, name};

type FilesOf<'a> = &'a [(&'a str, Vec<u8>)];

const PAGE: usize = 4096;

/// Bytes that cannot be compressed, so that layers have several spans.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let bytes = std::iter::repeat_with(move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    });
    bytes.take(length).collect()
}

fn tar(files: FilesOf<'_>, gone: &[&str]) -> Vec<u8> {
    let mut tar = TarBuilder::new();
    for path in gone {
        tar.whiteout(path);
    }
    for (path, contents) in files {
        tar.file(path, contents);
    }
    tar.into_bytes()
}

fn image(layers: &[Vec<u8>], command: &str, architecture: &str) -> Image {
    let mut image = ImageBuilder::new()
        .config("Entrypoint", json!(["/bin/app"]))
        .config("Cmd", json!([command]));
    for (number, layer) in layers.iter().enumerate() {
        let compression = match number {
            0 => Compression::Gzip(1),
            _ => Compression::ZstdFrames(64 << 10),
        };
        image = image.layer(layer, compression).unwrap();
    }
    let image = image.build();
    let replaced = |blob: &Blob, field: &str, value: Value| {
        let mut content: Value = serde_json::from_slice(&blob.bytes).unwrap();
        content[field] = value;
        Blob::new(content.to_string().into_bytes(), &blob.media_type)
    };
    let config = replaced(&image.config, "architecture", json!(architecture));
    Image {
        manifest: replaced(
            &image.manifest,
            "config",
            json!(Descriptor::of(&config.media_type, &config.bytes)),
        ),
        config,
        layers: image.layers,
    }
}

/// The layers of an image as a recording has them, by the indexes that the registry made, and those indexes.
async fn layers(registry: &Here, repository: &str, image: &Image) -> (Vec<RecordedLayer>, Vec<LayerIndex>) {
    let artifacts: Vec<Artifact> = registry.listed(repository, image).await;
    let (mut recorded, mut indexes) = (Vec::new(), Vec::new());
    for layer in &image.layers {
        let digest = artifacts[0].layers[&layer.digest].index.digest;
        let index = LayerIndex::decode(&registry.blob(repository, digest).await).unwrap();
        recorded.push(RecordedLayer {
            layer: layer.digest,
            index: digest,
            data_size: index.data_size,
        });
        indexes.push(index);
    }
    (recorded, indexes)
}

/// The pages of files in the uppermost layer that has them.
fn place(indexes: &[LayerIndex], path: &str) -> (u16, u64) {
    let all = indexes.iter().enumerate().rev();
    let mut places = all.filter_map(|(number, index)| {
        let mut entries = index.entries.iter();
        let entry = entries.find(|entry| entry.path.as_bytes() == path.as_bytes())?;
        match &entry.kind {
            EntryKind::File { extents, .. } => Some((number as u16, extents[0].data_offset / PAGE as u64)),
            _ => None,
        }
    });
    places.next().unwrap_or_else(|| panic!("no file {path}"))
}

/// Services by their command lines, with the pages of files that they read.
type Read<'a> = &'a [(&'a str, &'a [(&'a str, u64)])];

/// Pushes a recording of services. It says of all pages that they are zero, which is not so.
async fn record(registry: &Here, repository: &str, image: &Image, services: Read<'_>) {
    record_by(registry, repository, image, services, None).await;
}

/// The same, by another index of the upper layer.
async fn record_by(
    registry: &Here,
    repository: &str,
    image: &Image,
    services: Read<'_>,
    upper: Option<Digest>,
) {
    let (mut layers, indexes) = layers(registry, repository, image).await;
    layers[1].index = upper.unwrap_or(layers[1].index);
    let services: Vec<Service> = services
        .iter()
        .map(|(argv, read)| {
            let mut touched = Vec::new();
            for (path, page) in *read {
                let (layer, first) = place(&indexes, path);
                let run = PageRun {
                    layer,
                    first: first + page,
                    pages: 1,
                };
                SeenRun { run, seen: 1 }.push_onto(&mut touched);
            }
            Service {
                key: ServiceKey {
                    argv: argv.split(' ').map(str::to_owned).collect(),
                    env: BTreeMap::new(),
                },
                probe: "port 80".to_owned(),
                recorded: 1_700_000_000,
                runs: 1,
                recorder: "xebec 0".to_owned(),
                touched,
            }
        })
        .collect();
    let mut zeros: Vec<PageRun> = services
        .iter()
        .flat_map(|service| service.touched.iter().map(|seen| seen.run))
        .flat_map(|run| {
            (run.first..run.end()).map(move |first| PageRun {
                first,
                pages: 1,
                ..run
            })
        })
        .collect();
    zeros.sort_by_key(|run| (run.layer, run.first));
    zeros.dedup();
    let mut runs = Vec::new();
    zeros.into_iter().for_each(|run| run.push_onto(&mut runs));
    let recording = Recording {
        image: image.manifest.digest,
        layers,
        services,
        zeros: runs,
        zones: Vec::new(),
        segments: Vec::new(),
        indexes: Vec::new(),
    };
    recording.check().unwrap();
    let encoded = recording.encode();
    registry.push_blob(repository, &encoded).await;
    registry.push_blob(repository, b"{}").await;
    let subject = Descriptor::of(&image.manifest.media_type, &image.manifest.bytes);
    let artifact = recording::encode(subject, &encoded, &[], std::iter::empty());
    let artifact = serde_json::to_value(&artifact).unwrap();
    let tag = format!("recording-{}", &image.manifest.digest.hex()[..12]);
    registry.push_json(repository, &tag, &artifact).await;
}

/// The recordings of an image, with the digests and annotations of their artifacts.
async fn recordings(
    store: &Store,
    repository: &str,
    image: &Image,
) -> Vec<(Digest, BTreeMap<String, String>, Recording)> {
    let found = referring(store, repository, image, RUNTIME_IMAGE_TYPE).await;
    let recordings = found.into_iter().map(|(digest, annotations, manifest)| {
        let recording = Carried::read(manifest, image.manifest.digest).recording.unwrap();
        (digest.to_string().parse().unwrap(), annotations, recording)
    });
    recordings.collect()
}

/// The bytes of a recording's pages, as a host opens them.
async fn pages(registry: &Here, repository: &str, recording: &Recording) -> BTreeMap<(u16, u64), Vec<u8>> {
    let mut pages = BTreeMap::new();
    for segment in &recording.segments {
        let zone = &recording.zones[usize::from(segment.zone)];
        let zone = registry.blob(repository, zone.digest).await;
        let plain = open_segment(segment, &zone[segment.offset as usize..segment.end() as usize]).unwrap();
        let numbers = segment
            .runs
            .iter()
            .flat_map(|run| (run.first..run.end()).map(|page| (run.layer, page)));
        pages.extend(numbers.zip(plain.chunks(PAGE).map(<[u8]>::to_vec)));
    }
    for run in &recording.zeros {
        pages.extend((run.first..run.end()).map(|page| ((run.layer, page), vec![0; PAGE])));
    }
    pages
}

/// The versions of an image: what is in both, and what is above it.
fn versions() -> [Vec<Vec<u8>>; 2] {
    let mut zeros = noise(3, 2 * PAGE);
    zeros.extend([0; PAGE]);
    let base = [
        ("bin/app", noise(1, 300 * PAGE)),
        ("bin/filler", noise(9, 500 * PAGE)),
        ("lib/removed", noise(2, 4 * PAGE)),
        ("lib/zeros", zeros),
    ];
    let first = [
        ("etc/changed", noise(4, 9 * PAGE + 5)),
        ("opt/moved", noise(5, 3 * PAGE + 100)),
    ];
    let second = [
        ("etc/changed", noise(6, 2 * PAGE + 7)),
        ("srv/moved", noise(5, 3 * PAGE + 100)),
    ];
    let base = tar(&base, &[]);
    [
        vec![base.clone(), tar(&first, &[])],
        vec![base, tar(&second, &["lib/removed"])],
    ]
}

const READ: &[(&str, u64)] = &[
    ("opt/moved", 3),
    ("bin/app", 250),
    ("lib/removed", 1),
    ("etc/changed", 2),
    ("etc/changed", 8),
    ("lib/zeros", 2),
    ("bin/app", 7),
    ("etc/changed", 0),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_has_the_pages_of_files_that_stayed_moved_and_changed() {
    let registry = Here::new().await;
    let store = registry.store.clone();
    let [first, second] = versions();
    let old = image(&first, "--old", "amd64");
    let new = image(&second, "--new", "amd64");
    registry.push("a", "v1", &old).await;
    registry.finish(&IndexingSettings::default()).await;
    record(
        &registry,
        "a",
        &old,
        &[
            ("/bin/app --old", READ),
            ("/bin/app job", &[("bin/app", 7)]),
            ("cat", &[("lib/removed", 0)]),
        ],
    )
    .await;
    registry.push("a", "v2", &new).await;
    registry.finish(&IndexingSettings::default()).await;

    let found = recordings(&store, "a", &new).await;
    let [(_, annotations, recording)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(annotations[PREDICTED_FROM], old.manifest.digest.to_string());
    let (layers, indexes) = layers(&registry, "a", &new).await;
    assert_eq!(recording.layers, layers);
    let told: Vec<(String, bool)> = recording
        .services
        .iter()
        .map(|service| (service.key.argv.join(" "), service.is_predicted()))
        .collect();
    assert_eq!(
        told,
        [
            ("/bin/app --new".to_owned(), true),
            ("/bin/app job".to_owned(), true)
        ]
    );
    let touched: Vec<(u16, u64)> = recording.services[0]
        .touched
        .iter()
        .flat_map(|seen| (seen.run.first..seen.run.end()).map(|page| (seen.run.layer, page)))
        .collect();
    let contents = |path: &str, page: usize| {
        let mut files = second.iter().rev().flat_map(|tar| plain_files(tar));
        let (_, contents) = files.find(|(name, _)| name == path).unwrap();
        let mut page = contents[page * PAGE..contents.len().min((page + 1) * PAGE)].to_vec();
        page.resize(PAGE, 0);
        page
    };
    let wanted = [
        ("srv/moved", 3),
        ("bin/app", 250),
        ("etc/changed", 2),
        ("lib/zeros", 2),
        ("bin/app", 7),
        ("etc/changed", 0),
    ];
    let places = wanted.map(|(path, page)| {
        let (layer, first) = place(&indexes, path);
        (layer, first + page as u64)
    });
    assert_eq!(touched, places);
    let pages = pages(&registry, "a", recording).await;
    assert_eq!(pages.len(), wanted.len());
    for ((path, page), place) in wanted.into_iter().zip(places) {
        assert!(pages[&place] == contents(path, page), "page {page} of {path}");
    }
    // The zone begins with the indexes, so that a start needs nothing else.
    assert_eq!(recording.indexes.len(), 2);
    for index in &recording.indexes {
        let zone = registry
            .blob("a", recording.zones[usize::from(index.zone)].digest)
            .await;
        let bytes = &zone[index.offset as usize..index.end() as usize];
        assert_eq!(
            Digest::of(bytes),
            recording.layers[usize::from(index.layer)].index
        );
    }
    assert_eq!(recordings(&store, "a", &old).await.len(), 1);
    assert_eq!(registry.finish(&IndexingSettings::default()).await, 0);
    // What is there stays, whatever comes later.
    registry.push("a", "again", &new).await;
    registry.finish(&IndexingSettings::default()).await;
    assert_eq!(recordings(&store, "a", &new).await.len(), 1);
}

fn plain_files(tar: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut at = 0;
    while tar.get(at).is_some_and(|byte| *byte != 0) {
        let text = |range: std::ops::Range<usize>| {
            let field = &tar[at + range.start..at + range.end];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            String::from_utf8(field[..end].to_vec()).unwrap()
        };
        let size = usize::from_str_radix(text(124..136).trim(), 8).unwrap();
        files.push((text(0..100), tar[at + 512..at + 512 + size].to_vec()));
        at += 512 + size.next_multiple_of(512);
    }
    files
}

/// Pushes and records the first version, pushes the second, and says how many recordings that gets.
async fn predicted(
    registry: &Here,
    settings: &IndexingSettings,
    new: &Image,
) -> Vec<(Digest, BTreeMap<String, String>, Recording)> {
    let [first, _] = versions();
    let old = image(&first, "--old", "amd64");
    registry.push("a", "v1", &old).await;
    registry.finish(settings).await;
    record(registry, "a", &old, &[("/bin/app --old", READ)]).await;
    registry.push("a", "v2", new).await;
    registry.finish(settings).await;
    recordings(&registry.store, "a", new).await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_platform_and_an_image_of_other_files_get_none_and_neither_does_any_if_it_is_switched_off() {
    let registry = Here::new().await;
    let [_, second] = versions();
    let other = image(&second, "--new", "arm64");
    assert!(
        predicted(&registry, &IndexingSettings::default(), &other)
            .await
            .is_empty()
    );
    let foreign = image(&[tar(&[("other", noise(8, 100))], &[])], "--new", "amd64");
    assert!(
        predicted(&registry, &IndexingSettings::default(), &foreign)
            .await
            .is_empty()
    );
    assert!(registry.store.indexing_problems(1).await.unwrap().is_empty());
    let off = IndexingSettings {
        predict: false,
        ..IndexingSettings::default()
    };
    assert!(
        predicted(&registry, &off, &image(&second, "--new", "amd64"))
            .await
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prediction_is_signed_if_the_registry_made_all_indexes() {
    let registry = Here::new().await;
    let store = registry.store.clone();
    let directory = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let path = directory.path().join("key.pem");
    std::fs::write(&path, key.serialize_pem()).unwrap();
    let settings = IndexingSettings {
        sign_key: Some(path),
        name: Some("registry.example:5000".to_owned()),
        ..IndexingSettings::default()
    };
    let is_signed = async |artifact: Digest| {
        let tag: Tag = xebec_trust::signature_tag(artifact).parse().unwrap();
        store.tagged_manifest(&name("a"), &tag).await.unwrap().is_some()
    };
    let [_, second] = versions();
    let own = predicted(&registry, &settings, &image(&second, "--new", "amd64")).await;
    assert!(is_signed(own[0].0).await);

    // Somebody pushed an index of the upper layer that this registry did not make: here, the same without digests of contents.
    let other = image(&second, "--other", "amd64");
    let made = registry
        .listed("a", &image(&second, "--new", "amd64"))
        .await
        .remove(0);
    let upper = other.layers[1].digest;
    let index = LayerIndex::decode(&registry.blob("a", made.layers[&upper].index.digest).await).unwrap();
    let index = LayerIndex {
        contents: None,
        ..index
    }
    .encode();
    registry.push_blob("a", &index).await;
    let mut artifact = made;
    let blobs = artifact.layers.get_mut(&upper).unwrap();
    blobs.index.digest = Digest::of(&index);
    blobs.index.size = index.len() as u64;
    blobs.contents = None;
    let subject = Descriptor::of(&other.manifest.media_type, &other.manifest.bytes);
    let order: Vec<Digest> = other.layers.iter().map(|layer| layer.digest).collect();
    let artifact = serde_json::to_value(artifact.encode(subject, &order)).unwrap();
    registry.push("a", "v3", &other).await;
    registry.push_json("a", "own-index", &artifact).await;
    registry.finish(&settings).await;
    let foreign = recordings(&store, "a", &other).await;
    assert_eq!(foreign.len(), 1);
    assert!(
        !is_signed(foreign[0].0).await,
        "it vouches for an index that it did not make"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_repository_has_is_not_read() {
    let registry = Here::new().await;
    let store = registry.store.clone();
    let settings = IndexingSettings::default();
    let [first, second] = versions();
    let old = image(&first, "--old", "amd64");
    registry.push("a", "v1", &old).await;
    registry.push("b", "v1", &old).await;
    registry.finish(&settings).await;
    // An index that the recording in `b` names, and that only `a` has.
    let (_, indexes) = layers(&registry, "b", &old).await;
    let index = LayerIndex {
        contents: None,
        ..indexes[1].clone()
    };
    let index = index.encode();
    registry.push_blob("a", &index).await;
    let services: Read<'_> = &[("/bin/app --old", READ)];
    record_by(&registry, "b", &old, services, Some(Digest::of(&index))).await;
    let new = image(&second, "--new", "amd64");
    registry.push("b", "v2", &new).await;
    registry.finish(&settings).await;
    assert!(recordings(&store, "b", &new).await.is_empty());
    registry.push_blob("b", &index).await;
    let newer = image(&second, "--newer", "amd64");
    registry.push("b", "v3", &newer).await;
    registry.finish(&settings).await;
    let found = recordings(&store, "b", &newer).await;
    assert_eq!(found.len(), 1);
    // What had moved had no digest this time, and is not found.
    assert_eq!(
        found[0].2.services[0]
            .touched
            .iter()
            .map(|seen| seen.run.pages)
            .sum::<u32>(),
        5
    );
}
