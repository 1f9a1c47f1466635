//! The parts that the tests of the client share: an image in a registry, and a client that does not wait long.

#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

pub(crate) mod own_network;

use std::time::Duration;

use xebec_format::digest::Digest;
use xebec_oci::manifest::{Descriptor, ImageManifest};
use xebec_oci::media_type::{OCI_CONFIG, OCI_MANIFEST};
use xebec_oci::{Budget, Client, ClientConfig, Platform, Reference, Repository};
use xebec_testkit::registry::{Fault, FaultyRegistry, Options};

pub(crate) const NAME: &str = "team/app";
pub(crate) const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Bytes that do not repeat at any small distance.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) struct Image {
    pub(crate) layer: Vec<u8>,
    pub(crate) layer_digest: Digest,
    pub(crate) manifest: Vec<u8>,
    pub(crate) manifest_digest: Digest,
}

/// Config and manifest of an image with one layer.
pub(crate) fn manifest_of(layer: &[u8], architecture: &str) -> (Vec<u8>, Vec<u8>) {
    let config = serde_json::json!({
        "architecture": architecture, "os": "linux",
        "config": {"Entrypoint": ["/bin/app"], "Env": ["A=b"]},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(layer)]},
    });
    let config = config.to_string().into_bytes();
    let manifest = ImageManifest {
        schema_version: 2,
        media_type: Some(OCI_MANIFEST.to_owned()),
        artifact_type: None,
        config: Descriptor::of(OCI_CONFIG, &config),
        layers: vec![Descriptor::of(LAYER_TYPE, layer)],
        subject: None,
        annotations: Default::default(),
    };
    (config, serde_json::to_vec(&manifest).unwrap())
}

/// Puts an image with one layer of `size` bytes under the tag `v1`.
pub(crate) fn put_image(registry: &FaultyRegistry, size: usize) -> Image {
    let layer = noise(size);
    let (config, manifest) = manifest_of(&layer, "amd64");
    registry.put_blob(NAME, config);
    let layer_digest = registry.put_blob(NAME, layer.clone());
    let manifest_digest = registry.put_manifest(NAME, "v1", OCI_MANIFEST, manifest.clone());
    Image {
        layer,
        layer_digest,
        manifest,
        manifest_digest,
    }
}

pub(crate) fn config() -> ClientConfig {
    ClientConfig {
        docker_config: Some("/nonexistent".into()),
        budget: Budget {
            attempts: 4,
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_millis(20),
            total_deadline: Duration::from_secs(20),
            response_timeout: Duration::from_millis(700),
            stall_window: Duration::from_millis(500),
            stall_bytes: 4096,
            retry_burst: 1000,
            ..Budget::default()
        },
        ..ClientConfig::default()
    }
}

pub(crate) fn client() -> Client {
    Client::new(config()).unwrap()
}

pub(crate) fn repository(registry: &FaultyRegistry) -> Repository {
    Repository::new(&registry.host(), NAME).unwrap()
}

pub(crate) fn tagged(registry: &FaultyRegistry) -> Reference {
    format!("{}/{NAME}:v1", registry.host()).parse().unwrap()
}

pub(crate) fn amd64() -> Platform {
    Platform::linux("amd64")
}

/// Bytes of the layer of [`setup`].
pub(crate) const SIZE: usize = 1 << 20;

/// A registry with an image of one large layer.
pub(crate) fn setup() -> (FaultyRegistry, Image) {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, SIZE);
    (registry, image)
}

/// The same over HTTP/2: a registry with TLS, an image with a layer of this size, and a client that trusts the registry's authority.
pub(crate) fn setup_http2(size: usize) -> (FaultyRegistry, Image, Client) {
    let options = Options {
        tls: true,
        ..Options::default()
    };
    let registry = FaultyRegistry::with(options).unwrap();
    let image = put_image(&registry, size);
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, registry.ca_pem().unwrap()).unwrap();
    // The client reads the file when it is made.
    let trusting = ClientConfig {
        ca_files: vec![ca],
        ..config()
    };
    let client = Client::new(trusting).unwrap();
    (registry, image, client)
}

pub(crate) fn status(code: u16, retry_after: Option<&str>) -> Fault {
    Fault::Status {
        code,
        retry_after: retry_after.map(str::to_owned),
    }
}
