//! A committed layer has the index that it had when this test was written.
//!
//! Indexes are stored in registries by their digest, so a change of any of these is a change for every index ever
//! published. It may be right (a new field, a better zstd), but it must not come unnoticed.
use xebec_format::digest::Digest;
use xebec_index::indexer::{IndexOptions, index_layer};

const LAYER: &[u8] = include_bytes!("../layers/sample.tar.gz");

#[test]
fn the_sample_layer_keeps_its_index() {
    let options = IndexOptions {
        spacing: 64 << 10,
        ..IndexOptions::default()
    };
    let layer = index_layer(LAYER, &options, None).unwrap();
    let index = &layer.index;
    assert_eq!(
        (index.entries.len(), index.spans.len(), index.data_size),
        (12, 2, 204_800)
    );
    let digests = [&index.encode(), &layer.windows, &layer.frame, &layer.contents];
    assert_eq!(digests.map(|bytes| Digest::of(bytes).to_string()), DIGESTS);
}

/// Of index, windows, frame and contents.
const DIGESTS: [&str; 4] = [
    "sha256:586096493793afdce3612a5a0ca63cb9a5019aae789644b60f311d36731ecb03",
    "sha256:7fab0a60d22c0f4bdd27137f525f8b58371ca91eaa8db7a6aa5ced879d285445",
    "sha256:4970fb54aebda1ed582fcab647090c5b2b69c5a9073365917392fbb695cb3ca6",
    "sha256:8978e7719699141665ae3dab1178c33d3c137bb5ff2de6dfe1def0038119fc8e",
];
