#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{ImageRequest, PullPolicy};
use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::registry::{Fault, FaultyRegistry, When};
use xebec_testkit::tar::TarBuilder;

use super::*;

/// A registry with an image of layers of these sizes, and a host.
struct World {
    registry: FaultyRegistry,
    image: Image,
    images: Images,
    _directory: tempfile::TempDir,
}

/// A layer with one file, which is filled with this byte.
fn layer(byte: u8, size: u64) -> Vec<u8> {
    let mut tar = TarBuilder::new();
    tar.file("file", vec![byte; usize::try_from(size).unwrap()]);
    tar.into_bytes()
}

impl World {
    fn new(sizes: &[u64]) -> Self {
        let layers = (0..).zip(sizes).map(|(byte, size)| layer(byte, *size));
        Self::of(&layers.collect::<Vec<_>>())
    }

    fn of(layers: &[Vec<u8>]) -> Self {
        let builder = layers.iter().fold(ImageBuilder::new(), |builder, layer| {
            builder.layer(layer, Compression::Tar).unwrap()
        });
        let (registry, image) = (FaultyRegistry::start().unwrap(), builder.build());
        for blob in image.blobs() {
            registry.put_blob("app", blob.bytes.clone());
        }
        let manifest = &image.manifest;
        registry.put_manifest("app", "v1", &manifest.media_type, manifest.bytes.clone());
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        Self {
            registry,
            image,
            images: Images::open(&paths).unwrap(),
            _directory: directory,
        }
    }

    fn layer(&self, number: usize) -> Digest {
        self.image.layers[number].digest
    }

    /// Has something happen to requests for a layer.
    fn befalls(&self, number: usize, fault: Fault) {
        let layer = format!("/blobs/{}", self.layer(number));
        self.registry
            .inject(When::any().method("GET").path(&layer), fault);
    }

    fn is_asked_for(&self, number: usize) -> bool {
        self.registry.count(&format!("/blobs/{}", self.layer(number))) > 0
    }

    async fn publish(&self) -> Result<Published, Failure> {
        let request = ImageRequest {
            reference: format!("{}/app:v1", self.registry.host()),
            platform: Some("linux/amd64".to_owned()),
            docker_config: None,
            pull: PullPolicy::Always,
            part: None,
            manifest: None,
        };
        let options = PublishOptions {
            push: true,
            ..PublishOptions::default()
        };
        self.images
            .publish(&request, &options, &(Arc::new(|_| ()) as _))
            .await
    }

    /// Publishes until something is so, or for a while; whether it came to be so.
    async fn publish_until(&self, is_so: impl Fn() -> bool, patience: Duration) -> bool {
        let since = Instant::now();
        let watch = async {
            while !is_so() && since.elapsed() < patience {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            is_so()
        };
        tokio::select! {
            published = self.publish() => panic!("it ended: {published:?}"),
            is_so = watch => is_so,
        }
    }
}

/// As many as are indexed at the same time.
const FEW: usize = AT_ONCE as usize;
const LONG: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn small_layers_do_not_wait_for_each_other() {
    let world = World::new(&[1000; FEW + 1]);
    world.befalls(0, Fault::Hang);
    let others = || (1..FEW).all(|number| world.is_asked_for(number));
    assert!(world.publish_until(others, LONG).await);
    assert!(!world.is_asked_for(FEW), "more than a few");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_layer_goes_by_itself() {
    let world = World::new(&[SMALL + 1, 1000]);
    world.befalls(0, Fault::Hang);
    assert!(world.publish_until(|| world.is_asked_for(0), LONG).await);
    assert!(
        !world
            .publish_until(|| world.is_asked_for(1), Duration::from_millis(300))
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_indexes_do_not_wait_for_each_other() {
    let world = World::new(&[1000; 3]);
    let upload = When::any().method("PUT").path("/blobs/uploads/");
    // The first is the artifact's configuration.
    world.registry.inject(upload.skip(1), Fault::Hang);
    let puts = || {
        let log = world.registry.log();
        let puts = log.iter().filter(|request| request.head.method == "PUT");
        puts.count() > FEW
    };
    assert!(world.publish_until(puts, LONG).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_told_in_the_order_of_the_image_and_the_lowest_failure_too() {
    let world = World::new(&[1000; 6]);
    world.befalls(0, Fault::Delay(Duration::from_millis(300)));
    let published = world.publish().await.unwrap();
    let told: Vec<Digest> = published.layers.iter().map(|layer| layer.layer).collect();
    assert_eq!(told, (0..6).map(|number| world.layer(number)).collect::<Vec<_>>());
    let artifact = world
        .registry
        .manifest("app", &published.artifact.unwrap().to_string());
    assert!(artifact.is_some());

    let world = World::new(&[1000; 3]);
    world.registry.remove_blob("app", &world.layer(1));
    world.registry.remove_blob("app", &world.layer(2));
    world.befalls(1, Fault::Delay(Duration::from_millis(300)));
    let failure = world.publish().await.unwrap_err();
    assert!(failure.message.contains(&world.layer(1).to_string()), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_listed_twice_is_read_once() {
    let world = World::of(&[layer(1, 1000), layer(1, 1000)]);
    let published = world.publish().await.unwrap();
    assert_eq!(published.layers.len(), 2);
    assert!(published.layers.iter().all(|layer| layer.index.is_some()));
    let layer = format!("/blobs/{}", world.layer(0));
    let log = world.registry.log();
    let reads = log
        .iter()
        .filter(|request| request.head.method == "GET" && request.head.path.contains(&layer));
    assert_eq!(reads.count(), 1);
}
