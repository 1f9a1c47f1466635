#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use xebec_format::digest::Digest;
use xebec_testkit::registry::FaultyRegistry;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

use super::PIECES;
use crate::failure::Failure;
use crate::image::Images;
use crate::image::publish::PublishOptions;
use crate::paths::Paths;
use crate::protocol::{ImageRequest, PullPolicy};

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
    let digest = Digest::of(layer);
    let config = json!({"architecture": "amd64", "os": "linux", "author": repository,
                        "rootfs": {"type": "layers", "diff_ids": [digest]}})
    .to_string();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                   "digest": Digest::of(config.as_bytes()), "size": config.len()},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": layer.len()}],
    });
    registry.put_blob(repository, config);
    registry.put_manifest(repository, "v1", MANIFEST, manifest.to_string());
    if has_layer {
        registry.put_blob(repository, layer.to_vec());
    }
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

    /// Where what is known of the only layer is.
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
            .prepare(&request, require_lazy, None, &(Arc::new(|_| ()) as _))
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
    // What was shown once is known from then on, to the owner as well, also without the registry.
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

/// Whoever has a registry of his own lets it say what he likes.
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

/// Who knows most of a layer is asked for the same pieces however often he tries.
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

/// What is lost of the notes opens nothing.
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
        // Nor does what the thief tried.
        registry.set_down(true);
        assert!(world.start(&registry, "thief/app").await.is_err(), "{lost:?}");
        registry.set_down(false);
        world.start(&registry, "owner/app").await.unwrap();
    }
}

/// Earlier versions kept no notes. Whom they showed a layer to needs none, when there are others who show that they have it, too.
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
