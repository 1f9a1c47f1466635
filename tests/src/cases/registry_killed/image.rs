//! Images that are made of a number: a test that knows the number knows each byte.

use serde_json::json;
use xebec_format::digest::Digest;
use xebec_testkit::compression::Compression;
use xebec_testkit::tar::TarBuilder;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Numbers of blobs from here on are those that images share.
const SHARED: u64 = 1 << 60;
/// One blob in so many is larger than a part of an upload to S3.
const LARGE: u64 = 40;

/// A blob, and the seed that it is made from.
pub(super) struct Blob {
    pub(super) seed: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
}

/// An image that a client pushes, and that is compared with what comes back.
pub(super) struct Image {
    pub(super) manifest: Vec<u8>,
    pub(super) digest: Digest,
    pub(super) blobs: Vec<Blob>,
}

pub(super) fn blob(seed: u64) -> Blob {
    let mut random = fastrand::Rng::with_seed(seed);
    let bytes = match seed {
        seed if seed.is_multiple_of(LARGE) => noise(&mut random, 5_500_000..7_000_000),
        seed if seed % 3 == 0 => noise(&mut random, 1..60_000),
        _ => layer(&mut random),
    };
    let digest = Digest::of(&bytes);
    Blob { seed, bytes, digest }
}

fn noise(random: &mut fastrand::Rng, length: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; random.usize(length)];
    random.fill(&mut bytes);
    bytes
}

/// A layer as an image has it, with a file of its own and some that other layers have, too.
fn layer(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut tar = TarBuilder::new();
    tar.file("own", noise(random, 1..20_000));
    for number in 0..random.usize(1..5) {
        let mut shared = fastrand::Rng::with_seed(SHARED + random.u64(..30));
        let words = noise(&mut shared, 100..400);
        let sentences = (0..200).flat_map(|_| words[shared.usize(..words.len())..].iter().take(40).copied());
        tar.file(format!("shared-{number}"), sentences.collect::<Vec<u8>>());
    }
    let kinds = [
        Compression::Gzip(6),
        Compression::Gzip(1),
        Compression::Zstd,
        Compression::Tar,
    ];
    // Memory does not fail.
    kinds[random.usize(..kinds.len())]
        .encode(&tar.into_bytes())
        .unwrap_or_default()
}

/// An image with a layer of its own, one that others have, and a configuration that all have.
pub(super) fn image(seed: u64) -> Image {
    let blobs = vec![blob(SHARED + 11), blob(seed), blob(SHARED + 1 + seed % 5)];
    let described = |blob: &Blob, kind: &str| json!({"mediaType": kind, "digest": blob.digest.to_string(), "size": blob.bytes.len()});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(&blobs[0], CONFIG),
        "layers": [described(&blobs[1], LAYER), described(&blobs[2], LAYER)],
        "annotations": {"seed": seed.to_string()},
    });
    let manifest = manifest.to_string().into_bytes();
    Image {
        digest: Digest::of(&manifest),
        manifest,
        blobs,
    }
}

/// The header by which a manifest is pushed.
pub(super) const MANIFEST_TYPE: &str = "Content-Type: application/vnd.oci.image.manifest.v1+json\r\n";
