//! One function for each parser of bytes that come from outside. A target panics when a promise is broken; that
//! the parser refuses the bytes is no failure. `fuzz_targets/` gives each to libFuzzer.

use std::str::FromStr;

use xebec_format::digest::Digest;
use xebec_format::erofs::{self, Device};
use xebec_format::layer::{LayerIndex, SpanTable};
use xebec_format::merge::merge;
use xebec_host::trust::{Payload, Record, SignatureManifest, TrustFile};
use xebec_index::indexer::{IndexOptions, index_layer};
use xebec_index::toc::{Blob, estargz};
use xebec_oci::{ImageConfig, Manifest, Platform, Reference};
use xebec_testkit::compression::Compression;
use xebec_testkit::tar::{Header, Kind, TarBuilder};

pub use xebec_index::fuzzing::{decode as span, index as layer_blob, inflate};

/// A layer index as a registry sends it: what is accepted keeps its promises and can be used.
pub fn layer_index(bytes: &[u8]) {
    let spans = SpanTable::decode(bytes);
    let Ok(index) = LayerIndex::decode(bytes) else {
        return;
    };
    assert_eq!(index.check(), Ok(()));
    assert!(spans.is_ok(), "the span table alone is refused: {spans:?}");
    let again = LayerIndex::decode(&index.encode());
    assert!(matches!(&again, Ok(again) if *again == index), "encoding changes the index: {again:?}");
    view(&[&index]);
}

/// A script of tar entries in two layers, over few names so that they meet: indexed, merged and written as EROFS.
pub fn layers(script: &[u8]) {
    let (mut lower, mut upper) = (TarBuilder::new(), TarBuilder::new());
    for step in script.chunks_exact(3).take(60) {
        let &[what, path, link] = step else { return };
        let tar = if what & 0x80 == 0 { &mut lower } else { &mut upper };
        add(tar, what & 0x0f, &name(path), &name(link));
    }
    let index = |tar: TarBuilder<Vec<u8>>| index_layer(&tar.into_bytes()[..], &IndexOptions::default(), None);
    if let (Ok(lower), Ok(upper)) = (index(lower), index(upper)) {
        view(&[&lower.index, &upper.index]);
    }
}

fn add(tar: &mut TarBuilder<Vec<u8>>, what: u8, path: &str, link: &str) {
    match what {
        0 | 1 => tar.file(path, link),
        2 | 3 => tar.directory(path),
        4 => tar.symlink(path, link),
        5 => tar.symlink(path, format!("/{link}")),
        6 => tar.symlink(path, format!("../{link}")),
        7 | 8 => tar.hardlink(path, link),
        9 => tar.whiteout(path),
        10 => tar.opaque(path),
        11 => tar.entry(&Header::new(path, Kind::Fifo)),
        12 => tar.entry(&Header::new(path, Kind::CharDevice).device(0, 0)),
        13 => tar.entry(&Header::new(path, Kind::Directory).xattr("trusted.overlay.opaque", "y")),
        _ => tar.file(format!("{path}/../{link}"), b""),
    };
}

/// Up to three components out of four names.
fn name(byte: u8) -> String {
    let component = |shift: u8| ["a", "b", "c", "d"][usize::from(byte >> shift & 3)];
    match byte >> 6 {
        0 => component(0).to_owned(),
        1 => format!("{}/{}", component(0), component(2)),
        _ => format!("{}/{}/{}", component(0), component(2), component(4)),
    }
}

/// Merges layers and writes the view; both may refuse, neither may panic, and the result is the same each time.
fn view(layers: &[&LayerIndex]) {
    let Ok(tree) = merge(layers) else { return };
    let devices: Vec<Device> = layers.iter().map(|index| Device::of_layer(&index.layer, index.data_size)).collect();
    let write = || erofs::write(&tree, &devices, &erofs::Options { uuid: [7; 16] });
    assert_eq!(write(), write());
}

/// A table of contents as eStargz has it: the bytes are its JSON, in the archive that it comes in. zstd:chunked
/// tables are read by the same code.
pub fn table_of_contents(json: &[u8]) {
    let mut tar = TarBuilder::new();
    tar.file("stargz.index.json", json);
    let Ok(member) = Compression::Gzip(1).encode(&tar.into_bytes()) else {
        return;
    };
    let blob = Blob { digest: Digest::of(json), size: 1 << 40 };
    if let Ok(index) = estargz::parse_table(blob, 1 << 39, &member, Digest::of(json)) {
        assert_eq!(index.check(), Ok(()));
        view(&[&index]);
    }
}

/// Manifests, image indexes and image configurations.
pub fn manifest(bytes: &[u8]) {
    let _ = Manifest::parse(bytes, None);
    let _ = Manifest::parse(bytes, Some("application/vnd.oci.image.index.v1+json"));
    let _ = ImageConfig::parse(bytes);
    let _ = xebec_host::container::ImageConfig::from_blob(bytes);
}

/// References, platforms, probes and volumes: what people write on the command line.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(reference) = Reference::from_str(text) {
        let written = reference.to_string();
        let again = Reference::from_str(&written);
        assert!(matches!(&again, Ok(again) if *again == reference), "{text:?} {written:?} {again:?}");
    }
    let _ = Platform::from_str(text);
    let _ = xebec_host::container::Probe::from_str(text);
    let _ = xebec_host::container::Volume::from_str(text);
    let _ = Digest::from_str(text);
}

/// What trust rests on: the policy file, records, signed payloads and signature manifests.
pub fn trust(bytes: &[u8]) {
    let _ = TrustFile::parse(bytes);
    let _ = Record::parse(bytes, Digest::of(b"layer"), Digest::of(b"index"));
    let _ = Payload::parse(bytes);
    let _ = SignatureManifest::parse(bytes);
}
