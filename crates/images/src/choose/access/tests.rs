#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Span, SpanTable};
use xebec_index::indexer::{IndexOptions, index_layer};
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{ImageRequest, PullPolicy};
use xebec_testkit::compression::Compression;
use xebec_testkit::registry::FaultyRegistry;
use xebec_testkit::tar::{Header, Kind, TarBuilder};
use xebec_trust::{Listing, RepositoryName};

use super::{PIECES, drawn};
use crate::facts;
use crate::images::Images;
use crate::publish::PublishOptions;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A layer that only its owner is meant to have.
fn private_layer() -> Vec<u8> {
    layer_of(300_000)
}

/// One of so many numbers.
fn layer_of(numbers: u32) -> Vec<u8> {
    let mut tar = TarBuilder::new();
    let contents: Vec<u8> = (0..numbers).flat_map(u32::to_le_bytes).collect();
    tar.file_with(&Header::new("key", Kind::File), &contents);
    tar.into_bytes()
}

/// Puts an image that lists the layer into a repository, with the layer or without.
fn put_image(registry: &FaultyRegistry, repository: &str, layer: &[u8], has_layer: bool) {
    put_image_of(registry, repository, layer, (Digest::of(layer), Compression::Tar));
    if has_layer {
        registry.put_blob(repository, layer.to_vec());
    }
}

/// The same of a layer that is compressed, without the layer.
fn put_image_of(registry: &FaultyRegistry, repository: &str, layer: &[u8], plain: (Digest, Compression)) {
    let digest = Digest::of(layer);
    let (diff_id, compression) = plain;
    let config = json!({"architecture": "amd64", "os": "linux", "author": repository,
                        "rootfs": {"type": "layers", "diff_ids": [diff_id]}})
    .to_string();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                   "digest": Digest::of(config.as_bytes()), "size": config.len()},
        "layers": [{"mediaType": compression.media_type(), "digest": digest, "size": layer.len()}],
    });
    registry.put_blob(repository, config);
    registry.put_manifest(repository, "v1", MANIFEST, manifest.to_string());
}

struct World {
    images: Images,
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let images = Images::open(&paths).unwrap();
        Self {
            images,
            _directory: directory,
        }
    }

    /// The directory of the only layer's notes.
    fn folder(&self) -> PathBuf {
        let store = &self.images.store;
        let keys = store.list().unwrap();
        assert_eq!(keys.len(), 1);
        store.folder(keys[0])
    }

    /// Starts an image; whether its layer was read whole for that.
    async fn start(&self, registry: &FaultyRegistry, repository: &str) -> Result<bool, Failure> {
        self.start_if(registry, repository, false).await
    }

    /// The same, lazily or not at all if that is required.
    async fn start_if(
        &self,
        registry: &FaultyRegistry,
        repository: &str,
        require_lazy: bool,
    ) -> Result<bool, Failure> {
        let request = request(registry, repository);
        let mut prepared = self
            .images
            .prepare(&request, require_lazy, &(Arc::new(|_| ()) as _))
            .await?;
        prepared.written().await?;
        Ok(prepared.layers.iter().any(|layer| layer.read_whole))
    }
}

fn request(registry: &FaultyRegistry, repository: &str) -> ImageRequest {
    ImageRequest {
        reference: format!("{}/{repository}:v1", registry.host()),
        platform: Some("linux/amd64".to_owned()),
        docker_config: None,
        pull: PullPolicy::Always,
        part: None,
        manifest: None,
    }
}

/// Requests for the layer.
fn asked(registry: &FaultyRegistry, repository: &str, layer: &[u8]) -> usize {
    registry.count(&format!("/v2/{repository}/blobs/{}", Digest::of(layer)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_is_for_images_of_repositories_that_have_it() {
    let (world, registry, layer) = (World::new(), FaultyRegistry::start().unwrap(), private_layer());
    put_image(&registry, "owner/app", &layer, true);
    put_image(&registry, "thief/app", &layer, false);
    put_image(&registry, "friend/app", &layer, true);
    assert!(world.start(&registry, "owner/app").await.unwrap());
    assert!(
        world.start(&registry, "thief/app").await.is_err(),
        "it knew the digest"
    );
    assert!(
        !world.start(&registry, "friend/app").await.unwrap(),
        "fetched twice"
    );
    assert!(world.start(&registry, "thief/app").await.is_err());
    // A repository that showed a layer once need not show it again, also without the registry; nor need the owner's.
    registry.clear_log();
    for repository in ["owner/app", "friend/app"] {
        assert!(!world.start(&registry, repository).await.unwrap());
        assert_eq!(asked(&registry, repository, &layer), 0, "{repository}");
    }
    registry.set_down(true);
    for repository in ["owner/app", "friend/app"] {
        assert!(!world.start(&registry, repository).await.unwrap());
    }
    assert!(world.start(&registry, "thief/app").await.is_err());
}

/// A user with a registry of their own controls what that registry says.
#[tokio::test(flavor = "multi_thread")]
async fn another_registry_must_give_what_only_who_has_the_layer_can_give() {
    let (world, layer) = (World::new(), private_layer());
    let [owner, thief, friend] = [(); 3].map(|()| FaultyRegistry::start().unwrap());
    put_image(&owner, "app", &layer, true);
    put_image(&thief, "app", &layer, false);
    thief.put_blob_as("app", Digest::of(&layer), vec![7; layer.len()]);
    put_image(&friend, "app", &layer, true);
    assert!(world.start(&owner, "app").await.unwrap());
    assert!(world.start(&thief, "app").await.is_err());
    assert!(!world.start(&friend, "app").await.unwrap());
    let pieces = asked(&friend, "app", &layer);
    assert!((1..=PIECES).contains(&pieces), "{pieces}");
    // Once.
    assert!(!world.start(&friend, "app").await.unwrap());
    assert_eq!(asked(&friend, "app", &layer), pieces);
}

/// A user who knows most of a layer is asked for the same pieces at each try.
#[tokio::test(flavor = "multi_thread")]
async fn trying_again_does_not_help() {
    let (world, layer) = (World::new(), layer_of(2_000_000));
    let [owner, thief] = [(); 2].map(|()| FaultyRegistry::start().unwrap());
    put_image(&owner, "app", &layer, true);
    put_image(&thief, "app", &layer, false);
    assert!(world.start(&owner, "app").await.unwrap());
    let half = layer.len() / 2;
    let mut known = layer[..half].to_vec();
    known.resize(layer.len(), 0);
    thief.put_blob_as("app", Digest::of(&layer), known);
    let mut ranges = BTreeSet::new();
    for _ in 0..20 {
        assert!(world.start_if(&thief, "app", true).await.is_err());
    }
    let log = thief.log().into_iter();
    ranges.extend(log.filter_map(|request| request.head.range));
    assert!((1..=PIECES).contains(&ranges.len()), "{ranges:?}");
}

/// Notes that are lost open nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_whose_notes_are_lost_is_closed() {
    let (world, registry, layer) = (World::new(), FaultyRegistry::start().unwrap(), private_layer());
    put_image(&registry, "owner/app", &layer, true);
    put_image(&registry, "thief/app", &layer, false);
    assert!(world.start(&registry, "owner/app").await.unwrap());
    let folder = world.folder();
    for lost in [
        &["roots.json"][..],
        &["origins.json"],
        &["roots.json", "origins.json"],
    ] {
        for name in lost {
            fs::write(folder.join(name), "{").unwrap();
        }
        assert!(world.start(&registry, "thief/app").await.is_err(), "{lost:?}");
        // Nor do the thief's attempts.
        registry.set_down(true);
        assert!(world.start(&registry, "thief/app").await.is_err(), "{lost:?}");
        registry.set_down(false);
        world.start(&registry, "owner/app").await.unwrap();
    }
}

/// Earlier versions kept no notes. A repository to which they showed a layer needs none, also when others show later that they have it.
#[tokio::test(flavor = "multi_thread")]
async fn layers_of_earlier_versions() {
    let (world, registry, layer) = (World::new(), FaultyRegistry::start().unwrap(), private_layer());
    for repository in ["owner/app", "friend/app"] {
        put_image(&registry, repository, &layer, true);
    }
    put_image(&registry, "thief/app", &layer, false);
    assert!(world.start(&registry, "owner/app").await.unwrap());
    let notes = world.folder().join("roots.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&notes).unwrap()).unwrap();
    assert!(record.as_object_mut().unwrap().remove("readers").is_some());
    fs::write(&notes, record.to_string()).unwrap();
    registry.set_down(true);
    assert!(!world.start(&registry, "owner/app").await.unwrap());
    registry.set_down(false);
    assert!(world.start(&registry, "thief/app").await.is_err());
    assert!(!world.start(&registry, "friend/app").await.unwrap());
    registry.set_down(true);
    for repository in ["owner/app", "friend/app"] {
        assert!(!world.start(&registry, repository).await.unwrap(), "{repository}");
    }
}

/// An index says what is in a layer, so it is pushed only where the layer is.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_for_repositories_that_have_the_layer() {
    let (world, registry, layer) = (World::new(), FaultyRegistry::start().unwrap(), private_layer());
    put_image(&registry, "owner/app", &layer, true);
    put_image(&registry, "thief/app", &layer, false);
    assert!(world.start(&registry, "owner/app").await.unwrap());
    let options = PublishOptions {
        push: true,
        ..PublishOptions::default()
    };
    let publish = async |repository| {
        let request = request(&registry, repository);
        let report = Arc::new(|_| ()) as _;
        world.images.publish(&request, &options, &report).await
    };
    assert!(publish("thief/app").await.is_err());
    assert!(publish("owner/app").await.is_ok());
}

/// The chance depends on how much of a layer a user knows, and not on how many pieces that is, nor on how many zeros.
#[test]
fn pieces_are_drawn_by_their_size() {
    const SMALL: u64 = 1 << 10;
    // The size of each piece in the registry, and its decoded size.
    for (known, secret, codec) in [
        (vec![(SMALL, SMALL); 1000], (1 << 20, 1 << 20), Codec::Tar),
        (vec![(SMALL, 16 << 20); 1000], (1 << 20, 1 << 20), Codec::Gzip),
        (vec![(SMALL, SMALL); 1000], (1, 16 << 20), Codec::Zstd),
    ] {
        let (mut at, mut plain) = (0, 0);
        let span = |(source, decoded): (u64, u64)| {
            let (from, begin) = (at, plain);
            (at, plain) = (at + source, plain + decoded);
            Span {
                source: from..at,
                bit_offset: 0,
                plain: begin..plain,
                data: begin..plain,
                window: None,
                digest: Digest::of(b""),
            }
        };
        let spans = [known, vec![secret; 10]].concat().into_iter().map(span).collect();
        let table = SpanTable {
            codec,
            layer: Digest::of(b"layer"),
            layer_size: at,
            plain_size: plain,
            data_size: plain,
            pieces: Vec::new(),
            spans,
            windows: None,
        };
        let is_known = |lot: u64| {
            let drawn = drawn(&table, lot);
            assert_eq!(drawn.len(), PIECES);
            drawn
                .iter()
                .all(|span| span.source.end - span.source.start == SMALL)
        };
        let guessed = (0..100).filter(|lot| is_known(*lot)).count();
        assert!(
            guessed <= 1,
            "{codec:?}: a user who knew a tenth had all pieces in {guessed} of 100 cases"
        );
        let nothing = SpanTable {
            spans: Vec::new(),
            ..table
        };
        assert!(drawn(&nothing, 1).is_empty());
    }
}

/// A frame cannot be compared in part, so large ones are asked for, too.
#[tokio::test(flavor = "multi_thread")]
async fn small_pieces_alone_prove_nothing() {
    const FRAME: usize = 6 << 20;
    let mut contents = vec![0; 2 * FRAME + (1 << 20)];
    fastrand::Rng::with_seed(7).fill(&mut contents);
    let mut tar = TarBuilder::new();
    tar.file_with(&Header::new("key", Kind::File), &contents);
    let tar = tar.into_bytes();
    let compression = Compression::ZstdFrames(FRAME);
    let layer = compression.encode(&tar).unwrap();
    let (world, plain) = (World::new(), (Digest::of(&tar), compression));
    let [owner, thief, friend] = [(); 3].map(|()| FaultyRegistry::start().unwrap());
    for registry in [&owner, &thief, &friend] {
        put_image_of(registry, "app", &layer, plain);
    }
    for registry in [&owner, &friend] {
        registry.put_blob("app", layer.clone());
    }
    // All but the two large frames.
    let large = compression.encode(&tar[..2 * FRAME]).unwrap().len();
    let mut known = layer.clone();
    known[..large].fill(0);
    thief.put_blob_as("app", Digest::of(&layer), known);
    assert!(world.start(&owner, "app").await.unwrap());
    assert!(world.start_if(&thief, "app", true).await.is_err());
    assert!(!world.start_if(&friend, "app", true).await.unwrap());
}

/// A stronger index that only others may use stands in nobody's way, least of all when no registry can be asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_others_does_not_hide_ones_own() {
    let (world, registry, layer) = (World::new(), FaultyRegistry::start().unwrap(), private_layer());
    put_image(&registry, "friend/app", &layer, true);
    assert!(world.start(&registry, "friend/app").await.unwrap());
    // It was listed for the image, and nobody has proven it yet.
    let (store, own) = (&world.images.store, world.images.store.list().unwrap()[0]);
    let friend = RepositoryName::new(&registry.host(), "friend/app").unwrap();
    facts::update(store, own, |record| record.add_listing(Listing::new(&friend))).unwrap();
    let notes = world.folder().join("roots.json");
    let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&notes).unwrap()).unwrap();
    assert!(record.as_object_mut().unwrap().remove("proven").is_some());
    fs::write(&notes, record.to_string()).unwrap();
    assert!(!world.start(&registry, "friend/app").await.unwrap());
    // Another index of the layer, which this host has proven for somebody else.
    let options = IndexOptions {
        spacing: 1 << 18,
        ..IndexOptions::default()
    };
    let mut index = index_layer(&*layer, &options, None).unwrap().index;
    index.diff_id = Some(index.layer);
    let encoded = index.encode();
    let other = xebec_cache::store::LayerKey {
        index: Digest::of(&encoded),
        ..own
    };
    assert_ne!(other, own);
    store.add(other, &encoded).unwrap();
    let owner = RepositoryName::new(&registry.host(), "owner/app").unwrap();
    facts::update(store, other, |record| {
        record.set_proven();
        record.add_reader(&owner);
    })
    .unwrap();
    registry.set_down(true);
    assert!(!world.start(&registry, "friend/app").await.unwrap());
}
