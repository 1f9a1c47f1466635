//! Layers, their indexes and what they are made of.

use std::io::{self, Write};

use crate::archives::{archives, plain_archive};
use crate::output::{Failure, put};
use xebec_fuzz::plain_sections_of_index;
use xebec_index::indexer::{IndexOptions, index_layer};
use xebec_testkit::compression::Compression;

pub(crate) fn layers() -> Result<(), Failure> {
    let encodings = [
        ("tar", Compression::Tar),
        ("gzip-stored", Compression::Gzip(0)),
        ("gzip", Compression::Gzip(6)),
        ("gzip-members", Compression::GzipMembers(700)),
        ("zstd", Compression::Zstd),
        ("zstd-frames", Compression::ZstdFrames(700)),
    ];
    for (name, archive) in archives() {
        put("tar", name, &[&[0x1e], &archive[..]].concat())?;
    }
    for (name, encoding) in encodings {
        let blob = encoding.encode(&plain_archive())?;
        put("index", name, &blob)?;
        let encoded = index_layer(&blob[..], &IndexOptions::default(), None)?
            .index
            .encode();
        put("layer_index", name, &encoded)?;
        let sections = plain_sections_of_index(&encoded).ok_or("an index without sections")?;
        put("layer_sections", name, &sections)?;
    }
    for (name, archive) in archives() {
        let encoded = index_layer(&archive[..], &IndexOptions::default(), None)?
            .index
            .encode();
        let sections = plain_sections_of_index(&encoded).ok_or("an index without sections")?;
        put("layer_sections", name, &sections)?;
    }
    streams()?;
    merges()?;
    Ok(())
}

/// Deflate streams and spans of one.
fn streams() -> Result<(), Failure> {
    let text = b"A tale that was told and told and told again. ".repeat(12);
    for level in [0, 1, 9] {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(&text)?;
        put("inflate", &format!("level-{level}"), &encoder.finish()?)?;
    }
    let plain = text.len() as u16;
    let spans = [
        (0, Compression::Tar),
        (1, Compression::Gzip(6)),
        (2, Compression::Zstd),
        (3, Compression::Gzip(6)),
        (4, Compression::Zstd),
    ];
    for (codec, encoding) in spans {
        // As `xebec_index::fuzzing::decode` reads them: codec and bit offset, the window's length, the ranges of the plain
        // stream and the data space, and where the one piece starts and how long it is.
        let mut seed = vec![codec, 0];
        for field in [0, 0, plain, 0, plain, 0, plain] {
            seed.extend(u16::to_le_bytes(field));
        }
        seed.extend(encoding.encode(&text)?);
        put("decode_span", &format!("codec-{codec}"), &seed)?;
    }
    Ok(())
}

/// Layers for `merge` are read from any bytes: these are from a linear congruential generator (Knuth's MMIX).
fn merges() -> io::Result<()> {
    let mut state = 1u64;
    for (number, length) in [60, 200, 800, 3000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Many small numbers: zero is the root, a directory, no attributes.
                let byte = (state >> 56) as u8;
                if state >> 55 & 1 == 0 { byte & 3 } else { byte }
            })
            .collect();
        put("merge", &format!("{number:02}"), &bytes)?;
    }
    Ok(())
}
