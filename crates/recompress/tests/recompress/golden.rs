//! Descriptions of version 1, with corrections of version 1, that were written once: they make the same streams for ever.
//!
//! `golden/NAME` is a description, and `golden/NAME.txt` the length and digest of its stream. They were written once, by
//! `XEBEC_WRITE_GOLDEN=1 cargo test -p xebec-recompress golden`, which writes only what is not there. Never make them anew: a change of a predictor or of
//! an encoder that these tests notice is another version (`docs/formats/recompression.md`).

use std::path::PathBuf;
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::round_trips::{gzip, restore, take_apart};
use xebec_deflate::encoders::go::Go;
use xebec_deflate::encoders::klauspost::generation::Generation;
use xebec_deflate::encoders::klauspost::pgzip::Pgzip;
use xebec_deflate::encoders::{Encoder, Output};
use xebec_recompress::Description;
use xebec_testkit::corpus;

const NAMES: [&str; 10] = [
    "go",
    "pgzip",
    "corrections",
    "corrections-1",
    "corrections-9",
    "zstd",
    "zstd-1",
    "zstd-5",
    "zstd-9",
    "zstd-frames",
];

/// A name, its description, and the length and digest of its stream.
type Golden = (&'static str, Vec<u8>, String);

static GOLDEN: LazyLock<[Golden; 10]> = LazyLock::new(|| NAMES.map(golden));

/// Reads it. What is not there is written if that is wanted.
fn golden(name: &'static str) -> Golden {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden");
    let (description, line) = (folder.join(name), folder.join(format!("{name}.txt")));
    if std::env::var_os("XEBEC_WRITE_GOLDEN").is_some() && !description.exists() {
        let stream = stream(name);
        let (made, _) = take_apart(&stream, 1 << 20).unwrap();
        std::fs::write(&description, made.to_bytes()).unwrap();
        std::fs::write(&line, digest(&stream) + "\n").unwrap();
    }
    let line = std::fs::read_to_string(&line).unwrap();
    (
        name,
        std::fs::read(&description).unwrap(),
        line.trim_end().to_owned(),
    )
}

/// The plain bytes of a golden description. Some have two slices or more, of which the later ones hold little.
fn plain(name: &str) -> Vec<u8> {
    let (text, records) = (corpus::bytes("text"), corpus::bytes("records"));
    match name {
        "go" | "pgzip" => corpus::bytes("tar")[..5_000_000].to_vec(),
        "zstd-frames" => [&text[..50_000], &records[..50_000]].concat(),
        "corrections" | "zstd" => [
            &records[..80_000],
            &text[..80_000],
            &vec![0; 4_200_000],
            &text[80_000..110_000],
        ]
        .concat(),
        _ => [&records[80_000..200_000], &text[110_000..200_000]].concat(),
    }
}

fn digest(stream: &[u8]) -> String {
    format!("{} {}", stream.len(), hex::encode(Sha256::digest(stream)))
}

#[test]
fn golden_descriptions_make_the_same_streams_for_ever() {
    for (name, bytes, line) in &*GOLDEN {
        let description = Description::from_bytes(bytes).unwrap();
        assert_eq!(description.to_bytes(), *bytes, "{name}");
        let plain = plain(name);
        let stream = restore(&description, &plain, 100_000);
        assert_eq!(digest(&stream), *line, "{name} is not what it was");
        // And each part by itself.
        for place in description.places() {
            let needs = &plain[place.needs.start as usize..place.needs.end as usize];
            let part = &stream[place.stream.start as usize..place.stream.end as usize];
            assert!(description.restore(&place, needs).unwrap() == part, "{name}");
        }
    }
}

#[test]
fn golden_descriptions_have_all_kinds_of_parts() {
    let shares = GOLDEN
        .each_ref()
        .map(|(_, bytes, _)| Description::from_bytes(bytes).unwrap().shares());
    assert!(shares.iter().any(|shares| shares.encoder > 0 && shares.kept > 0));
    assert!(
        shares
            .iter()
            .any(|shares| shares.corrected > 0 && shares.kept > 0)
    );
    assert!(
        shares
            .iter()
            .any(|shares| shares.corrected > 0 && shares.kept == 0)
    );
}

/// Streams for golden descriptions of a new version. Their writers may change: golden is the description.
fn stream(name: &str) -> Vec<u8> {
    let plain = plain(name);
    match name {
        "go" => member(&[0, 0, 0, 0, 0, 255], Go::new(6).unwrap(), &plain),
        "pgzip" => {
            let pgzip = Pgzip::new(5, Generation::V1_20_0, Pgzip::BLOCK_SIZE).unwrap();
            member(&[0, 0x09, 0x6e, 0x88, 0, 255], pgzip, &plain)
        }
        "corrections" => gzip(&plain, 6),
        "corrections-1" => gzip(&plain, 1),
        "corrections-9" => gzip(&plain, 9),
        "zstd" => zstd::encode_all(&plain[..], 3).unwrap(),
        "zstd-1" => zstd::encode_all(&plain[..], 1).unwrap(),
        "zstd-5" => zstd::encode_all(&plain[..], 5).unwrap(),
        "zstd-9" => zstd::encode_all(&plain[..], 9).unwrap(),
        _ => {
            let frames = plain
                .chunks(20_000)
                .map(|part| zstd::bulk::compress(part, 1).unwrap());
            let mut stream: Vec<u8> = frames.flatten().collect();
            stream.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
            stream
        }
    }
}

fn member(head: &[u8; 6], mut encoder: impl Encoder, plain: &[u8]) -> Vec<u8> {
    let mut output = Output::default();
    encoder.write(plain, &mut output);
    encoder.finish(&mut output);
    output.bits.align();
    let mut stream = vec![0x1f, 0x8b, 8, 0];
    stream.extend_from_slice(head);
    stream.extend(output.bits.take());
    stream.extend([7; 8]);
    stream
}
